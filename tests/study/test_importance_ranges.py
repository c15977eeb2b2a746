"""How far the importance of params depends on which trials there happen to be."""

from __future__ import annotations

import optuna
import pytest
from optuna.distributions import BaseDistribution, FloatDistribution

from sweeper.study.insights import importance_ranges, param_importances


def study(n_trials: int) -> optuna.Study:
    """Trials whose score depends on x much more than on y."""
    made = optuna.create_study(direction="maximize")
    unit = FloatDistribution(0.0, 1.0)
    space: dict[str, BaseDistribution] = {"x": unit, "y": unit}
    made.sampler = optuna.samplers.RandomSampler(seed=1)
    for _ in range(n_trials):
        trial = made.ask(space)
        made.tell(trial, -((trial.params["x"] - 0.3) ** 2) - 0.001 * trial.params["y"])
    return made


def test_the_range_of_a_param_is_narrower_with_more_trials() -> None:
    few, many = (importance_ranges(study(n), ["val"])["val"]["x"] for n in (12, 120))
    assert many.low <= many.share <= many.high
    assert many.low > 0.5
    assert many.high - many.low < few.high - few.low


def test_shares_and_their_order_are_those_without_ranges() -> None:
    made = study(30)
    ranges = importance_ranges(made, ["val"])["val"]
    shares = param_importances(made, ["val"])["val"]
    assert {name: it.share for name, it in ranges.items()} == pytest.approx(shares)
    assert [*ranges] == [*shares]
    assert importance_ranges(made, ["val"])["val"] == ranges, "the same samples each time"


def test_few_trials_have_no_range() -> None:
    assert importance_ranges(study(9), ["val"]) == {}
