"""Warm kernels: forked with the libraries imported, and not to be told from fresh ones."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest

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


#: Runs through, also the first time that it is forked after the cell above, which proves that this
#: cell can be shared; later it hangs there, with two children, and tells who they are.
HANGS = """
import json, multiprocessing, os, subprocess, time
from pathlib import Path

def parent_of(pid):
    return int(Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2].split()[1])

shared = os.getppid()
zygote = parent_of(shared)
if all('zygote' in Path(f'/proc/{pid}/cmdline').read_text() for pid in (shared, zygote)):
    if not Path('proof').exists():
        Path('proof').touch()
    else:
        child = multiprocessing.get_context('fork').Process(target=time.sleep, args=[600])
        child.start()
        children = [subprocess.Popen(['sleep', '600']).pid, child.pid]
        told = dict(kernel=os.getpid(), shared=shared, zygote=zygote, children=children)
        part = Path(f'hangs.{os.getpid()}.part')
        part.write_text(json.dumps(told))
        part.rename(part.stem)
        time.sleep(600)
val = x
"""


@pytest.mark.parametrize("victim", ["sweep", "zygote", "shared", "kernel"])
def test_whoever_is_killed_takes_his_children_along_and_leaves_true_notebooks(
    victim: str, tmp_path: Path
) -> None:
    write_notebook(tmp_path / "nb.ipynb", PAUSE, HANGS, parameters="x = 1")
    (tmp_path / "p.yml").write_text(
        "objective: {val: maximize}\nspace: {x: {low: 1, high: 1000}}\n"
        "study: {trials: 40, sampler: random}\n"
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
    try:
        hanging = wait_for(
            lambda: [json.loads(p.read_text()) for p in tmp_path.glob("hangs.*[0-9]")]
        )
        pids = {"sweep": sweeping.pid, **hanging[0]}
        os.kill(pids[victim], signal.SIGKILL)
        gone = [hanging[0]["kernel"], *hanging[0]["children"]]
        deadline = time.monotonic() + 3
        while any(is_alive(pid) for pid in gone) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert [pid for pid in gone if is_alive(pid)] == []
    finally:
        sweeping.send_signal(signal.SIGTERM)
        sweeping.wait()
    assert wait_for(lambda: not processes_in(tmp_path)), "something was left"
    states = []
    for path in (tmp_path / "out").glob("*.ipynb"):
        node = nbformat.read(path, as_version=4)
        nbformat.validate(node)
        states.append(node.metadata["sweeper"]["state"])
        if states[-1] == "completed":
            assert (
                node.metadata["sweeper"]["scores"]["val"] == node.metadata["sweeper"]["params"]["x"]
            )
    assert "completed" in states
    if victim == "sweep":
        assert "running" in states, "as far as anybody could write"
    else:
        # A kernel that somebody kills is a failure; one that dies with its zygote is run again.
        assert set(states) <= {"completed", "stopped", *({"failed"} if victim == "kernel" else ())}


def wait_for(found: Callable[[], Any], limit_s: float = 60.0) -> Any:
    deadline = time.monotonic() + limit_s
    while not (what := found()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return what


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def processes_in(folder: Path) -> list[int]:
    """Processes that work in a folder: kernels, and what they have started."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if (entry / "cwd").readlink() == folder and is_alive(int(entry.name)):
                found.append(int(entry.name))
        except OSError:
            continue
    return found
