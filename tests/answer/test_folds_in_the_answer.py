"""The answer handles params that only some trials have, and folds, which no sampler chooses."""

from __future__ import annotations

import pytest
from studies import small_settings, trial_record

from sweeper.answer import StudySoFar, answer_of
from sweeper.trials import Importance, Reason, RepeatPlan, Repeats, TrialState

FOLDS = 4


@pytest.mark.parametrize("fails", [False, True])
def test_the_answer_says_in_which_fold_trials_fail_but_not_that_the_fold_mattered(
    fails: bool,
) -> None:
    records = []
    for number in range(40):
        fold = number % FOLDS
        has_failed = fails and fold == 0
        records.append(
            trial_record(
                number,
                state=TrialState.FAILED if has_failed else TrialState.COMPLETED,
                reason=Reason.CELL_ERROR if has_failed else None,
                params={"x": (number * 0.618) % 1, "y": (number * 0.414) % 1, "fold": fold},
                scores={} if has_failed else {"val": fold + number / 1000},
                duration_s=10.0 * (1 + fold),
                repeat_of=number - fold if fold else None,
            )
        )
    plan = RepeatPlan(by="folds", values=range(FOLDS), objective="val", direction="maximize")
    unit = {"low": 0.0, "high": 1.0}
    study = StudySoFar(
        settings=small_settings(
            "s", space={"x": unit, "y": unit}, repeat={"fold": FOLDS}, study={"trials": 40}
        ),
        records=records,
        best=records[-1:],
        words=["out/s"],
        confirmation=Repeats(plan, records).confirmation("s"),
        importances={"val": {"x": Importance(0.5, 0.0, 1.0), "y": Importance(0.5, 0.0, 1.0)}},
    )
    found = answer_of(study)
    naming = {topic for topic, text in found.sentences if "fold" in text}
    assert naming - {"best", "params"} == ({"failed"} if fails else set())
    assert found.region is None
    assert found.spent is not None and found.spent.driver is None


def test_the_answer_names_the_param_that_mattered_although_early_trials_lack_another() -> None:
    unit = {"low": 0.0, "high": 1.0}
    records = [
        trial_record(
            number,
            params={"x": number / 20, **({"y": (number * 0.618) % 1} if number > 5 else {})},
            scores={"val": number / 20},
        )
        for number in range(20)
    ]
    study = StudySoFar(
        settings=small_settings("s", space={"x": unit, "y": unit}, study={"trials": 20}),
        records=records,
        best=records[-1:],
        words=["out/s"],
        importances={"val": {"x": Importance(0.9, 0.8, 1.0), "y": Importance(0.1, 0.0, 0.2)}},
    )
    assert [[*group] for group in answer_of(study).mattered[0].groups] == [["x"]]
