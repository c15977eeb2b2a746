"""Test whole sweeps on a Dask cluster whose workers die."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from commands import Command, project
from dask_clusters import (
    certificates,
    started,
    started_program,
    until_nothing_is_left,
    worker_pids,
)
from studies import is_listening, sweep_of, until

from sweeper.notebooks.metadata import BLANK, read_metadata
from sweeper.study.study import Study
from sweeper.testing import write_notebook
from sweeper.tracking import free_port
from sweeper.trials import Event, StudyPaths, SweepResult, TrialRecord, TrialState

pytestmark = [pytest.mark.kernel, pytest.mark.slow, pytest.mark.usefixtures("here")]

TRAIN = """
import beside, sweeper, time
for step in range(3):
    sweeper.report(step, val=beside.score(x, step))
    time.sleep(0.05)
"""
#: Number of trials in the sweeps that lose a worker.
TRIALS = 6


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    with started(workers=2, threads=1) as address:
        yield address


@pytest.fixture
def notebook(tmp_path: Path) -> Path:
    (tmp_path / "beside.py").write_text("def score(x, step):\n    return x * (step + 1)\n")
    return write_notebook(tmp_path / "nb.ipynb", TRAIN)


def facts(result: SweepResult) -> list[object]:
    return [(r.run_id, str(r.state), r.params, r.seed, r.scores) for r in result.records]


def test_a_sweep_whose_worker_is_killed_has_the_same_results_as_a_local_one(
    notebook: Path, cluster: str
) -> None:
    ends: list[TrialRecord] = []

    def kill_one(event: Event, record: TrialRecord | None) -> None:
        if event is Event.TRIAL_ENDED and record is not None:
            ends.append(record)
            if len(ends) == 2:
                os.kill(next(iter(worker_pids(cluster).values())), signal.SIGKILL)

    def run(
        name: str,
        *,
        on: str | None,
        observer: Callable[[Event, TrialRecord | None], None] | None = None,
    ) -> SweepResult:
        sampler = {"name": "tpe", "n_startup_trials": 3}
        study = {"trials": TRIALS, "sampler": sampler, "order": "fixed", "seed": 3}
        where: dict[str, Any] = {} if on is None else {"cluster": on}
        options = {"observer": observer}
        output = f"{name}.{{run_id}}.ipynb"
        return sweep_of(
            notebook, name, output=output, jobs=2, options=options, study=study, **where
        ).run()

    there = run("there", on=cluster, observer=kill_one)
    here = run("here", on=None)
    assert facts(there) == facts(here)
    assert there.counts["completed"] == TRIALS
    assert sum(record.attempt for record in there.records) in (TRIALS + 1, TRIALS)
    assert {record.host for record in there.records} == {os.uname().nodename}
    assert {record.host for record in here.records} == {""}
    with closing(sqlite3.connect(notebook.parent / "mlflow.db")) as store:
        tags = store.execute("select count(*) from tags where key = 'sweeper.host'").fetchone()
    assert tags == (TRIALS,)


def test_a_sweep_that_is_killed_leaves_nothing_on_the_workers(notebook: Path, cluster: str) -> None:
    folder = notebook.parent
    endless = TRAIN.replace("(3)", "(6000)")
    files = project(endless, settings=f"cluster: {cluster}", folder=folder)
    sweep = Command(*files, "--quiet", cwd=folder)
    try:
        until(lambda: (folder / "out" / "0001.ipynb").exists(), "no trial has begun")
    finally:
        sweep.kill()
        sweep.communicate()
    killed_s = time.monotonic()
    until_nothing_is_left(cluster)
    # Less than the 60 s after which workers give up: Dask tells them of the lost client.
    assert time.monotonic() - killed_s < 40


HELD = """\
import os, pathlib, time, beside, sweeper
trial, events = sweeper.trial(), pathlib.Path(os.environ["EVENTS"])
def note(event):
    with open(events / "events.txt", "a") as file:
        file.write(f"{event} {trial.run_id}\\n")
saved = sweeper.load_checkpoint()
note("begins" if saved is None else "goes-on")
sweeper.save_checkpoint(x=x)
sweeper.report(0, val=x / 2)
while (events / "slow").exists():
    time.sleep(0.05)
sweeper.report(1, val=beside.score(x, 1) + float(open("data.txt").read()))
note("ends")
"""


@pytest.mark.usefixtures("started_kernels")
def test_trials_without_a_shared_disk_survive_their_worker_and_return_all_files(
    notebook: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The connection uses TLS, and workers cannot see the folder of the sweep."""
    hides = ["unshare", "--mount", "sh", "-c", "mount -t tmpfs none /mnt"]
    if shutil.which("unshare") is None or subprocess.run(hides, capture_output=True).returncode:
        pytest.skip("a folder cannot be hidden from a process here")
    home, there = notebook.parent, tmp_path_factory.mktemp("there")
    (home / "data.txt").write_text("3")
    port = free_port(24_000)
    address = f"tls://127.0.0.1:{port}"
    study = f"study: {{name: far, trials: {TRIALS}, sampler: random}}\nkernels: cold\n"
    words = project(HELD, settings=f"{study}cluster: {address}", folder=home)
    (there / "slow").touch()
    log = there / "log"

    def times(event: str) -> Counter[str]:
        file = there / "events.txt"
        rows = [line.split() for line in file.read_text().splitlines()] if file.exists() else []
        return Counter(run_id for what, run_id in rows if what == event)

    env = {**os.environ, **certificates(there), "EVENTS": str(there)}
    with ExitStack() as stack:
        start = partial(started_program, stack, env=env, hidden=home)
        start("scheduler", "--protocol", "tls", "--port", str(port))
        until(lambda: is_listening(port), "no scheduler")
        options = ["--nthreads", "1", "--no-nanny", "--local-directory", str(there)]
        first, _ = (start("worker", address, *options) for _ in range(2))
        with open(log, "w") as file:
            sweep = Command(*words, cwd=home, env=env, stdout=file, stderr=subprocess.STDOUT)
        stack.callback(sweep.kill)
        until(lambda: len(times("begins")) == 2, "no trials have begun")
        checkpoints = home / "out" / "far" / "checkpoints"
        until(lambda: len([*checkpoints.glob("*/*.ckpt")]) == 2, "no checkpoints came home")
        first.kill()
        # Wait until the loss is noticed. Then no kernel of the dead worker runs any more.
        until(lambda: "worker_lost" in log.read_text(), "no trial is lost")
        (there / "slow").unlink()
        assert sweep.wait(timeout=300) == 0, log.read_text()
    run_ids = [f"{number:04}" for number in range(TRIALS)]
    assert times("ends") == Counter(run_ids)
    assert sum(times("goes-on").values()) == 1
    paths = StudyPaths.parse(str(home / "out" / "{run_id}.ipynb"), study="far")
    records = Study.load(f"sqlite:///{paths.storage}", "far").records()
    assert [(it.run_id, it.state) for it in records] == [(n, TrialState.COMPLETED) for n in run_ids]
    for record in records:
        assert record.scores["val"] == 2 * record.params["x"] + 3  # type: ignore[operator]
        assert (read_metadata(record.notebook) or BLANK).host == os.uname().nodename
