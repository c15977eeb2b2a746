"""The answer promises further trials only if the same command would run them."""

from __future__ import annotations

from typing import Any

import pytest
from studies import small_settings, trial_record

from sweeper.answer import StudySoFar, answer_of
from sweeper.trials import TrialState


def next_step(n_trials: int, *, last: TrialState = TrialState.COMPLETED, **stated: Any) -> str:
    """Return the line `next` of a study that ran this number of its 12 trials."""
    study: dict[str, Any] = {"trials": 12, **stated.pop("study", {})}
    settings = small_settings("s", objective={"acc": "maximize"}, study=study, **stated)
    records = [
        trial_record(
            number,
            state=last if number == n_trials - 1 else TrialState.COMPLETED,
            params={"lr": 0.1},
            scores={"acc": 0.5},
            seed=number,
        )
        for number in range(n_trials)
    ]
    found = answer_of(
        StudySoFar(settings=settings, records=records, best=records[:1], folder="out/s")
    )
    return dict(found.sentences).get("next", "")


@pytest.mark.parametrize(
    ("n_trials", "stated", "n_left"),
    [
        (9, {}, 3),
        (9, {"study": {"sampler": "grid"}, "space": {"lr": [*range(9)]}}, 0),
        (8, {"study": {"sampler": "grid"}, "space": {"lr": [*range(9)]}}, 1),
        (10, {"repeat": {"seeds": 3}}, 0),
        (9, {"repeat": {"seeds": 3}}, 3),
        (10, {"repeat": {"seeds": 3}, "last": TrialState.STOPPED}, 3),
    ],
)
def test_the_answer_counts_only_trials_that_the_same_command_would_run(
    n_trials: int, stated: dict[str, Any], n_left: int
) -> None:
    step = next_step(n_trials, **stated)
    assert ("trials that are left" in step) is (n_left > 0)
    assert not n_left or f"trials that are left: {n_left}" in step
