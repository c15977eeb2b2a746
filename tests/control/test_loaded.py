"""The results of a study in a notebook or script."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from studies import sweep_of

import sweeper
from sweeper.errors import NotebookError, StudyError
from sweeper.testing import write_notebook
from sweeper.trials import RunningTrial, TrialOutcome, TrialRecord, TrialSpec, TrialState

pytestmark = pytest.mark.slow  # MLflow, in the sweep before them


def test_each_trial_is_a_row_with_its_state_scores_params_and_notebook(folder: Path) -> None:
    study = sweeper.load(folder)
    table = study.dataframe()
    assert list(table.index) == [f"000{n}" for n in range(6)]
    assert list(table.columns[:3]) == ["state", "val", "loss"]
    assert {*table.columns[3:7]} == {"x", "kind", "param_seed", "depth"}
    for record in study.trials:
        row = table.loc[record.run_id]
        assert row["state"] == str(record.state)
        assert (row["x"], row["kind"]) == (record.params["x"], record.params["kind"])
        assert (row["param_seed"], row["seed"]) == (record.params["seed"], record.seed)
        assert pd.isna(row["depth"]) == ("depth" not in record.params)
        assert row["notebook"] == str(record.notebook)
    assert pd.isna(table.loc["0003", "val"])
    assert table.loc["0003", "message"] == "In [2]: ValueError: no"


def test_the_best_trials_params_can_be_assigned_in_one_line(folder: Path) -> None:
    best = sweeper.load(str(folder)).best
    assert isinstance(best, TrialRecord)
    names: dict[str, Any] = {}
    names.update(best.params)
    assert names["x"] == sweeper.load(folder).dataframe()["val"].max()


def test_the_series_of_a_trial_have_a_row_for_each_step(folder: Path) -> None:
    study = sweeper.load(folder)
    series = study.series("0000")
    assert list(series.index) == [0, 1]
    assert series.index.name == "step"
    assert list(series["val"]) == [0.0, study.trials[0].params["x"]]  # the last value of a step
    assert pd.isna(series.loc[0, "loss"])
    assert series.loc[1, "loss"] == 0.25


def test_the_executed_notebook_is_displayed_rendered_and_cannot_run_scripts(folder: Path) -> None:
    notebook = sweeper.load(folder).notebook("0001")
    assert notebook.path == folder.parent / "0001.ipynb"
    page = notebook._repr_html_()
    assert page.startswith("<iframe sandbox srcdoc=")
    assert "<script>" not in page


def test_a_study_shows_itself_with_the_best_trial_first(folder: Path) -> None:
    study = sweeper.load(folder)
    assert isinstance(study.best, TrialRecord)
    headline = f"study seen: 5 completed, 1 failed; best: {study.best.run_id}, val="
    assert headline in repr(study)
    page = study._repr_html_()
    assert headline in page
    assert page.index(f">{study.best.run_id}</a>") < page.index(">0003</a>")
    assert "<b>" not in page


def test_a_study_or_trial_that_does_not_exist_is_one_message(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="there is no study in"):
        sweeper.load(tmp_path)
    with pytest.raises(StudyError, match="no trial 0099; it has 0000 to 0005"):
        sweeper.load(folder).series("0099")


def test_with_several_objectives_the_best_are_a_list_and_a_name_taken_twice_has_two_columns(
    tmp_path: Path,
) -> None:
    def run(spec: TrialSpec, _: RunningTrial) -> TrialOutcome:
        scores = {"duration_s": float(spec.number % 3), "val": 1.0}
        return TrialOutcome(state=TrialState.COMPLETED, scores=scores, duration_s=9.0)

    objective = {"duration_s": "minimize", "val": "maximize"}
    notebook = write_notebook(tmp_path / "nb.ipynb", "duration_s = val = x", parameters="x = 0")
    sweep_of(notebook, "fast", run, study={"trials": 4}, objective=objective).run()
    study = sweeper.load(tmp_path / "out" / "fast")
    best = study.best
    assert not isinstance(best, TrialRecord | None)
    assert [record.run_id for record in best] == ["0000", "0003"]
    table = study.dataframe()
    assert list(table["score_duration_s"]) == [0.0, 1.0, 2.0, 0.0]
    assert list(table["duration_s"]) == [9.0] * 4
    with pytest.raises(NotebookError, match=r"0000\.ipynb"):
        study.series("0000")
