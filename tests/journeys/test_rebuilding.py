"""Test that a study whose database is lost is rebuilt from its executed notebooks."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import optuna
import pytest
from commands import Command, call, project
from studies import mlflow_runs, small_settings, until

from sweeper.control.rebuilding import rebuild
from sweeper.notebooks.metadata import BLANK, read_metadata
from sweeper.search.samplers import SamplerFactory
from sweeper.settings import Settings
from sweeper.settings.addresses import Address
from sweeper.study.study import Study

pytestmark = [pytest.mark.kernel, pytest.mark.slow]

SETTINGS = """
start: [{x: 0.9}, {x: 0.0}, {x: 0.1}]
space: {x: {low: 0.0, high: 1.0}, a: [1, 2]}
study:
  {name: p, trials: 4, seed: 3, sampler: tpe, pruner: {name: median, n_startup_trials: 1}}
"""
TRAINING = """
import time
import sweeper
assert x > 0
for step in range(3):
    sweeper.report(step, val=x * step)
    time.sleep(0.2)
"""


def optunas(file: Path) -> list[dict[str, Any]]:
    """Return what Optuna stores about each trial, except times and values of user attributes."""
    study = optuna.load_study(study_name="p", storage=str(Address.of_file(file)))
    return [
        {
            "state": trial.state,
            "values": trial.values,
            "params": trial.params,
            "distributions": trial.distributions,
            "reports": trial.intermediate_values,
            "system": trial.system_attrs,
            "user": set(trial.user_attrs),
        }
        for trial in study.trials
    ]


def records(file: Path) -> list[dict[str, Any]]:
    """Return the records of all trials, with times of 0.

    A rebuilt study has its times from notebooks, which round them and count from the start of the
    kernel.
    """
    study = Study.load(Address.of_file(file), "p")
    times = dict.fromkeys(["started_at_s", "duration_s", "ended_at_s"], 0)
    return [{**asdict(it), **times} for it in study.records()]


def proposed(file: Path, settings: Settings) -> tuple[int, Any, int]:
    """Return number, params and seed of the trial that the study would run next."""
    study = Study.open(Address.of_file(file), settings)
    study.queue_first(settings)
    record = study.ask(SamplerFactory(settings), lambda number: Path(f"{number}.ipynb"))
    assert record is not None
    study.close()
    return record.number, record.params, record.seed


def test_a_lost_study_and_its_mlflow_runs_are_rebuilt_and_no_trial_runs_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    files = project(TRAINING, settings=SETTINGS, parameters="x = 0.5\na = 1")
    assert call("run", *files).returncode == 0
    file, before = tmp_path / "out/p/study.db", tmp_path / "before.db"
    assert call("rebuild", "out").returncode == 2  # the database is not damaged
    shutil.copy(file, before)
    file.write_bytes(bytes(100) + file.read_bytes()[100:])
    (tmp_path / "out/mlflow.db").unlink()
    for command in (["run", *files], ["status", "out/p"]):
        refused = call(*command)
        assert refused.returncode == 2
        assert "study.db is damaged" in refused.stderr
        assert "notebook_hpo.py rebuild out/p" in refused.stderr
    made = call("rebuild", "out/p")
    assert (made.returncode, made.stderr) == (0, "")
    assert "1 failed" in made.stdout and "pruned" in made.stdout
    assert (tmp_path / "out/p/study.db.damaged").exists()
    assert records(file) == records(before)
    assert optunas(file) == optunas(before)
    assert {tuple(it["params"]) for it in [*records(file), *optunas(file)]} == {("x", "a")}
    settings = Settings.load("p.yml").with_overrides(trials=6)
    copy = Path(shutil.copy(file, tmp_path / "copy.db"))
    assert proposed(copy, settings) == proposed(before, settings)
    notebooks = {path.name: path.read_bytes() for path in (tmp_path / "out").glob("*.ipynb")}
    assert call("run", *files, "--trials", "5").returncode == 0
    for name, content in notebooks.items():
        assert (tmp_path / "out" / name).read_bytes() == content
    assert [it["number"] for it in records(file)] == [0, 1, 2, 3, 4]
    runs = mlflow_runs(str(Address.of_file(tmp_path / "out/mlflow.db")), "p")
    assert len(runs) == 5


def test_a_sweep_whose_studys_database_was_removed_is_refused_and_creates_no_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    files = project("val = x", settings="study: {name: p, trials: 2}")
    assert call("run", *files).returncode == 0
    (tmp_path / "out/p/study.db").unlink()
    (tmp_path / "out/0001.ipynb").write_text("half of a noteb")
    refused = call("run", *files)
    assert refused.returncode == 2
    assert "it is missing" in refused.stderr
    assert not (tmp_path / "out/p/study.db").exists()
    (tmp_path / "out/p/study.db").touch()
    assert "it is missing or empty" in call("run", *files).stderr
    made = call("rebuild", "out")
    assert "1 completed" in made.stdout and "0001.ipynb cannot be read" in made.stdout
    (tmp_path / "out/0001.ipynb").unlink()
    assert call("run", *files).returncode == 0
    assert call("rebuild", str(tmp_path)).returncode == 2


def begin_another(file: Path, name: str) -> None:
    """Replace the database by one of another study that was never swept."""
    file.unlink()
    Study.open(Address.of_file(file), small_settings(name)).close()


def test_a_database_of_another_study_is_refused_and_not_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    files = project("val = x", settings="study: {name: p, trials: 1}")
    assert call("run", *files).returncode == 0
    file, facts = tmp_path / "out/p/study.db", tmp_path / "out/p/study.json"
    before, kept = records(file), facts.read_bytes()
    for replace in (
        lambda: shutil.copy("out/mlflow.db", file),
        lambda: begin_another(file, "q"),
        lambda: begin_another(file, "p"),
    ):
        replace()
        replaced = file.read_bytes()
        for command in (["run", *files], ["status", "out"]):
            refused = call(*command)
            assert refused.returncode == 2
            assert "out/p/study.db is damaged (it is another study's" in refused.stderr
            assert "notebook_hpo.py rebuild out/p" in refused.stderr
        assert (file.read_bytes(), facts.read_bytes()) == (replaced, kept)
    assert call("rebuild", "out/p").returncode == 0
    assert (records(file), facts.read_bytes()) == (before, kept)
    assert (tmp_path / "out/p/study.db.damaged").read_bytes() == replaced


def test_an_older_copy_of_a_studys_database_is_refused_because_it_lacks_later_trials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    files = project("val = x", settings="study: {name: p, trials: 2, sampler: random}")
    assert call("run", *files, "--trials", "1").returncode == 0
    file, notebook = tmp_path / "out/p/study.db", tmp_path / "out/0001.ipynb"
    older = file.read_bytes()
    assert call("run", *files).returncode == 0
    before, written = records(file), notebook.read_bytes()
    file.write_bytes(older)
    # Also refuse a plan of one trial: a trial queued by hand would get the number 0001 again.
    for options in ([], ["--trials", "1"]):
        refused = call("run", *files, *options)
        assert refused.returncode == 2
        assert "out/p/study.db" in refused.stderr and "out/0001.ipynb" in refused.stderr
        assert "notebook_hpo.py rebuild out/p" in refused.stderr
    assert call("rebuild", "out/p").returncode == 0
    assert call("run", *files).returncode == 0
    assert (records(file), notebook.read_bytes()) == (before, written)


def test_a_study_that_is_being_swept_is_not_rebuilt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    waits = "import time\nwhile True:\n    time.sleep(0.1)"
    sweep = Command("run", *project(waits, settings="study: {name: p, trials: 1}"), "--quiet")
    try:
        notebook = tmp_path / "out/0000.ipynb"
        until(lambda: (read_metadata(notebook) or BLANK).pid, "no trial began")
        (tmp_path / "out/p/study.db").write_text("damaged")
        refused = call("rebuild", "out")
        assert refused.returncode == 2
        (line,) = refused.stderr.splitlines()
        assert f"process {sweep.pid}" in line
        assert (tmp_path / "out/p/study.db").read_text() == "damaged"
    finally:
        sweep.kill()
        sweep.wait()


def rebuild_and_die(n_changes: int, folder: Path) -> None:
    """Rebuild a study, and die by SIGKILL after `n_changes` changes of files in its folder."""
    left = n_changes

    def count(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal left
        is_change = event in ("os.rename", "os.remove", "sqlite3.connect")
        if is_change and str(folder) in str(arguments[0]):
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count)
    rebuild(folder)


def test_a_rebuild_that_is_killed_at_any_moment_loses_nothing_and_can_be_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert call("run", *project("val = x", settings="study: {name: p, trials: 1}")).returncode == 0
    folder = tmp_path / "out/p"
    file = folder / "study.db"
    before = records(file)
    damaged = b"damaged" + file.read_bytes()
    n_killed = 0
    while True:
        for path in folder.glob("study.db*"):
            path.unlink()
        file.write_bytes(damaged)
        arguments = (n_killed, folder)
        killed = multiprocessing.get_context("fork").Process(target=rebuild_and_die, args=arguments)
        killed.start()
        killed.join(60)
        if killed.exitcode == 0:
            break
        assert killed.exitcode == -signal.SIGKILL
        n_killed += 1
        if not file.exists() or file.read_bytes() == damaged:
            rebuild(folder)
        assert records(file) == before
        assert (folder / "study.db.damaged").read_bytes() == damaged
    assert n_killed > 5
