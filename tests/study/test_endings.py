"""Executed notebooks state ends of trials that the study may not know."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
import pytest
from opened_studies import COMPLETED, RUNNING, STOPPED

from sweeper.notebooks.executed import ExecutedNotebook
from sweeper.study.endings import unknown_end
from sweeper.testing import trial_spec
from sweeper.trials import StudyPaths, TrialOutcome, TrialRecord, TrialState


def record_of(paths: StudyPaths, attempt: int, state: TrialState) -> TrialRecord:
    """Return the study's record of trial 0000."""
    return TrialRecord(
        number=0, state=state, params={}, seed=0, attempt=attempt, notebook=paths.notebook("0000")
    )


def write_end(paths: StudyPaths, **of_spec: Any) -> Path:
    """Write the notebook of trial 0000, which states that the trial has completed."""
    path = paths.notebook("0000")
    file = ExecutedNotebook(
        nbformat.v4.new_notebook(), trial_spec(0, study_id="s", notebook=path, **of_spec)
    )
    file.finish(TrialOutcome(state=COMPLETED, scores={"acc": 0.5}))
    file.write()
    return path


@pytest.mark.parametrize("state", [RUNNING, STOPPED, COMPLETED])
def test_an_end_is_unknown_if_its_attempt_is_later_than_the_studys_last_one(
    tmp_path: Path, state: TrialState
) -> None:
    paths = StudyPaths.parse(str(tmp_path / "{run_id}.ipynb"), study="p")
    path = write_end(paths, attempt=2)
    assert unknown_end([], "s", paths) == path
    assert unknown_end([record_of(paths, 1, state)], "s", paths) == path
    # A cluster's worker may be lost after its notebook has arrived and before its answer.
    assert unknown_end([record_of(paths, 2, state)], "s", paths) is None
    # The third attempt may be killed before it has renamed the notebook of the second one.
    assert unknown_end([record_of(paths, 3, state)], "s", paths) is None
    assert unknown_end([], "another study", paths) is None
