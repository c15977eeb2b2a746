"""A study that confirms trials by runs on fresh seeds makes the runs of its plan, and no others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from opened_studies import Opened, completed
from studies import trial_record

from sweeper.trials import RerunPlan, TrialRecord

SEEDS = [100, 101, 102]


def plan(n_trials: int, n_seeds: int) -> RerunPlan:
    found = [
        trial_record(number, params={"x": number / 10}, scores={"acc": 0.5})
        for number in range(n_trials)
    ]
    return RerunPlan.of_trials(found, SEEDS[:n_seeds], objective="acc", direction="maximize")


def resumed(opened: Opened, wanted: RerunPlan, *, has_changed: bool = False) -> Opened:
    """Return the study as the next sweep with this plan opens it."""
    again = opened.again(trials=opened.study.n_confirming(wanted, has_changed=has_changed))
    again.study.confirm(wanted, has_changed=has_changed)
    return again


def runs_left(opened: Opened) -> list[TrialRecord]:
    """Make all runs that are left. Return their records."""
    made = []
    while (record := opened.next()) is not None:
        made.append(opened.study.tell(record.number, completed()))
    return made


def test_a_smaller_or_larger_confirmation_makes_only_the_runs_that_are_missing_in_the_study(
    begin: Any,
) -> None:
    opened = resumed(begin(trials=1), plan(3, 3))
    opened.run(0.5)
    fewer = resumed(opened, plan(1, 2))
    assert [(run.params["x"], run.seed) for run in runs_left(fewer)] == [(0.0, 101)]
    found = fewer.study.confirmation
    assert found is not None and found.winner is not None
    more = resumed(fewer, plan(3, 3))
    assert len(runs_left(more)) == 7
    runs = {(run.params["x"], run.seed) for run in more.study.records()}
    assert len(runs) == len(more.study.records()) == 9


def test_confirming_runs_with_earlier_code_are_made_again_and_are_not_in_the_ranking(
    begin: Any,
) -> None:
    before = resumed(begin(trials=1), plan(2, 2))
    before.run(0.1)
    after = resumed(before, plan(2, 2), has_changed=True)
    assert len(runs_left(after)) == 4
    same = resumed(after, plan(2, 2))
    assert runs_left(same) == []
    found = same.study.confirmation
    assert found is not None
    counted = {run.number for trial in found.ranking for run in trial.runs.values()}
    assert counted == {record.number for record in same.study.records()[1:]}


def test_an_interrupted_confirming_run_is_resumed_first_and_then_only_runs_of_the_new_plan_follow(
    begin: Any,
) -> None:
    opened = resumed(begin(trials=1), plan(2, 2))
    opened.ask()  # This run was killed with its sweep.
    later = replace(plan(3, 2), trials=plan(3, 2).trials[2:])
    again = resumed(opened, later)
    assert [(run.params["x"], run.seed) for run in runs_left(again)] == [
        (0.0, 100),
        (0.2, 100),
        (0.2, 101),
    ]


def test_an_interrupted_confirming_run_with_earlier_code_is_not_resumed(begin: Any) -> None:
    before = resumed(begin(trials=1), plan(2, 2))
    before.ask()  # This run was killed with its sweep.
    after = resumed(before, plan(2, 2), has_changed=True)
    assert [run.number for run in runs_left(after)] == [4, 5, 6, 7]
    assert after.study.records()[0].is_final
    found = after.study.confirmation
    assert found is not None and found.n_missing == 0


@pytest.mark.parametrize("n_trials", [1, 3])
def test_a_trial_queued_by_hand_in_a_confirming_study_runs_whatever_runs_are_planned(
    begin: Any, n_trials: int
) -> None:
    opened = resumed(begin(trials=1), plan(2, 1))
    opened.study.enqueue({"x": 0.9})
    runs = runs_left(resumed(opened, plan(n_trials, 1)))
    assert {run.params["x"] for run in runs} == {*(n / 10 for n in range(n_trials)), 0.9}
