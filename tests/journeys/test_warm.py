"""Test that forked kernels, with libraries already imported, give the results of fresh ones."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest
from commands import Command, project
from studies import forked, processes_in, run_until, sweep_of, until

from sweeper.notebooks.metadata import read_metadata
from sweeper.testing import write_notebook

pytestmark = [
    pytest.mark.kernel,
    pytest.mark.skipif(sys.platform != "linux", reason="kernels are forked on Linux only"),
]

#: A pause long enough that the process from which kernels are forked (zygote) starts before the
#: sweep ends.
PAUSE = "import time\ntime.sleep(0.4)"


def sweep(
    folder: Path,
    *cells: str,
    shared: int = 0,
    trials: int = 40,
    jobs: int = 1,
    enough: Callable[[list[Any]], bool] = lambda _: False,
    **settings: Any,
) -> Any:
    """Sweep a notebook with these cells. Return the result.

    No more trials start once `enough` is true for the metadata of the trials that have ended.
    """
    notebook = write_notebook(
        folder / "nb.ipynb", *cells, parameters="x = 1\nseed = 0", shared=shared
    )
    usual: dict[str, Any] = {"space": {"x": {"low": 1, "high": 1000}}, "study": {"trials": trials}}
    changes = {**usual, **settings}
    return run_until(
        enough,
        lambda observer: sweep_of(
            notebook, "warm", jobs=jobs, options={"observer": observer}, **changes
        ),
    )


def metadata(record: Any) -> Any:
    return read_metadata(record.notebook)


@pytest.mark.usefixtures("started_kernels_here")
def test_kernels_are_started_and_no_longer_forked_if_files_leak_from_one_trial_to_the_next(
    tmp_path: Path,
) -> None:
    """For example, a cell that runs once saves weights. Each trial loads, trains and saves them."""
    result = sweep(
        tmp_path,
        f"{PAUSE}\nfrom pathlib import Path\nPath('net').write_text('1.0')",
        "val = float(Path('net').read_text())\nPath('net').write_text(str(val / 2))\nval += 0 * x",
        shared=1,
        trials=14,
        enough=lambda ended: "1.0 → 0.5" in ended[-1].get("kernel_reason", ""),
    )
    assert {record.scores["val"] for record in result.records} == {1.0}
    assert metadata(result.records[-1]).kernel == "cold"
    finding = result.findings[0]
    assert "1.0 → 0.5" in finding
    assert "tag no cell `shared` that writes files" in finding


@pytest.mark.usefixtures("started_kernels_here")
def test_without_a_seed_all_trials_draw_the_same_random_numbers_in_fresh_and_forked_kernels(
    tmp_path: Path,
) -> None:
    result = sweep(
        tmp_path,
        "import random\nimport numpy as np",
        PAUSE,
        "import sweeper\nsweeper.score(val=random.random(), numpy=np.random.rand())",
        jobs=2,
        enough=forked(2),
    )
    kernels = {metadata(record).kernel for record in result.records}
    proofs = {metadata(r).proof for r in result.records if metadata(r).kernel == "warm"}
    assert (kernels, proofs) == ({"cold", "warm"}, {"equal"})
    assert len({repr(record.scores) for record in result.records}) == 1


@pytest.mark.usefixtures("started_kernels_here")
def test_unseeded_cells_that_run_once_draw_the_same_random_numbers_as_in_a_fresh_kernel(
    tmp_path: Path,
) -> None:
    cells = ("import random\nimport numpy as np\ndata = np.random.rand()", PAUSE)
    result = sweep(
        tmp_path,
        *cells,
        "val = data + np.random.rand() + random.random()",
        shared=1,
        jobs=1,
        enough=forked(1),
    )
    kernels = {metadata(record).kernel for record in result.records}
    proofs = {metadata(r).proof for r in result.records if metadata(r).kernel == "warm"}
    assert (kernels, proofs) == ({"cold", "warm"}, {"equal"})
    assert len({record.scores["val"] for record in result.records}) == 1


@pytest.mark.slow
@pytest.mark.usefixtures("started_kernels_here")
def test_torch_begins_with_the_same_seed_in_fresh_and_forked_kernels(tmp_path: Path) -> None:
    cells = ("import torch", PAUSE, "val = torch.rand(1, dtype=float).item()")
    result = sweep(tmp_path, *cells, jobs=1, enough=forked(1))
    assert {metadata(record).kernel for record in result.records} == {"cold", "warm"}
    assert len({record.scores["val"] for record in result.records}) == 1


@pytest.mark.usefixtures("started_kernels_here")
def test_random_numbers_of_the_operating_system_differ_between_all_forked_trials(
    tmp_path: Path,
) -> None:
    result = sweep(
        tmp_path,
        "import random, uuid\nimport numpy as np",
        PAUSE,
        "import sweeper\nsweeper.score(val=random.SystemRandom().random(), "
        "numpy=np.random.default_rng().random(), uuid=uuid.uuid4().int % 2**50)",
        jobs=2,
        enough=forked(2),
    )
    (finding,) = result.findings
    assert "is not reproducible" in finding
    assert "have the same types and shapes" in finding
    warm = [metadata(r).proof for r in result.records if metadata(r).kernel == "warm"]
    assert len(warm) >= 2
    assert set(warm) == {"in kind"}
    for name in ("val", "numpy", "uuid"):
        assert len({record.scores[name] for record in result.records}) == len(result.records)


def test_if_the_process_that_forks_kernels_dies_no_trial_is_lost_and_another_one_forks_kernels(
    tmp_path: Path,
) -> None:
    result = sweep(
        tmp_path,
        "import os, signal\nimport sweeper\nfrom pathlib import Path",
        PAUSE,
        "if sweeper.load_checkpoint() is None:\n"
        "    sweeper.report(0, loss=1.0)\n    sweeper.save_checkpoint()",
        "parent = Path(f'/proc/{os.getppid()}/cmdline').read_text()\n"
        "if 'zygote/__main__' in parent and not Path('killed').exists():\n"
        "    Path('killed').touch()\n    os.kill(os.getppid(), signal.SIGKILL)\n"
        "    time.sleep(60)",
        "sweeper.report(1, loss=0.5)\nval = x",
        enough=lambda ended: (tmp_path / "killed").exists() and forked(2)(ended[-2:]),
    )
    assert (tmp_path / "killed").exists()
    assert result.counts["completed"] == len(result.records)
    assert metadata(result.records[-1]).kernel == "warm", "another zygote was started"
    steps = [metadata(record).series["loss"].steps for record in result.records]
    assert [*map(list, steps)] == [[0, 1]] * len(steps), (
        "the killed trial resumes from its checkpoint"
    )


FAILS_IN_FORKS = """
import os
import sweeper
from pathlib import Path

is_forked = 'zygote/__main__' in Path(f'/proc/{os.getppid()}/cmdline').read_text()
sweeper.score(has_resumed=sweeper.load_checkpoint() is not None)
if is_forked and x > 1:
    sweeper.save_checkpoint()
    raise RuntimeError('Cannot re-initialize CUDA in forked subprocess')
val = x
"""


@pytest.mark.usefixtures("started_kernels_here")
def test_notebooks_that_fail_only_in_forked_kernels_run_in_started_ones(tmp_path: Path) -> None:
    result = sweep(
        tmp_path,
        *(PAUSE, FAILS_IN_FORKS),
        start=[{"x": 1}],
        enough=lambda ended: "re-initialize CUDA" in ended[-1].get("kernel_reason", ""),
    )
    assert result.counts["completed"] == len(result.records)
    assert {metadata(record).kernel for record in result.records} == {"cold"}
    assert {record.scores["has_resumed"] for record in result.records} == {0.0}
    (finding,) = result.findings
    assert "re-initialize CUDA" in finding


# --- the same results as in fresh kernels ---------------------------------------------------------


@pytest.mark.usefixtures("started_kernels_here")
def test_an_import_that_draws_random_numbers_draws_after_the_seed_in_a_forked_kernel_too(
    tmp_path: Path,
) -> None:
    """For example, `rich.style` draws numbers when it is imported. scikit-learn imports it."""
    cells = (
        "import random; random.seed(1337)",
        "import rich.style",
        "val = random.random() + 0 * x",
    )
    seeded = random.Random(1337)
    warm = sweep(tmp_path, *cells, jobs=1, enough=forked(1))
    kinds = [metadata(record).kernel for record in warm.records]
    assert kinds[0] == "cold"
    assert kinds[-1] == "warm"
    assert {metadata(r).proof for r in warm.records if metadata(r).kernel == "warm"} == {"equal"}
    (only,) = {record.scores["val"].hex() for record in warm.records}
    assert only != seeded.random().hex(), "the import has drawn after the seed"


@pytest.mark.usefixtures("started_kernels_here")
def test_each_forked_trial_gets_its_own_folder_from_a_module_that_creates_one_at_import(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Examples: a folder of a project's module, and a folder that a library removes at exit."""
    installed = tmp_path / "site-packages"
    installed.mkdir()
    (installed / "scratch.py").write_text(
        "import atexit, shutil, tempfile\n"
        "FOLDER = tempfile.mkdtemp()\natexit.register(shutil.rmtree, FOLDER)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(installed), prepend=os.pathsep)
    (tmp_path / "cfg.py").write_text(
        "import uuid\nfrom pathlib import Path\n"
        "OUT = Path('runs') / uuid.uuid4().hex\nOUT.mkdir(parents=True)\n"
    )
    cells = (
        f"{PAUSE}\nimport cfg, json, os, scratch",
        "best = cfg.OUT / 'best.json'\n"
        "val = max(x, json.loads(best.read_text()) if best.exists() else 0)\n"
        "best.write_text(json.dumps(val))\nval *= os.path.isdir(scratch.FOLDER)",
    )
    result = sweep(tmp_path, *cells, start=[{"x": 1000}], enough=forked(3))
    assert [r.scores["val"] for r in result.records] == [r.params["x"] for r in result.records]
    assert metadata(result.records[-1]).proof == "equal"


#: A cell that completes in the first kernel that is forked after the shared cell. In later ones it
#: hangs with two child processes, and writes the ids of all these processes to a file.
HANGS = """
import json, multiprocessing, os, subprocess, time
from pathlib import Path

def parent_of(pid):
    return int(Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2].split()[1])

try:
    pids = shared, zygote = os.getppid(), parent_of(os.getppid())
    is_shared = all('zygote/__main__' in Path(f'/proc/{p}/cmdline').read_text() for p in pids)
except OSError:  # they have just been killed, and so will this kernel be
    time.sleep(600)
if is_shared:
    if not Path('forked').exists():
        Path('forked').touch()
    else:
        child = multiprocessing.get_context('fork').Process(target=time.sleep, args=[600])
        child.start()
        children = [subprocess.Popen(['sleep', '600']).pid, child.pid]
        numbers = dict(kernel=os.getpid(), shared=shared, zygote=zygote, children=children)
        part = Path(f'hangs.{os.getpid()}.part')
        part.write_text(json.dumps(numbers))
        part.rename(part.stem)
        time.sleep(600)
val = x
"""


@pytest.mark.parametrize("victim", ["sweep", "zygote", "shared"])
def test_after_a_kill_no_child_process_survives_and_notebooks_have_the_right_state(
    victim: str, tmp_path: Path
) -> None:
    settings = "study: {trials: 40, sampler: random}\nkernels: fork"
    files = project(PAUSE, HANGS, settings=settings, folder=tmp_path, shared=1)
    with open(os.devnull, "w") as nowhere:
        sweeping = Command(
            *files, "-j", "1", cwd=tmp_path, stdout=nowhere, stderr=subprocess.STDOUT
        )
    try:
        hanging = until(lambda: [json.loads(p.read_text()) for p in tmp_path.glob("hangs.*[0-9]")])
        pids = {"sweep": sweeping.pid, **hanging[0]}
        os.kill(pids[victim], signal.SIGKILL)
        gone = [hanging[0]["kernel"], *hanging[0]["children"]]
        until(lambda: not {*gone} & {one.pid for one in processes_in(tmp_path)})
    finally:
        sweeping.send_signal(signal.SIGTERM)
        sweeping.wait()
    until(lambda: not processes_in(tmp_path), "a process is left")
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
        assert "running" in states, "no process could write another state"
    else:
        assert set(states) <= {"completed", "stopped"}, "trials whose kernel dies run again"
