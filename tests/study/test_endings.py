"""A notebook may say that its trial has ended, although the study's database does not."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import nbformat
import pytest
from opened_studies import COMPLETED, RUNNING, STOPPED

from sweeper.notebooks.executed import ExecutedNotebook
from sweeper.study.endings import left_open, sent_outcome, unknown_end
from sweeper.study.facts import StudyFacts
from sweeper.testing import trial_spec
from sweeper.trials import StudyPaths, TrialOutcome, TrialRecord, TrialSpec, TrialState


def record_of(paths: StudyPaths, attempt: int, state: TrialState) -> TrialRecord:
    """Return the study's record of trial 0000."""
    return TrialRecord(
        number=0, state=state, params={}, seed=0, attempt=attempt, notebook=paths.notebook("0000")
    )


#: Facts of the study that has written the notebook of `write_end`.
FACTS = StudyFacts(id="s", objectives=["acc"])


def write_end(paths: StudyPaths, **of_spec: Any) -> Path:
    """Write the notebook of trial 0000, which states that the trial has completed."""
    spec = trial_spec(0, study_id="s", notebook=paths.notebook("0000"), **of_spec)
    write_completed(spec, {"acc": 0.5})
    return spec.notebook


def write_completed(spec: TrialSpec, scores: Mapping[str, float]) -> None:
    """Write a trial's notebook, which states that the trial has completed with these scores."""
    file = ExecutedNotebook(nbformat.v4.new_notebook(), spec)
    file.finish(TrialOutcome(state=COMPLETED, scores=scores))
    file.write()


@pytest.mark.parametrize("state", [RUNNING, STOPPED, COMPLETED])
def test_unknown_end_finds_only_a_notebook_of_a_later_attempt_than_the_study_has_stored(
    tmp_path: Path, state: TrialState
) -> None:
    paths = StudyPaths.parse(str(tmp_path / "{run_id}.ipynb"), study="p")
    path = write_end(paths, attempt=2)
    assert unknown_end([], FACTS, paths) == path
    assert unknown_end([record_of(paths, 1, state)], FACTS, paths) == path
    # The study knows this attempt, but perhaps not its end: a cluster's worker may be lost after
    # its notebook has arrived and before its answer.
    assert unknown_end([record_of(paths, 2, state)], FACTS, paths) is None
    # The study knows a later attempt, which may be killed before it renames the second's notebook.
    assert unknown_end([record_of(paths, 3, state)], FACTS, paths) is None
    assert unknown_end([], replace(FACTS, id="another"), paths) is None


@pytest.mark.parametrize("scores", [{}, {"loss": 0.5}, {"acc": math.nan}, {"acc": math.inf}])
def test_a_notebook_without_a_finite_score_for_each_objective_does_not_count_as_a_trials_end(
    tmp_path: Path, scores: Mapping[str, float]
) -> None:
    paths = StudyPaths.parse(str(tmp_path / "{run_id}.ipynb"), study="p")
    spec = trial_spec(0, study_id="s", notebook=paths.notebook("0000"))
    record = record_of(paths, spec.attempt, RUNNING)
    write_completed(spec, {"acc": 0.5})
    assert left_open(record, FACTS).state is COMPLETED
    assert sent_outcome(spec, FACTS) is not None
    write_completed(spec, scores)
    assert left_open(record, FACTS) is record
    assert sent_outcome(spec, FACTS) is None
    assert unknown_end([], FACTS, paths) is None
