"""One trial runs in a real kernel and ends in every possible way. Its notebook shows how."""

from __future__ import annotations

import datetime
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import nbformat
import psutil
import pytest
from gpu_drivers import StatedDriver
from hanging_disks import hanging_disk
from kernels_alone import hasten_ends, install_kernel
from studies import PATIENCE_S, small_settings, until, workload_of

from sweeper.execution.learned_sources import LearnedSources
from sweeper.execution.second_run import is_no_kernel
from sweeper.execution.site import Site
from sweeper.execution.worker import Worker
from sweeper.guard import Guard, marked_processes
from sweeper.kernels import KernelPool, KernelSetup
from sweeper.machine.claims import Claims
from sweeper.machine.place import Place
from sweeper.machine.places import Places
from sweeper.notebook_api.messages import REPORTS_VARIABLE, Point, StopReason
from sweeper.notebooks.metadata import metadata_of
from sweeper.notebooks.reading import read_notebook
from sweeper.notebooks.scores import scrape
from sweeper.study_folder.patience import Patience, is_of_the_machine
from sweeper.testing import trial_spec, write_notebook
from sweeper.trials import (
    Notice,
    Points,
    Reason,
    RunningTrial,
    TrialOutcome,
    TrialState,
    attempt_path,
)

pytestmark = pytest.mark.kernel

REPORT = "import sweeper\nsweeper.report(0, val=x)"


class Bench:
    """Runs notebooks, given by the source of their cells, as trials of one sweep."""

    def __init__(self, folder: Path, runtime_folder: Path) -> None:
        self.folder = folder
        self.runtime_folder = runtime_folder
        self.token = runtime_folder.name
        self.places: Places | None = None
        self.points: list[tuple[float, Point]] = []

    def run(
        self,
        *cells: str,
        parameters: str = "x = 1.0",
        params: dict[str, Any] | None = None,
        on_point: Callable[[RunningTrial, Point], None] | None = None,
        kernel: str = "python3",
        running: RunningTrial | None = None,
        number: int = 0,
        attempt: int = 1,
        notebook: Path | None = None,
        **settings: Any,
    ) -> tuple[TrialOutcome, Any]:
        """Run one trial, and return its outcome and its executed notebook."""
        notebook = notebook or write_notebook(
            self.folder / "nb.ipynb", *cells, parameters=parameters
        )
        workload = replace(workload_of(notebook, **settings), kernel_name=kernel)
        places = self.places or Places(resources=workload.settings.resources)
        setup = KernelSetup(
            name=kernel,
            env={**os.environ, **places.env},
            cwd=notebook.parent,
            runtime_folder=self.runtime_folder,
            token=self.token,
            random_seed=0,
        )
        pool = KernelPool(setup, kernels="cold")
        kernel_patience = Patience("the kernels", may_pass=is_no_kernel)
        kernel_patience.limit_s = lambda: 0.5
        site = Site(
            workload=workload,
            places=places,
            pool=pool,
            patience=Patience("the outputs", may_pass=is_of_the_machine),
            kernel_patience=kernel_patience,
            folder=self.runtime_folder,
            sources=LearnedSources(settings=workload.settings),
        )
        executed = self.folder / "out" / f"{number:04d}.ipynb"
        spec = trial_spec(
            number,
            params={"x": 2.0} if params is None else params,
            seed=77,
            attempt=attempt,
            continues=attempt_path(executed, attempt - 1) if attempt > 1 else None,
            notebook=executed,
            checkpoint_dir=self.folder / "checkpoints",
            artifact_dir=self.folder / "artifacts",
        )

        def remember(point: Point) -> None:
            self.points.append((time.monotonic(), point))
            if on_point is not None:
                on_point(used, point)

        used = running or RunningTrial(Points(remember))
        outcome = Worker(site).run_trial(spec, used)
        pool.close()
        file = spec.notebook
        return outcome, (read_notebook(file) if file.exists() else None)


def one_gpu(folder: Path) -> Places:
    """Return the resources of a machine with one GPU.

    A trial has the GPU for itself until its memory need is known.
    """
    driver = StatedDriver("GPU-a")
    return Places(driver.gpus, driver=driver, claims=Claims(folder / "claims"))


def share(places: Places) -> AbstractContextManager[Place]:
    """Return a context manager in which another trial has memory and the GPU."""
    return places.lease(trial_spec(), RunningTrial())


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    runtime_folder = Path(tempfile.mkdtemp(prefix="sweep-", dir="/tmp"))
    guard = Guard(token=runtime_folder.name, folder=runtime_folder)
    yield Bench(tmp_path, runtime_folder)
    guard.close()
    assert not runtime_folder.exists()
    assert not marked_processes(runtime_folder.name)


def test_no_kernel_starts_in_a_private_folder_that_another_user_may_have_made(
    bench: Bench,
) -> None:
    bench.runtime_folder.chmod(0o777)
    outcome, _ = bench.run("val = x")
    assert (outcome.state, outcome.reason) == (TrialState.STOPPED, Reason.KERNEL_START)
    assert f"{bench.runtime_folder} must be a folder that only you can enter" in outcome.message
    assert list(bench.runtime_folder.iterdir()) == []


def statuses(node: Any) -> list[str]:
    return [cell.metadata.papermill.status for cell in node.cells]


def printed(node: Any) -> str:
    streams = (o for cell in node.cells for o in cell.outputs if o.output_type == "stream")
    return "".join(o.text for o in streams)


def test_a_reporting_trial_completes_and_its_executed_notebook_has_state_params_and_scores(
    bench: Bench,
) -> None:
    outcome, node = bench.run(
        "import sweeper\nfor i in range(4): sweeper.report(i, val=x / 3 + i, loss=1 / (i + 1))",
        "sweeper.score(extra=0.1 + 0.2)",
    )
    assert outcome.state is TrialState.COMPLETED
    assert outcome.scores == {"val": 2.0 / 3 + 3, "loss": 0.25, "extra": 0.1 + 0.2}
    assert outcome.series["val"] == [(i, 2.0 / 3 + i) for i in range(4)]
    nbformat.validate(node)
    metadata = node.metadata["sweeper"]
    assert (metadata["state"], metadata["run_id"], metadata["params"]) == (
        "completed",
        "0000",
        {"x": 2.0},
    )
    assert statuses(node) == ["completed"] * 4
    assert node.metadata["language_info"]["name"] == "python"
    stated = metadata_of(node)
    assert stated is not None
    again = scrape(node.cells, stated, sources={}, objectives=small_settings("bench").objective)
    assert again.scores == dict(outcome.scores)
    displays = [o for cell in node.cells for o in cell.outputs if o.output_type == "display_data"]
    assert len(displays) == 2, "one display for each cell that reports, however often it does"


def test_params_seed_and_run_id_are_injected_and_returned_by_sweeper_trial(bench: Bench) -> None:
    outcome, node = bench.run(
        "import sweeper; t = sweeper.trial()",
        "t.checkpoint_dir.joinpath('a').write_text('b')",
        "print([x, seed, run_id, t.number, t.run_id, dict(t.params), t.seed, t.attempt])\nval = x",
        parameters="x = 1.0\nseed = 0\nrun_id = ''",
        number=12,
    )
    assert outcome.state is TrialState.COMPLETED
    assert "[2.0, 77, '0012', 12, '0012', {'x': 2.0}, 77, 1]" in printed(node)
    assert (bench.folder / "checkpoints" / "a").read_text() == "b"
    injected = node.cells[1]
    assert injected.metadata.tags == ["injected-parameters"]
    assert "x = 2.0" in injected.source


def test_a_begun_trial_keeps_the_value_of_a_param_that_was_fixed_later_and_gets_a_fresh_kernel(
    bench: Bench,
) -> None:
    outcome, _ = bench.run(REPORT, space={"y": [1]}, fixed={"x": 5.0}, params={"x": 2.0})
    assert outcome.scores == {"val": 2.0}
    assert outcome.kernel is not None
    assert outcome.kernel.reason == "the trial began with another value of x"


@pytest.mark.parametrize("name", ["000001.ckpt", "last.ckpt"])
def test_artifacts_are_kept_for_an_attempt_that_resumes_from_a_checkpoint_and_else_removed(
    bench: Bench, name: str
) -> None:
    cells = (
        "import sweeper\nfound = sorted(p.name for p in sweeper.trial().artifact_dir.iterdir())",
        "open('model.pt', 'w').write('weights')\nsweeper.save_artifact('model.pt', f'{x}.pt')",
        "print(found)\nval = x",
    )
    _, node = bench.run(*cells, params={"x": 1.0})
    saved = node.metadata.sweeper.artifacts
    assert (list(saved), saved["1.0.pt"].size_bytes) == (["1.0.pt"], 7)
    (bench.folder / "checkpoints").mkdir()
    (bench.folder / "checkpoints" / name).write_text("state")
    _, node = bench.run(*cells, attempt=2)  # this attempt resumes from a checkpoint
    assert "['1.0.pt']" in printed(node)
    assert list(node.metadata.sweeper.artifacts) == ["1.0.pt", "2.0.pt"]
    (bench.folder / "checkpoints" / name).unlink()
    _, node = bench.run(*cells, attempt=3)
    assert "[]" in printed(node)
    assert list(node.metadata.sweeper.artifacts) == ["2.0.pt"]


def test_a_failing_cell_fails_the_trial_and_the_cells_after_it_never_ran(bench: Bench) -> None:
    outcome, node = bench.run(REPORT, "raise ValueError('too big')", "print('later')")
    assert (outcome.state, outcome.reason) == (TrialState.FAILED, Reason.CELL_ERROR)
    assert outcome.message.startswith("In [4]: ValueError: too big; val had a value before this")
    assert statuses(node) == ["completed", "completed", "completed", "failed", "pending"]
    assert node.cells[3].outputs[0].ename == "ValueError"
    assert node.metadata["sweeper"]["state"] == "failed"
    assert node.metadata["papermill"]["exception"] is True
    lost = "class Lost:\n    def _repr_html_(self): raise OSError('gone')\nLost()"
    outcome, _ = bench.run(REPORT, lost, number=1)
    assert outcome.message.startswith("In [4]: OSError: gone")


def test_a_killed_kernel_fails_the_trial_and_its_outputs_are_kept(bench: Bench) -> None:
    outcome, node = bench.run(
        REPORT,
        "print('so far', flush=True)\nimport os, signal, time; time.sleep(0.5)\n"
        "os.kill(os.getpid(), signal.SIGKILL)",
        "print('later')",
    )
    assert (outcome.state, outcome.reason) == (TrialState.FAILED, Reason.KERNEL_DIED)
    assert "signal 9" in outcome.message
    assert statuses(node)[3:] == ["failed", "pending"]
    assert "so far" in printed(node)
    assert node.metadata["sweeper"]["exit_code"] == -9


def test_a_trial_whose_kernel_is_killed_shortly_before_its_sweep_stops_counts_as_stopped(
    bench: Bench,
) -> None:
    def stop_soon(running: RunningTrial, _: Point) -> None:
        threading.Timer(0.5, running.control.stop, args=[StopReason.INTERRUPTED]).start()

    outcome, node = bench.run(
        REPORT, "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)", on_point=stop_soon
    )
    assert (outcome.state, outcome.reason) == (TrialState.STOPPED, Reason.INTERRUPTED)
    assert node.metadata["sweeper"]["state"] == "stopped"


def test_exit_completes_a_notebook_but_an_exit_with_an_error_code_fails_the_trial(
    bench: Bench,
) -> None:
    outcome, node = bench.run(REPORT, "import sys\nsys.exit()", "raise ValueError('never run')")
    assert outcome.state is TrialState.COMPLETED
    assert statuses(node)[3:] == ["completed", "pending"]
    outcome, node = bench.run(REPORT, "exit()", "raise ValueError('never run')", number=3)
    assert outcome.state is TrialState.COMPLETED
    assert statuses(node)[3:] == ["completed", "pending"]
    outcome, _ = bench.run(REPORT, "import sys\nsys.exit(3)", number=1)
    assert outcome.state is TrialState.FAILED
    assert outcome.message.startswith("In [4]: SystemExit: 3")
    parsing = "import argparse\nparser = argparse.ArgumentParser()\nparser.parse_args()"
    outcome, _ = bench.run(parsing, number=2)
    assert outcome.message.startswith("In [3]: SystemExit: 2; argparse has read the arguments of")
    assert outcome.message.endswith("write parse_args([]) in the notebook")


def test_reported_points_are_kept_if_the_cell_clears_its_output(bench: Bench) -> None:
    outcome, _ = bench.run(
        "import sweeper\nfrom IPython.display import clear_output\n"
        "for i in range(3):\n    sweeper.report(i, val=x + i)\n    clear_output(wait=True)\n"
        "print('clean')"
    )
    assert outcome.series["val"] == [(0, 2.0), (1, 3.0), (2, 4.0)]


def test_a_stop_reaches_a_running_cell_and_its_finally_blocks_run(bench: Bench) -> None:
    started = time.monotonic()
    outcome, node = bench.run(
        "import sweeper, time\ntry:\n    sweeper.report(0, val=x)\n    time.sleep(60)\n"
        "finally:\n    print('tidied')",
        "print('later')",
        on_point=lambda running, _: running.control.stop(StopReason.INTERRUPTED),
    )
    assert (outcome.state, outcome.reason) == (TrialState.STOPPED, Reason.INTERRUPTED)
    assert "tidied" in printed(node)
    assert statuses(node)[2:] == ["stopped", "pending"]
    assert time.monotonic() - started < 20


def test_after_a_stop_the_next_report_raises_and_finally_blocks_are_not_interrupted(
    bench: Bench,
) -> None:
    outcome, node = bench.run(
        "import itertools, sweeper, time\ntry:\n    for step in itertools.count():\n"
        "        sweeper.report(step, val=x)\n        time.sleep(0.01)\n"
        "except (sweeper.TrialPruned, sweeper.TrialStopped) as stop:\n    print('got', stop)\n"
        "    raise\nfinally:\n    time.sleep(1.5)\n    print('tidied')",
        on_point=lambda running, _: running.control.stop(StopReason.PRUNED, "hopeless"),
    )
    assert outcome.state is TrialState.PRUNED
    assert printed(node) == "got hopeless\ntidied\n\n[sweeper: hopeless]\n"
    assert statuses(node)[-1] == "stopped"
    assert not [output for output in node.cells[-1].outputs if output.output_type == "error"]


def test_a_notebook_that_catches_the_stop_and_continues_is_interrupted(bench: Bench) -> None:
    started = time.monotonic()
    outcome, node = bench.run(
        "import itertools, sweeper, time\nfor step in itertools.count():\n    try:\n"
        "        sweeper.report(step, val=x)\n    except Exception:\n"
        "        print('caught')\n    time.sleep(0.01)",
        on_point=lambda running, _: running.control.stop(StopReason.PRUNED),
    )
    assert outcome.state is TrialState.PRUNED
    assert "caught" in printed(node)
    assert time.monotonic() - started < 10


#: A cell that limits the kernel's memory to 512 MB more than it uses. The next cell needs 2 GB.
TAKE_TOO_MUCH = """
import resource
taken = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (taken + 2**29, resource.RLIM_INFINITY))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_a_trial_whose_kernel_gets_no_more_memory_fails_as_out_of_host_memory(
    bench: Bench,
) -> None:
    outcome, _ = bench.run(TAKE_TOO_MUCH, "hold = bytearray(2 * 10**9)", REPORT)
    assert (outcome.state, outcome.reason) == (TrialState.FAILED, Reason.OUT_OF_HOST_MEMORY)
    assert outcome.is_infeasible, "the trial was alone on the machine"
    assert outcome.message.startswith("does not fit into this machine's memory")


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_the_system_kills_a_kernel_and_its_children_before_the_sweep_if_memory_runs_out(
    bench: Bench,
) -> None:
    own = int(Path("/proc/self/oom_score_adj").read_text())
    read = "cat /proc/self/oom_score_adj"
    cell = f"import subprocess\nval = float(subprocess.check_output({read.split()!r}))"
    outcome, _ = bench.run(cell)
    assert outcome.scores["val"] == min(1000, own + 200)


SWALLOWS = """
import sweeper, time
sweeper.report(0, val=x)
while True:
    try:
        time.sleep(60)
    except KeyboardInterrupt:
        print("no")
"""
#: A cell that acquires a lock twice in C code while it holds the GIL. It waits forever, and Python
#: cannot handle an interrupt meanwhile.
HOLDS_IN_C = """
import ctypes, sweeper
lock, name = ctypes.create_string_buffer(256), "pthread_mutex_lock"
sweeper.report(0, val=x)
ctypes.PyDLL(None)[name](lock) or ctypes.PyDLL(None)[name](lock)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="a lock that is all zeros is free on Linux")
@pytest.mark.parametrize("cell", [SWALLOWS, HOLDS_IN_C])
def test_a_kernel_whose_cell_ignores_interrupts_is_killed_in_the_end(
    bench: Bench, cell: str
) -> None:
    outcome, node = bench.run(
        cell,
        "print('later')",
        on_point=lambda running, _: running.control.stop(StopReason.PRUNED, "hopeless"),
    )
    assert (outcome.state, outcome.message) == (TrialState.PRUNED, "hopeless")
    assert statuses(node)[2:] == ["stopped", "pending"]


def test_operations_that_are_not_replicable_are_named_in_the_outcome_and_the_notebook(
    bench: Bench,
) -> None:
    outcome, node = bench.run(
        "import sweeper, torch\nsweeper.seed_everything(7)",
        "torch.zeros(3).put_(torch.tensor([0, 1]), torch.ones(2))\nval = x",
    )
    assert outcome.notices == {Notice.NOT_REPLICABLE: ("put_",)}
    assert node.metadata["sweeper"]["notices"] == {"not_replicable": ["put_"]}
    assert str(node).count("put_ does not have a deterministic implementation") == 1


def test_files_next_to_the_notebook_that_a_trial_overwrites_are_named_in_its_outcome(
    bench: Bench,
) -> None:
    cells = "import torch\ntorch.save(x, 'best.pt')\nopen(f'{x}.txt', 'w').close()\nval = x"
    # The first trial creates best.pt, so it overwrites nothing.
    assert bench.run(cells)[0].notices == {}
    outcome, _ = bench.run(cells, number=1)
    assert outcome.notices == {Notice.OVERWRITTEN_FILES: ("best.pt",)}


def test_a_kernel_that_survives_sigkill_is_abandoned_and_its_gpu_is_no_longer_used(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    hasten_ends(monkeypatch)
    bench.places = one_gpu(bench.folder)
    limits = {"trial": "4s", "grace": "2s"}  # long enough for the kernel to begin reading the disk
    with hanging_disk(bench.folder / "disk") as disk:
        outcome, _ = bench.run(f"open('{disk}/data')", limits=limits)
        assert outcome.reason is Reason.TIME_LIMIT
        (line,) = [it for it in caplog.messages if "has not ended after SIGKILL" in it]
        pid = int(line.partition("process ")[2].split()[0])
        assert psutil.Process(pid).status() == psutil.STATUS_DISK_SLEEP
        outcome, _ = bench.run(REPORT, number=1)
        assert outcome.reason is Reason.NO_GPU


def test_a_kernel_runs_its_exit_handlers_and_ends_within_seconds_with_all_its_child_processes(
    bench: Bench,
) -> None:
    started = time.monotonic()
    outcome, node = bench.run(
        REPORT,
        "import atexit\natexit.register(lambda: open('ended', 'w').write('yes'))",
        "import multiprocessing, time\nchildren = [multiprocessing.get_context('fork').Process("
        "target=time.sleep, args=[600], daemon=True) for _ in range(3)]\n"
        "for child in children: child.start()",
        "import subprocess\nchild = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
        "print(child.pid)",
    )
    waited_s = time.monotonic() - started - outcome.duration_s
    assert waited_s < 12, "the kernel waited for children that had ended"
    assert (bench.folder / "ended").read_text() == "yes"
    pid = int(printed(node).strip())
    # The process is dead. In a container without an init process it may remain as a zombie.
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


@pytest.mark.parametrize(
    ("prints", "is_removed"),
    [
        ("print('y' * 10_000)", False),
        ("clear_output(wait=True); print('y' * 10_000)", True),
        ("print('y' * 10_000, end='\\r', flush=True); sleep(0.01)", True),
    ],
)
def test_output_beyond_the_limit_is_cut_with_a_notice_unless_the_cell_clears_or_overwrites_it(
    bench: Bench, prints: str, is_removed: bool
) -> None:
    outcome, node = bench.run(
        REPORT,
        "from time import sleep\nfrom IPython.display import clear_output\n"
        f"for i in range(100):\n    {prints}\nprint('last of the cell')",
        "print('end')",
        limits={"cell_output": "100kB"},
    )
    assert outcome.state is TrialState.COMPLETED
    text = printed(node)
    assert len(text) < 200_000
    assert text.count("limits.cell_output") == (0 if is_removed else 1)
    assert ("exceeds 100,000 bytes" in text) is not is_removed
    assert ("last of the cell" in text) is is_removed
    assert text.endswith("end\n")


def test_the_limit_of_a_cells_output_holds_for_all_kinds_of_outputs(bench: Bench) -> None:
    outcome, node = bench.run(
        REPORT,
        "from IPython.display import display\n"
        "small = display('a', display_id=True)\n"
        "for i in range(20):\n    small.update('b' * 60_000 + str(i))",
        "large = display('c', display_id=True)\n"
        "for i in range(20):\n    large.update('d' * 20_000 * i)",
        "display({'application/json': [0.5] * 100_000}, raw=True)",
        "small.update('e' * 200_000)",
        "get_ipython().showtraceback((ValueError, ValueError('f' * 200_000), None))\n"
        "raise ValueError('first' + 'g' * 400_000 + 'last')",
        limits={"cell_output": "100kB"},
    )
    assert (outcome.state, outcome.reason) == (TrialState.FAILED, Reason.CELL_ERROR)
    assert "glast" in outcome.message
    assert len(nbformat.writes(node)) < 300_000
    cells = node.cells[-5:]
    assert cells[0].outputs[0].data["text/plain"].strip("'") == "b" * 60_000 + "19", (
        "each update is below the limit"
    )
    for cell in cells[1:]:
        text = "".join(it.text for it in cell.outputs if it.output_type == "stream")
        assert text.count("limits.cell_output") == 1
    (error,) = [it for it in cells[4].outputs if it.output_type == "error"]
    assert error.evalue.startswith("first")
    assert "ValueError" in error.traceback[0]


@pytest.mark.parametrize("damage", ["removed", "a file for a while", "open to others"])
def test_a_trial_completes_even_if_the_private_folder_is_missing_or_open_to_others(
    bench: Bench, damage: str
) -> None:
    folder = bench.runtime_folder
    if damage == "open to others":
        folder.chmod(0o755)
    else:
        shutil.rmtree(folder)
    if damage == "a file for a while":
        folder.write_text("in the way")
        threading.Timer(0.3, folder.unlink).start()
    outcome, _ = bench.run("val = x")
    assert outcome.state is TrialState.COMPLETED, outcome.message
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_trial_whose_kernel_cannot_start_is_stopped_and_its_message_quotes_the_stderr(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    argv = [sys.executable, "-c", "import sys; sys.exit('no such library')"]
    install_kernel(bench.folder, monkeypatch, "broken", argv)
    outcome, node = bench.run(REPORT, kernel="broken")
    assert (outcome.state, outcome.reason) == (TrialState.STOPPED, Reason.KERNEL_START)
    assert "no such library" in outcome.message
    assert set(statuses(node)) == {"pending"}


@pytest.mark.parametrize(
    "fault",
    [
        "os.kill(os.getpid(), signal.SIGKILL)",
        "shutil.rmtree(pathlib.Path(sys.argv[-1]).parents[1])",
    ],
    ids=["it dies", "its folder is removed"],
)
def test_a_kernel_that_is_lost_before_its_first_answer_is_started_anew_at_once(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    code = (
        "import os, pathlib, shutil, signal, sys, time\n"
        "first = pathlib.Path('faulted')\n"
        "if not first.exists():\n"
        f"    first.touch(); {fault}; time.sleep(600)\n"
        "from ipykernel.kernelapp import launch_new_instance as launch\n"
        "launch()"
    )
    argv = [sys.executable, "-c", code, "-f", "{connection_file}"]
    install_kernel(bench.folder, monkeypatch, "shaky", argv)
    began_s = time.monotonic()
    outcome, node = bench.run(REPORT, kernel="shaky")
    assert time.monotonic() - began_s < 60
    assert (bench.folder / "faulted").exists()
    assert outcome.state is TrialState.COMPLETED, outcome.message
    assert set(statuses(node)) == {"completed"}


def test_a_trial_stopped_at_the_moment_when_its_kernel_dies_has_not_failed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    class StoppedMeanwhile(Places):
        def ran_short(self, place: Place) -> bool:
            place.running.control.stop(StopReason.INTERRUPTED)
            return super().ran_short(place)

    bench.places = StoppedMeanwhile()
    argv = [sys.executable, "-c", "raise SystemExit", "{connection_file}"]
    install_kernel(bench.folder, monkeypatch, "brief", argv)
    outcome, node = bench.run(REPORT, kernel="brief")
    assert outcome.state is TrialState.STOPPED
    assert node.metadata.sweeper.state == "stopped"


def test_a_trial_whose_kernels_folder_is_removed_can_still_be_stopped(bench: Bench) -> None:
    def stop_without_folder(running: RunningTrial, _: Point) -> None:
        until(lambda: not list(bench.runtime_folder.glob("k*")))
        running.control.stop(StopReason.INTERRUPTED)

    outcome, node = bench.run(
        "import os, pathlib, shutil, time, sweeper\nsweeper.report(0, val=x)\n"
        f"shutil.rmtree(pathlib.Path(os.environ['{REPORTS_VARIABLE}']).parent)\n"
        "time.sleep(60)",
        on_point=stop_without_folder,
    )
    assert outcome.state is TrialState.STOPPED
    assert statuses(node)[-1] == "stopped"


def test_a_file_that_the_study_did_not_write_is_never_overwritten(bench: Bench) -> None:
    (bench.folder / "out").mkdir()
    theirs = write_notebook(bench.folder / "out" / "0000.ipynb", "1 + 1")
    before = theirs.read_bytes()
    outcome, _ = bench.run(REPORT)
    assert (outcome.state, outcome.reason) == (TrialState.FAILED, Reason.FILE)
    assert theirs.read_bytes() == before


def test_a_trial_whose_notebook_cannot_be_written_releases_its_gpu(bench: Bench) -> None:
    bench.places = places = one_gpu(bench.folder)
    (bench.folder / "out").write_text("a file where the folder should be")
    outcome, _ = bench.run(REPORT)
    assert (outcome.state, outcome.reason) == (TrialState.STOPPED, Reason.FILE)
    leased = threading.Event()

    def lease() -> None:
        with share(places):
            leased.set()

    threading.Thread(target=lease, daemon=True).start()
    assert leased.wait(PATIENCE_S)


def test_the_duration_and_the_time_limit_of_a_trial_begin_when_it_has_its_gpu(bench: Bench) -> None:
    bench.places = one_gpu(bench.folder)
    elsewhere = ExitStack()
    elsewhere.enter_context(share(bench.places))
    freed = threading.Timer(1.5, elsewhere.close)
    began_s, began_at = time.monotonic(), datetime.datetime.now(datetime.UTC)
    freed.start()
    outcome, node = bench.run("while True: pass", limits={"trial": "1s"})
    took_s = time.monotonic() - began_s
    assert (outcome.state, outcome.reason) == (TrialState.FAILED, Reason.TIME_LIMIT)
    assert "limits.trial (1 s)" in outcome.message
    assert took_s >= 1.5 + 1, "the limit ran while the trial waited"
    assert 1 <= outcome.duration_s <= took_s - 1, "the wait counts as running"
    metadata = node.metadata["sweeper"]
    assert metadata["duration_s"] <= took_s - 1
    started_at = datetime.datetime.fromisoformat(metadata["started_at"])
    assert (started_at - began_at).total_seconds() >= 1.4


def test_a_stop_ends_a_trial_that_waits_for_a_gpu_at_once(bench: Bench) -> None:
    bench.places = one_gpu(bench.folder)
    running = RunningTrial()
    threading.Timer(
        0.3, running.control.stop, args=[StopReason.BY_HAND, "stopped by a person"]
    ).start()
    with share(bench.places):
        outcome, node = bench.run(REPORT, running=running)
    assert (outcome.state, outcome.reason) == (TrialState.STOPPED, Reason.BY_HAND)
    assert outcome.message == "stopped by a person"
    assert not any(cell.get("execution_count") for cell in node.cells), "a cell has run"
    assert node.metadata["sweeper"]["state"] == "stopped"


#: A cell that sends what the widget `ipywidgets.Output` sends: its model, and the id of the request
#: whose output it captures.
CATCHING = """
from comm import create_comm
def catch(text):
    kernel = get_ipython().kernel
    caught = create_comm(target_name="jupyter.widget", data={"state": {
        "_model_module": "@jupyter-widgets/output", "_model_name": "OutputModel", "outputs": []}})
    for request in (kernel.get_parent()["header"]["msg_id"], ""):
        caught.send({"method": "update", "state": {"msg_id": request}})
        if request:
            print(text, flush=True)
"""


def test_output_captured_by_a_widget_never_blocks_a_trial(bench: Bench) -> None:
    cells = [CATCHING, *["catch('caught')"] * 60, "val = x"]
    outcome, node = bench.run(*cells, limits={"trial": "120s"})
    assert outcome.state is TrialState.COMPLETED
    assert all(not cell.outputs for cell in node.cells), "the widgets have captured the output"
