"""Warm kernels: forked with the libraries imported, and not to be told from fresh ones."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from sweeper.kernels.guard import MARK_VARIABLE, marked_processes
from sweeper.settings import Settings
from sweeper.testing import write_notebook

pytestmark = [
    pytest.mark.kernel,
    pytest.mark.skipif(sys.platform != "linux", reason="kernels are forked on Linux only"),
]

ROOT = Path(__file__).parent.parent
#: Long enough for a zygote to be up before the sweep is over.
PAUSE = "import time\ntime.sleep(0.7)"


def sweep(folder: Path, *cells: str, kernels: str = "warm", trials: int = 8, jobs: int = 2) -> Any:
    from sweeper import Sweep

    notebook = write_notebook(folder / "nb.ipynb", *cells, parameters="x = 1\nseed = 0")
    settings = Settings.from_mapping(
        {
            "objective": {"val": "maximize"},
            "space": {"x": {"low": 1, "high": 1000}},
            "study": {"trials": trials, "sampler": "random", "name": "warm"},
            "execution": {"kernels": kernels},
        }
    )
    output = f"{folder}/out-{kernels}/{{run_id}}.ipynb"
    return Sweep.from_settings(settings, notebook=notebook, output=output, jobs=jobs).run()


def told(record: Any) -> Any:
    return json.loads(record.notebook.read_text())["metadata"]["sweeper"]


def test_warm_and_cold_kernels_give_the_same_scores(tmp_path: Path) -> None:
    cells = (
        "import numpy as np, pandas as pd",
        "rng = np.random.default_rng(seed)\nframe = pd.DataFrame(rng.normal(size=(50, 5)))\n"
        "val = float((frame @ frame.T).to_numpy().sum()) * x",
        PAUSE,
    )
    warm = sweep(tmp_path, *cells)
    cold = sweep(tmp_path, *cells, kernels="cold")
    assert [r.scores for r in warm.records] == [r.scores for r in cold.records]
    kinds = [told(record)["kernel"] for record in warm.records]
    assert kinds[0] == "cold", "the first trial tells what the notebook imports"
    assert kinds[-1] == "warm"
    assert {told(record)["kernel"] for record in cold.records} == {"cold"}


def test_two_trials_never_share_a_random_stream(tmp_path: Path) -> None:
    result = sweep(
        tmp_path,
        "import random, uuid\nimport numpy as np",
        PAUSE,
        "import sweeper\nsweeper.score(val=random.random(), numpy=np.random.rand(), "
        "uuid=uuid.uuid4().int % 2**50)",
    )
    assert sum(told(record)["kernel"] == "warm" for record in result.records) >= 2
    for name in ("val", "numpy", "uuid"):
        assert len({record.scores[name] for record in result.records}) == len(result.records)


def test_a_zygote_that_dies_costs_time_and_no_trial(tmp_path: Path) -> None:
    result = sweep(
        tmp_path,
        "import os, signal\nfrom pathlib import Path",
        PAUSE,
        "parent = Path(f'/proc/{os.getppid()}/cmdline').read_text()\n"
        "if 'zygote' in parent and not Path('killed').exists():\n"
        "    Path('killed').touch()\n    os.kill(os.getppid(), signal.SIGKILL)\n"
        "    time.sleep(60)",
        "val = x",
        trials=12,
        jobs=1,
    )
    assert (tmp_path / "killed").exists()
    assert result.counts["completed"] == 12
    assert told(result.records[-1])["kernel"] == "warm", "another zygote was raised"


def test_what_fails_in_forked_kernels_only_is_run_in_started_ones(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    result = sweep(
        tmp_path,
        "import os\nfrom pathlib import Path",
        PAUSE,
        "if 'zygote' in Path(f'/proc/{os.getppid()}/cmdline').read_text():\n"
        "    raise RuntimeError('Cannot re-initialize CUDA in forked subprocess')\nval = x",
        trials=8,
        jobs=1,
    )
    assert result.counts["completed"] == 8
    assert [told(record)["kernel"] for record in result.records] == ["cold"] * 8
    said = [r.getMessage() for r in caplog.records if r.name == "sweeper.worker"]
    assert len(said) == 1 and "re-initialize CUDA" in said[0]


def test_a_notebook_that_fails_anywhere_keeps_its_forked_kernels(tmp_path: Path) -> None:
    result = sweep(
        tmp_path,
        "import sys\nfrom pathlib import Path",
        PAUSE,
        "if Path('once').exists():\n    raise ValueError('anyway')\nPath('once').touch()\nval = x",
        trials=7,
        jobs=1,
    )
    assert result.counts["completed"] == 1
    assert told(result.records[-1])["kernel"] == "warm"


def test_a_killed_sweep_leaves_no_zygote_and_no_forked_kernel(tmp_path: Path) -> None:
    write_notebook(
        tmp_path / "nb.ipynb",
        "import multiprocessing, os, time\nfrom pathlib import Path",
        PAUSE,
        "warm = 'zygote' in Path(f'/proc/{os.getppid()}/cmdline').read_text()\n"
        "if warm:\n"
        "    multiprocessing.get_context('fork').Process(target=time.sleep, args=[600]).start()\n"
        "    Path('warm').touch()\n    time.sleep(600)\nval = 1",
        parameters="x = 1",
    )
    (tmp_path / "p.yml").write_text(
        "objective: {val: maximize}\nspace: {x: {low: 1, high: 1000}}\nstudy: {trials: 20}\n"
        "execution: {kernels: warm}\n"
    )
    sweeping = subprocess.Popen(
        [
            *(sys.executable, str(ROOT / "notebook_hpo.py"), "-i", "nb.ipynb"),
            *("-o", "out/{run_id}.ipynb", "-p", "p.yml", "-j", "2"),
        ],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 60
    while not (tmp_path / "warm").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    mark = next(
        variable.partition(b"=")[2].partition(b".")[0].decode()
        for pid in marked_processes("")
        if Path(f"/proc/{pid}/cwd").readlink() == tmp_path
        for variable in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        if variable.startswith(MARK_VARIABLE.encode())
    )
    assert len(marked_processes(mark)) >= 3
    sweeping.send_signal(signal.SIGKILL)
    sweeping.wait()
    deadline = time.monotonic() + 3
    while marked_processes(mark) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert marked_processes(mark) == []
