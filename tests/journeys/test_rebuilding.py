"""A study whose database is lost is made again from its executed notebooks."""

from __future__ import annotations

import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

import optuna
import pytest
from commands import call, project
from studies import mlflow_runs

from sweeper.settings import Settings
from sweeper.settings.addresses import Address
from sweeper.study.samplers import SamplerFactory
from sweeper.study.study import Study

pytestmark = [pytest.mark.kernel, pytest.mark.slow]

SETTINGS = """
start: [{x: 0.9}, {x: 0.0}, {x: 0.1}]
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
    """What Optuna has of each trial, without times and our record, which are compared alone."""
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
    """The records of all trials; times are rounded in notebooks, and begin with the kernel."""
    study = Study.load(Address.of_file(file), "p")
    return [{**asdict(it), "started_at_s": 0, "duration_s": 0} for it in study.records()]


def proposed(file: Path, settings: Settings) -> tuple[int, Any, int]:
    """What the study would run next."""
    study = Study.open(Address.of_file(file), settings)
    record = study.ask(SamplerFactory(settings), lambda number: Path(f"{number}.ipynb"))
    assert record is not None
    study.close()
    return record.number, record.params, record.seed


def test_a_lost_study_and_its_mlflow_runs_are_made_again_and_no_trial_is_run_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    files = project(TRAINING, settings=SETTINGS)
    assert call("run", *files).returncode == 0
    file, before = tmp_path / "out/p/study.db", tmp_path / "before.db"
    assert call("rebuild", "out").returncode == 2  # it is sound
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


def test_a_database_that_was_removed_is_missed_and_not_begun_anew(
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
