"""The state of a study, read from its files while no kernel runs here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from opened_studies import asked, opened_in
from studies import small_settings

from sweeper.cli import main
from sweeper.control.lookup import find_study
from sweeper.control.status import look
from sweeper.study.study import Study
from sweeper.study_folder.ownership import held_folder
from sweeper.testing import write_notebook
from sweeper.trials import Progress, StudyPaths, TrialOutcome, TrialState

#: Libraries that a look at a study in a file needs no part of.
LARGE = (
    *("alembic", "IPython", "jsonschema", "mlflow", "nbclient", "nbconvert", "nbformat", "numpy"),
    *("optuna", "papermill", "ruamel", "sqlalchemy", "torch", "zmq"),
)


SETTINGS = small_settings("seen")


@pytest.fixture
def paths(tmp_path: Path) -> StudyPaths:
    """A study with a completed and a running trial; the running one has no notebook yet."""
    paths = StudyPaths.parse(str(tmp_path / "out" / "{run_id}.ipynb"), study="seen")
    study = opened_in(paths, SETTINGS, tracking_uri="sqlite:///mlflow.db", trials=5)
    for _ in range(2):
        asked(study, SETTINGS, paths)
    study.tell(0, TrialOutcome(state=TrialState.COMPLETED, scores={"val": 0.5}))
    study.close()
    return paths


def progress(paths: StudyPaths) -> Progress:
    (running,) = look(find_study(str(paths.folder), storage=None))[1].running
    return running


def test_a_study_has_its_counts_best_trial_and_running_trials(paths: StudyPaths) -> None:
    result, snapshot = look(find_study(str(paths.folder), storage=None))
    assert result.counts == {
        "completed": 1, "pruned": 0, "failed": 0, "stopped": 0, "running": 1
    }  # fmt: skip
    assert [record.run_id for record in result.best] == ["0000"]
    assert (snapshot.trials, snapshot.counts) == (5, result.counts)
    assert result.to_json()["tracking_uri"] == "sqlite:///mlflow.db"


def test_status_has_what_a_study_has_cost(
    paths: StudyPaths, capsys: pytest.CaptureFixture[str]
) -> None:
    study = Study.load(f"sqlite:///{paths.storage}", "seen")
    study.note_facts(spent_s=3600.0, settings={"cost": {"price_per_hour": 2.5, "budget": 4.0}})
    assert main(["status", str(paths.folder), "--json"]) == 0
    printed = capsys.readouterr()
    assert "cost of the study so far: 2.50, 2.5 per completed trial" in printed.err
    data = json.loads(printed.out)
    assert (data["cost"], data["cost_per_trial"]) == (2.5, 2.5)


@pytest.mark.slow  # it starts processes
def test_status_loads_none_of_the_large_libraries(paths: StudyPaths) -> None:
    # Their imports would take most of the command's time.
    code = (
        "import sys, sweeper.cli; code = sweeper.cli.main(sys.argv[1:]);"
        f"print(sorted(set({LARGE!r}) & set(sys.modules))); sys.exit(code)"
    )
    command = [sys.executable, "-c", code, "status", str(paths.folder), "--json"]
    with held_folder(paths):  # else its running trial would be corrected
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    result, loaded = done.stdout.splitlines()
    assert json.loads(result)["counts"]["running"] == 1
    assert loaded == "[]"


def test_a_trial_whose_kernel_starts_has_no_progress_yet(paths: StudyPaths) -> None:
    running = progress(paths)
    assert (running.run_id, running.cells, running.step, running.metrics) == ("0001", 0, None, {})


def test_the_progress_of_a_trial_is_that_of_its_notebook(paths: StudyPaths) -> None:
    file = write_notebook(paths.notebook("0001"), "1", "2", "3")
    node = nbformat.read(file, as_version=4)
    for cell, status in zip(node.cells, ("completed", "running", "pending"), strict=False):
        cell.metadata["papermill"] = {"status": status}
    metadata: dict[str, Any] = {
        "started_at": "2026-01-01T00:00:00+00:00",
        "series": {"val": {"steps": [0, 4], "values": [0.25, 0.75]}},
        "printed": {"loss": {"steps": [7], "values": [1.5]}},
        "finals": {"auc": "nan"},
    }
    node.metadata["sweeper"] = metadata
    nbformat.write(node, file)
    running = progress(paths)
    assert (running.cell, running.cells, running.step) == (2, len(node.cells), 7)
    assert {k: str(v) for k, v in running.metrics.items()} == {
        "loss": "1.5", "val": "0.75", "auc": "nan"
    }  # fmt: skip
    assert running.elapsed_s > 0
    node.metadata["sweeper"] = {**metadata, "waits_for": "its turn, behind 0000"}
    nbformat.write(node, file)
    waiting = progress(paths)
    assert waiting.waits_for == "its turn, behind 0000"
    assert waiting.elapsed_s == 0, "the wait is not the trial's own time"
