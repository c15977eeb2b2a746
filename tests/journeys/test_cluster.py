"""Whole sweeps on a Dask cluster, with workers that die."""

from __future__ import annotations

import os
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from commands import Command
from dask_clusters import left_there, started, worker_pids
from studies import until

from sweeper import Settings, Sweep
from sweeper.testing import write_notebook
from sweeper.trials import Event, SweepResult, TrialRecord, TrialState

pytestmark = [pytest.mark.kernel, pytest.mark.slow, pytest.mark.usefixtures("here")]

TRAIN = """
import beside, sweeper, time
for step in range(3):
    sweeper.report(step, val=beside.score(x, step))
    time.sleep(0.05)
"""
SPACE = {"x": {"low": 0.0, "high": 1.0}}
#: Of the sweep whose worker is killed at its fourth.
TRIALS = 12


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    with started(workers=2, threads=1) as address:
        yield address


@pytest.fixture
def notebook(tmp_path: Path) -> Path:
    (tmp_path / "beside.py").write_text("def score(x, step):\n    return x * (step + 1)\n")
    return write_notebook(tmp_path / "nb.ipynb", TRAIN)


def settings_of(name: str, *, on: str | None, **study: object) -> Settings:
    place = {} if on is None else {"cluster": on}
    stated = {"study": {"name": name, **study}, "objective": {"val": "maximize"}, "space": SPACE}
    return Settings.from_mapping({**stated, **place})


def facts(result: SweepResult) -> list[object]:
    return [(r.run_id, str(r.state), r.params, r.seed, r.scores) for r in result.records]


def test_a_sweep_whose_worker_is_killed_comes_to_the_same_as_a_local_one(
    notebook: Path, cluster: str
) -> None:
    ends: list[TrialRecord] = []

    def kill_one(event: Event, record: TrialRecord | None) -> None:
        if event is Event.TRIAL_ENDED and record is not None:
            ends.append(record)
            if len(ends) == 4:
                os.kill(next(iter(worker_pids(cluster).values())), signal.SIGKILL)

    def run(
        name: str,
        *,
        on: str | None,
        observer: Callable[[Event, TrialRecord | None], None] | None = None,
    ) -> SweepResult:
        output = f"{notebook.parent}/{name}.{{run_id}}.ipynb"
        sampler = {"name": "tpe", "n_startup_trials": 3}
        settings = settings_of(name, on=on, trials=TRIALS, sampler=sampler, order="fixed", seed=3)
        return Sweep.from_settings(
            settings, notebook=notebook, output=output, jobs=2, observer=observer
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


def test_the_pruner_reaches_trials_on_workers(notebook: Path, cluster: str) -> None:
    settings = settings_of(
        "pruned",
        on=cluster,
        trials=2,
        sampler="random",
        pruner={"name": "threshold", "lower": 10.0},
    )
    result = Sweep.from_settings(
        settings,
        notebook=write_notebook(notebook.parent / "long.ipynb", TRAIN.replace("(3)", "(600)")),
        output=f"{notebook.parent}/pruned.{{run_id}}.ipynb",
    ).run()
    assert {record.state for record in result.records} == {TrialState.PRUNED}


def test_a_sweep_that_is_killed_leaves_nothing_on_the_workers(notebook: Path, cluster: str) -> None:
    folder = notebook.parent
    write_notebook(folder / "long.ipynb", TRAIN.replace("(3)", "(6000)"))
    (folder / "p.yml").write_text(
        f"objective: {{val: maximize}}\nspace: {{x: {{low: 0.0, high: 1.0}}}}\ncluster: {cluster}\n"
    )
    words = ["-i", "long.ipynb", "-o", "killed.{run_id}.ipynb", "-p", "p.yml", "--quiet"]
    sweep = Command(*words, cwd=folder)
    try:
        until(lambda: (folder / "killed.0001.ipynb").exists(), "no trial has begun")
    finally:
        sweep.kill()
        sweep.communicate()
    killed_s = time.monotonic()
    until(lambda: not left_there(cluster), "a folder is left")
    assert time.monotonic() - killed_s < 40  # Dask tells the workers, which need not wait for 60 s
