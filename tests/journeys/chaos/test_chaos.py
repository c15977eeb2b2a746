"""Test that sweeps which are disturbed at random moments have the results of undisturbed ones.

    uv run tests/journeys/chaos/test_chaos.py --blows 300

is the long form; a short one is part of the tests. Each blow is one disturbance:

- It kills a process: the sweep, alone or together with its guard (which ends the kernels of a dead
  sweep), the zygote (the process from which kernels are forked), a kernel, a frozen kernel (paused
  by SIGSTOP), the process that writes to MLflow, or a scheduler or worker of Dask.
- It makes something unavailable for some seconds: it locks the storage, fills the disk, makes a
  folder read-only, restarts a server, or removes the folder for temporary files.
- It removes something: checkpoints, MLflow's artifacts, the sweep's private folder, or the whole
  machine, so that only a remote copy remains.

Whatever has ended the sweep, the same command resumes it. Blows that need a mounted disk or
PostgreSQL are left out on machines without them.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import nbformat
import psutil
import pytest

# For the call without pytest, which would add this folder by itself.
sys.path.append(str(Path(__file__).parents[2] / "helpers"))

from commands import Command
from dask_clusters import OwnCluster
from kernel_boots import STARTS
from postgres_servers import PostgresServer, started_postgres
from s3_server import S3Server, started_s3
from small_disks import small_disk
from studies import kernels_in, mlflow_runs, sweep_of, until

from sweeper.guard import mark_of
from sweeper.testing import write_notebook
from sweeper.trials import RunningTrial, TrialOutcome, TrialSpec, TrialState

#: The first cell uses no swept name, so it can run once for all trials, and kernels can be forked
#: after it. The second cell works for about a second, and saves checkpoints.
CELLS = (
    "import math, time, sweeper\nTABLE = [math.sin(i) for i in range(10_000)]",
    """
saved = sweeper.load_checkpoint() or {"step": -1}
for step in range(saved["step"] + 1, 5):
    time.sleep(0.15)
    sweeper.report(step, val=TABLE[int(x * 9999)] + step)
    try:
        sweeper.save_checkpoint(step=step)
    except OSError as error:
        if error.errno not in (28, 30):  # no space left, or read-only
            raise
""",
    "sweeper.score(val=TABLE[int(x * 9999)] * 7, seed=sweeper.trial().seed)",
)
#: Cells for trials that can be frozen: each approaches its score step by step.
CURVES = (
    *CELLS[:1],
    """
for step in range(12):
    time.sleep(0.15)
    sweeper.report(step, val=TABLE[int(x * 9999)] * 7 * (1 - math.exp(-(step + 1) / 3)))
""",
    *CELLS[2:],
)
PARAMETERS = """
objective: {val: maximize}
space:
  x: {low: 0.0, high: 1.0}
study: {sampler: random}
"""
#: Interval of the remote copy in seconds. After three intervals without a copy, another machine may
#: resume the study.
COPIED_EVERY_S = 2
JOBS = 4
#: Seconds after the end of a sweep in which its processes and files must be gone, also on workers
#: of Dask.
GONE_S = 60.0


@dataclass(kw_only=True)
class Ground:
    """A folder for one study. The command that sweeps it is called until the study is complete."""

    folder: Path
    chance: random.Random
    trials: int = 16
    has_disk: bool = False
    server: PostgresServer | None = None
    cluster: OwnCluster | None = None
    store: S3Server | None = None
    can_freeze: bool = False
    only: Sequence[str] = ()
    blows: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.temporary.mkdir()

    @property
    def out(self) -> Path:
        """The folder of the outputs, on a separate disk if this is possible."""
        return self.folder / "out"

    @property
    def temporary(self) -> Path:
        """The folder for temporary files of the sweep."""
        return self.folder / "tmp"

    def write_inputs(self) -> None:
        """Write the notebook and its parameters file."""
        cells = CURVES if self.can_freeze else CELLS
        write_notebook(self.folder / "nb.ipynb", *cells, parameters="x = 0.5")
        lines = [PARAMETERS]
        if self.can_freeze:
            lines = [PARAMETERS.replace("random", "random, pruner: auto"), "kernels: fork"]
        if self.store is not None:
            every = f"{COPIED_EVERY_S}s"
            lines.append(f"sync: {{url: {self.store.bucket}/{self.folder.name}, every: {every}}}")
        (self.folder / "nb.yml").write_text("\n".join(lines))

    def call(self) -> Command:
        """Start the sweep's command, which has the same arguments in each call."""
        storage = [] if self.server is None else ["--storage", self.server.url]
        cluster = [] if self.cluster is None else ["--cluster", self.cluster.url]
        arguments = [
            *("-i", "nb.ipynb", "-p", "nb.yml", "-o", "out/{run_id}.ipynb", "-j", str(JOBS)),
            *("--json", "--trials", str(self.trials), *storage, *cluster),
        ]
        env = {**os.environ, STARTS: "1", "TMPDIR": str(self.temporary)}
        env |= {} if self.store is None else self.store.env
        with open(self.folder / "stderr.txt", "w") as stderr:
            return Command(*arguments, cwd=self.folder, env=env, stderr=stderr)

    def processes(self) -> list[psutil.Process]:
        """Return kernels, processes that fork them, and their children, also on Dask workers."""
        return kernels_in(self.folder)

    def sweep(self, blows: int) -> dict[str, Any]:
        """Call the command until the study is complete. Return the result.

        Args:
            blows: Largest number of blows. After them, the study is completed undisturbed.
        """
        while True:
            sweep, before = self.call(), self.blows.total()
            while sweep.poll() is None and self.blows.total() < blows:
                time.sleep(self.chance.uniform(0.0, 3.0))
                if sweep.poll() is None:
                    self._strike(sweep.pid)
            stdout, _ = sweep.communicate(timeout=300)
            is_calm, complaints = self.blows.total() == before, self.complaints()
            assert not is_calm or sweep.returncode != 2, complaints
            assert "Traceback" not in complaints, complaints
            self.check_nothing_runs()
            self.check_files()
            if sweep.returncode == 0:
                result: dict[str, Any] = json.loads(stdout.splitlines()[-1])
                # The next call of the command writes the trials that MLflow has not accepted in
                # this one.
                is_delivered = "did not reach MLflow" not in complaints
                ended = sum(result["counts"].values()) - result["counts"]["stopped"]
                if ended == self.trials and is_delivered:
                    return result

    def complaints(self) -> str:
        """Return what the last call has printed to stderr."""
        return (self.folder / "stderr.txt").read_text()

    def _strike(self, pid: int) -> None:
        blows = {**BLOWS, **(BLOWS_TO_A_DISK if self.has_disk else {})}
        blows |= BLOWS_TO_A_FILE if self.server is None else BLOWS_TO_A_SERVER
        blows |= BLOWS_TO_THE_FROZEN if self.can_freeze else {}
        blows |= {} if self.cluster is None else BLOWS_TO_A_CLUSTER
        blows |= {} if self.store is None else BLOWS_TO_A_MACHINE
        blows = {name: it for name, it in blows.items() if not self.only or name in self.only}
        if not blows:
            return
        blow = self.chance.choice(list(blows))
        try:
            blows[blow](self, pid)
        except (ProcessLookupError, psutil.Error, IndexError, sqlite3.Error):
            return  # the target of the blow does not exist
        except subprocess.CalledProcessError:
            return  # a file was being written, so the mount failed
        self.blows[blow] += 1

    def await_end(self) -> None:
        """Wait until another trial has ended, at most 20 s."""

        def ended() -> int:
            texts = [path.read_text("utf-8") for path in self.out.glob("*.ipynb")]
            return sum('"state": "completed"' in text for text in texts)

        before, end_s = ended(), time.monotonic() + 20
        while ended() == before and time.monotonic() < end_s:
            time.sleep(0.05)

    def private_folders(self) -> list[Path]:
        """Return the private folders of the sweep, with the sockets of its kernels."""
        return list(self.temporary.glob(f"sweep-{mark_of(self.out / 'nb')}*"))

    def check_nothing_runs(self) -> None:
        """Check that all processes of `processes` end within `GONE_S` (60) seconds."""
        end_s = time.monotonic() + GONE_S
        while (left := self.processes()) and time.monotonic() < end_s:
            time.sleep(0.1)
        assert not left, left

    def check_files(self) -> None:
        """Check that every executed notebook is valid, and that no partly written file is left."""
        for path in self.out.glob("*.ipynb"):
            node = nbformat.reads(path.read_text("utf-8"), as_version=4)
            nbformat.validate(node)
            assert "study_id" in node.metadata["sweeper"]
        assert not list(self.out.glob(".*.part.*"))


def _kill_one(ground: Ground, kind: Callable[[psutil.Process], bool]) -> None:
    chosen = [process for process in ground.processes() if kind(process)]
    ground.chance.choice(chosen).kill()


def _kill_frozen(ground: Ground, pid: int) -> None:
    """Wait at most 20 s for a frozen trial, and kill its kernel."""
    end_s = time.monotonic() + 20
    while not (chosen := list(filter(_stands_still, ground.processes()))):
        if time.monotonic() > end_s or not psutil.pid_exists(pid):
            break
        time.sleep(0.1)
    ground.chance.choice(chosen).kill()


def _kill_with_guard(ground: Ground, pid: int) -> None:
    """Kill the sweep and its guard at once, so that the sweep cannot start another guard."""
    of_this = mark_of(ground.out / "nb")
    guards = [
        process.pid
        for process in psutil.process_iter()
        if any(part.startswith(of_this) for part in _words(process))
    ]
    for each in [pid, *guards]:
        os.kill(each, signal.SIGSTOP)
    for each in [pid, *guards]:
        os.kill(each, signal.SIGKILL)


def _words(process: psutil.Process) -> list[str]:
    """Return the words of a process's command line. Empty if it has just ended."""
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def _stands_still(process: psutil.Process) -> bool:
    with suppress(psutil.Error):  # the process has just ended
        return process.status() == psutil.STATUS_STOPPED
    return False


def _writer(ground: Ground, coordinator: int) -> int:
    """Return the id of the process that writes to MLflow, however it was started."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.pid != coordinator and process.cwd() == str(ground.folder):
                line = " ".join(process.cmdline())
                found += [process.pid] if "commands.py" in line else []
        except psutil.Error:
            continue
    return found[0]


def _is_zygote(process: psutil.Process) -> bool:
    return _is_of_a_zygote(process) and not _is_forked(process)


def _is_of_a_zygote(process: psutil.Process) -> bool:
    return any(part.endswith("zygote/__main__.py") for part in process.cmdline())


def _is_forked(process: psutil.Process) -> bool:
    parent = process.parent()
    return parent is not None and parent.cmdline() == process.cmdline()


def _stop_for_a_while(ground: Ground, pid: int) -> None:
    os.kill(pid, signal.SIGSTOP)
    time.sleep(ground.chance.uniform(0.5, 3.0))
    os.kill(pid, signal.SIGCONT)


def _stop_writer_at_ends(ground: Ground, pid: int) -> None:
    """Suspend the process that writes to MLflow for 20 s at the end of a trial, twice."""
    writer = _writer(ground, pid)
    for _ in range(2):
        ground.await_end()
        if psutil.pid_exists(writer):
            os.kill(writer, signal.SIGSTOP)
            time.sleep(20)
        with suppress(ProcessLookupError):  # the sweep has ended the writer meanwhile
            os.kill(writer, signal.SIGCONT)


def _restart_scheduler(ground: Ground, _: int) -> None:
    assert ground.cluster is not None
    if ground.chance.random() < 0.7:  # otherwise the blow may come before the first trial has begun
        ground.await_end()
    ground.cluster.lose()
    time.sleep(ground.chance.uniform(0.0, 4.0))
    ground.cluster.start()


def _kill_worker(ground: Ground, _: int) -> None:
    """Kill a worker. Another one replaces it, as in a cluster of a batch system."""
    assert ground.cluster is not None
    ground.cluster.lose_worker()


def _lose_machine(ground: Ground, pid: int) -> None:
    """Remove everything except the remote copy, which may lack the last changes."""
    assert ground.store is not None
    is_unavailable = ground.chance.random() < 0.3
    if is_unavailable:
        ground.store.program.send_signal(signal.SIGSTOP)
        time.sleep(25)
        ground.store.program.send_signal(signal.SIGCONT)
        time.sleep(ground.chance.uniform(0.0, 4.0))
    os.kill(pid, signal.SIGKILL)
    ground.check_nothing_runs()
    time.sleep(3 * COPIED_EVERY_S + 1)
    # The process that writes to MLflow may end a moment later and still write.
    while left := list(ground.out.iterdir()):
        for path in left:
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


def _lock_storage(ground: Ground, _: int) -> None:
    with closing(sqlite3.connect(ground.out / "nb" / "study.db", timeout=5)) as storage:
        storage.execute("BEGIN IMMEDIATE")
        time.sleep(ground.chance.uniform(1.0, 5.0))
        storage.rollback()


def _restart(ground: Ground, _: int) -> None:
    assert ground.server is not None
    ground.server.stop(clean=ground.chance.random() < 0.5)
    time.sleep(ground.chance.uniform(0.0, 4.0))
    ground.server.start()


def _remove(*folders: Path) -> None:
    for folder in folders:
        # Other processes may write to the folder meanwhile.
        shutil.rmtree(folder, ignore_errors=True)


def _take_temporary(ground: Ground, _: int) -> None:
    """Remove the folder for temporary files, or replace it by a file. Then make it again."""
    shutil.rmtree(ground.temporary, ignore_errors=True)
    if ground.temporary.exists():  # a process was writing there, so the folder is not empty
        return
    if ground.chance.random() < 0.5:
        ground.temporary.touch()
    time.sleep(ground.chance.uniform(0.0, 5.0))
    ground.temporary.unlink(missing_ok=True)
    ground.temporary.mkdir(exist_ok=True)


def _fill(ground: Ground, _: int) -> None:
    ballast = ground.out / "ballast"
    try:
        with open(ballast, "wb", buffering=0) as file:
            while file.write(bytes(1 << 20)):
                pass
    except OSError:
        time.sleep(ground.chance.uniform(0.5, 5.0))
    finally:
        ballast.unlink()


def _make_read_only(ground: Ground, _: int) -> None:
    """Mount the folder read-only over itself. Files that are open can still be written."""
    folder = str(ground.out)
    _mount("--bind", folder, folder)
    try:
        _mount("-o", "remount,ro,bind", folder)
        time.sleep(ground.chance.uniform(0.5, 5.0))
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def _mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True, capture_output=True)


BLOWS: Mapping[str, Callable[[Ground, int], None]] = {
    "SIGKILL to the coordinator": lambda _, pid: os.kill(pid, signal.SIGKILL),
    "SIGTERM to the coordinator": lambda _, pid: os.kill(pid, signal.SIGTERM),
    "SIGSTOP to the coordinator": _stop_for_a_while,
    "SIGKILL to coordinator and guard": _kill_with_guard,
    "SIGKILL to the zygote": lambda ground, _: _kill_one(ground, _is_zygote),
    "SIGKILL to a kernel": lambda ground, _: _kill_one(ground, lambda p: not _is_zygote(p)),
    "SIGKILL to the writer": lambda ground, pid: os.kill(_writer(ground, pid), signal.SIGKILL),
    "SIGSTOP to the writer": lambda ground, pid: _stop_for_a_while(ground, _writer(ground, pid)),
    "SIGSTOP to the writer at ends": _stop_writer_at_ends,
    "no checkpoints folder": lambda ground, _: _remove(ground.out / "nb" / "checkpoints"),
    "no artifacts folder": lambda ground, _: _remove(ground.out / "mlflow-artifacts"),
    "no private folder": lambda ground, _: _remove(*ground.private_folders()),
    "no temporary folder": _take_temporary,
}
BLOWS_TO_THE_FROZEN = {"SIGKILL to a frozen kernel": _kill_frozen}
BLOWS_TO_A_FILE = {"a locked storage": _lock_storage}
BLOWS_TO_A_SERVER = {"a server that restarts": _restart}
BLOWS_TO_A_CLUSTER = {
    "a scheduler that restarts": _restart_scheduler,
    "SIGKILL to a worker": _kill_worker,
}
BLOWS_TO_A_MACHINE = {"a machine that is lost": _lose_machine}
BLOWS_TO_A_DISK = {"a full disk": _fill, "a folder that may only be read": _make_read_only}


@contextmanager
def fresh(seed: int, trials: int, only: Sequence[str]) -> Iterator[Ground]:
    """Yield a study's folder, at random with a database server, a Dask cluster or a remote copy.

    The outputs are on a small disk if one can be mounted.
    """
    folder, chance = Path(tempfile.mkdtemp(prefix="chaos")), random.Random(seed)
    ground = Ground(folder=folder, chance=chance, trials=trials, only=only)
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        with suppress(pytest.skip.Exception):
            stack.enter_context(small_disk(ground.out, "64m"))
            ground.has_disk = True
        with suppress(pytest.skip.Exception):
            if chance.random() < 0.5:
                ground.server = stack.enter_context(started_postgres())
        needs_frozen = bool(only) and set(only) <= set(BLOWS_TO_THE_FROZEN)
        if chance.random() < 1 / 3 and not needs_frozen and find_spec("distributed"):
            ground.cluster = stack.enter_context(closing(OwnCluster(folder / "workers")))
            ground.cluster.start()
        if ground.server is None and chance.random() < 0.5 and find_spec("moto"):
            ground.store = stack.enter_context(started_s3())
        ground.can_freeze = ground.cluster is None and (needs_frozen or chance.random() < 0.5)
        ground.write_inputs()
        yield ground


def by_run_id(result: Mapping[str, Any]) -> dict[str, Any]:
    return {trial["run_id"]: trial for trial in result["trials"]}


def check(ground: Ground, result: Mapping[str, Any], undisturbed: Mapping[str, Any]) -> None:
    """Check that a disturbed sweep has the same results as an undisturbed one."""
    trials, expected = by_run_id(result), by_run_id(undisturbed)
    assert [trial["run_id"] for trial in result["trials"]] == sorted(expected)
    for run_id, trial in trials.items():
        assert trial["params"] == expected[run_id]["params"]
        assert trial["seed"] == expected[run_id]["seed"]
        metadata = json.loads((ground.folder / trial["notebook"]).read_text("utf-8"))["metadata"]
        assert metadata["sweeper"]["state"] == trial["state"], (trial, metadata["sweeper"])
        if trial["state"] == "completed":
            assert trial["scores"] == expected[run_id]["scores"]
        elif trial["state"] == "pruned":
            assert ground.can_freeze
        else:
            # A trial may fail only if blows killed its kernel twice, or its worker three times.
            assert trial["state"] == "failed", trial
            assert trial["reason"] in ("kernel_died", "worker_lost"), trial
    runs = mlflow_runs(result["tracking_uri"], "nb")
    assert sorted(run.info.run_name for run in runs) == sorted(trials)
    for run in runs:
        state = trials[run.info.run_name]["state"]
        status = "FAILED" if state == "failed" else "FINISHED"
        assert (run.info.run_name, run.info.status) == (run.info.run_name, status)
        if state == "completed":
            assert run.data.metrics["val"] == trials[run.info.run_name]["scores"]["val"]


def without_kernels(trials: int) -> dict[str, Any]:
    """Return the result of the same study without blows, computed in this process."""

    def run(spec: TrialSpec, _: RunningTrial) -> TrialOutcome:
        write_notebook(spec.notebook, "val = x")
        val = math.sin(int(float(str(spec.params["x"])) * 9999)) * 7
        return TrialOutcome(state=TrialState.COMPLETED, scores={"val": val, "seed": spec.seed})

    with tempfile.TemporaryDirectory() as folder:
        notebook = write_notebook(Path(folder, "nb.ipynb"), *CELLS, parameters="x = 0.5")
        Path(folder, "nb.yml").write_text(PARAMETERS)
        study = {"trials": trials}
        return sweep_of(notebook, "nb", run, jobs=JOBS, study=study).run().to_json()


def storm(*, blows: int, seed: int, trials: int = 16, only: Sequence[str] = ()) -> Counter[str]:
    """Sweep studies until all blows were made. Return the number of blows of each kind.

    Args:
        blows: Number of blows to all studies together.
        seed: Seed of all random choices. Each study uses the next number.
        trials: Number of trials of each study.
        only: Kinds of blows that are made. Empty for all kinds.
    """
    struck: Counter[str] = Counter()
    undisturbed = without_kernels(trials)
    assert undisturbed["counts"]["completed"] == trials
    while struck.total() < blows:
        seed += 1
        with fresh(seed, trials, only) as ground:
            result = ground.sweep(min(blows - struck.total(), 25))
            check(ground, result, undisturbed)
        struck += ground.blows
        if blows > 25:
            print(f"{struck.total()} blows", flush=True)
    return struck


@pytest.mark.slow
@pytest.mark.kernel
def test_a_sweep_that_is_disturbed_repeatedly_has_the_results_of_an_undisturbed_one() -> None:
    struck = storm(blows=3, seed=int.from_bytes(os.urandom(4), "big"), trials=8)
    assert struck.total() == 3


@pytest.mark.slow
@pytest.mark.kernel
def test_a_full_disk_loses_no_trial(tmp_path: Path) -> None:
    large = "import base64, os\nprint(base64.b64encode(os.urandom(400_000)).decode())"
    with small_disk(tmp_path / "out", "6m") as disk:
        ground = Ground(folder=tmp_path, chance=random.Random(0), trials=10)
        ground.write_inputs()
        write_notebook(tmp_path / "nb.ipynb", large, "val = x * 2", parameters="x = 0.5")
        full = ground.call()
        until(lambda: shutil.disk_usage(disk).free < 400_000 or full.poll() is not None)
        time.sleep(2)  # the sweep waits for room on the disk, or has ended by now
        _mount("-o", "remount,size=100m", str(disk))
        stdout, _ = full.communicate(timeout=300)
        if full.returncode != 0:
            stdout, _ = ground.call().communicate(timeout=120)
        result = json.loads(stdout.splitlines()[-1])
        assert result["counts"]["completed"] == ground.trials
        assert all(t["scores"]["val"] == 2 * t["params"]["x"] for t in result["trials"])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Sweeps that are killed at random moments.")
    parser.add_argument("--blows", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--only", nargs="*", default=[], metavar="KIND", help="blows of these alone"
    )
    options = parser.parse_args()
    kinds = storm(blows=options.blows, seed=options.seed, only=options.only)
    print("\n".join(f"{n:>4} {kind}" for kind, n in kinds.most_common()))
