"""How much each param matters."""

from __future__ import annotations

import optuna
import pytest
from optuna.distributions import BaseDistribution, FloatDistribution

from sweeper.study.insights import param_importances


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


def test_the_param_on_which_scores_depend_most_comes_first() -> None:
    shares = param_importances(study(30), ["val"])["val"]
    assert [*shares] == ["x", "y"]
    assert shares["x"] > 0.5
    assert sum(shares.values()) == pytest.approx(1.0)


def test_few_trials_say_nothing() -> None:
    assert param_importances(study(9), ["val"]) == {}
