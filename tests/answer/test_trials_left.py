"""The answer of a study suggests only next steps that are possible and have an effect."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from studies import assert_says, small_settings, trial_record

from sweeper.answer import StudySoFar, answer_of
from sweeper.trials import TrialState


def next_step(
    n_trials: int,
    *,
    last: TrialState = TrialState.COMPLETED,
    spent: float | None = None,
    queued: int = 0,
    by_hand: Sequence[int] = (),
    lr: float | None = None,
    **stated: Any,
) -> str:
    """Return the answer's sentence `next` for a study that has run this number of its 12 trials."""
    study: dict[str, Any] = {"trials": 12, **stated.pop("study", {})}
    settings = small_settings("s", objective={"acc": "maximize"}, study=study, **stated)
    records = [
        trial_record(
            number,
            state=last if number == n_trials - 1 else TrialState.COMPLETED,
            params={"lr": number if lr is None else lr},
            scores={"acc": 0.5},
            seed=number,
            by_hand=number in by_hand,
        )
        for number in range(n_trials)
    ]
    found = answer_of(
        StudySoFar(
            settings=settings,
            records=records,
            best=records[:1],
            words=["out/s"],
            cost=spent,
            by_hand=queued,
        )
    )
    return dict(found.sentences).get("next", "")


@pytest.mark.parametrize(
    ("n_trials", "stated", "n_left"),
    [
        (9, {}, 3),
        (9, {"study": {"sampler": "grid"}, "space": {"lr": [*range(9)]}}, 0),
        (8, {"study": {"sampler": "grid"}, "space": {"lr": [*range(9)]}}, 1),
        (11, {"by_hand": [8, 9]}, 3),
        (12, {"queued": 1}, 1),
        (12, {"queued": 2, "by_hand": [8]}, 2),
        (13, {"queued": 1, "by_hand": [12]}, 0),
        (13, {"queued": 1, "by_hand": [12], "last": TrialState.STOPPED}, 1),
        (9, {"by_hand": [0], "study": {"sampler": "grid"}, "space": {"lr": [*range(9)]}}, 0),
        (10, {"repeat": {"seeds": 3}}, 0),
        (9, {"repeat": {"seeds": 3}}, 3),
        (10, {"repeat": {"seeds": 3}, "last": TrialState.STOPPED}, 3),
    ],
)
def test_the_answer_states_how_many_trials_the_same_command_would_still_run(
    n_trials: int, stated: dict[str, Any], n_left: int
) -> None:
    step = next_step(n_trials, **stated)
    assert ("trials that are left" in step) is (n_left > 0)
    assert not n_left or f"trials that are left: {n_left}" in step


def test_the_answer_advises_a_total_of_twice_as_many_trials_as_have_run() -> None:
    settings = small_settings("s", objective={"val": "maximize"}, study={"trials": 12})
    for n_trials in (12, 30):
        records = [
            trial_record(number, params={"x": number, "y": -number}, scores={"val": number % 5})
            for number in range(n_trials)
        ]
        study = StudySoFar(
            settings=settings,
            records=records,
            best=records[4:5],
            words=["s"],
            importances={"val": {}},
        )
        next_ = dict(answer_of(study).sentences)["next"]
        assert_says(next_, f"`--trials {2 * n_trials}` shows more")


def test_a_resumed_trial_is_not_recommended_for_the_short_time_since_its_checkpoint() -> None:
    def time_of(**cheap: Any) -> str:
        records = [
            trial_record(number, duration_s=1200.0 + number, scores={"val": 0.5 + number / 100})
            for number in range(11)
        ]
        records += [trial_record(11, duration_s=60.0, scores={"val": 0.6}, **cheap)]
        settings = small_settings("s", objective={"val": "maximize"})
        study = StudySoFar(settings=settings, records=records, best=records[10:11], words=["s"])
        return dict(answer_of(study).sentences)["time"]

    assert_says(time_of(), "1m00s to 20m10s per trial", "0011 has val=0.6 in 5 %")
    for resumed in (time_of(attempt=2), time_of(retry_of=3)):
        assert "0011" not in resumed
        assert "20m05s per trial (median)" in resumed


def test_after_a_spent_budget_the_answer_suggests_only_a_greater_budget() -> None:
    cost = {"price_per_hour": 1, "budget": 2}
    assert_says(next_step(9, cost=cost, spent=2.0), "`cost.budget` above 2.00", "left: 3")
    assert next_step(12, cost=cost, spent=2.0) == ""
    assert "budget" not in next_step(9, cost=cost, spent=1.9)


@pytest.mark.parametrize(
    "stated",
    [{"fixed": {"seed": 7}}, {"space": {"lr": [0.1, 0.2], "seed": [0, 1]}}],
)
def test_a_confirmation_is_suggested_only_if_the_seed_is_neither_fixed_nor_swept(
    stated: dict[str, Any],
) -> None:
    space: dict[str, Any] = {"space": {"lr": [0.1, 0.2]}}
    assert "--confirm" not in next_step(12, **{**space, **stated})
    assert "--confirm 3" in next_step(12, **space)


def test_the_answer_suggests_to_confirm_at_most_as_many_trials_as_have_completed() -> None:
    assert "`--confirm 2` runs the best 2 again" in next_step(2, study={"trials": 2})
    assert "--confirm" not in next_step(2, study={"trials": 2}, lr=0.1), "the same params twice"


def test_the_advice_to_widen_a_range_also_advises_more_trials() -> None:
    space = {"x": {"low": 1e-3, "high": 0.1, "log": True}}
    records = [
        trial_record(number, params={"x": 10 ** (-3 + number / 6)}, scores={"val": -number})
        for number in range(12)
    ]
    settings = small_settings("s", space=space, study={"trials": 12})
    study = StudySoFar(settings=settings, records=records, best=records[:1], words=["out/s"])
    next_ = dict(answer_of(study).sentences)["next"]
    assert_says(next_, "try x below 0.001", "`--allow-changes --trials 24`")
