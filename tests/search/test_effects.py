"""Test how much each param matters for a score, by the study's Gaussian process."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import optuna
import pytest
from optuna.trial import TrialState

from sweeper.search.samplers import ScoreModels, effects_of
from sweeper.search.samplers.distributions import suggest
from sweeper.settings import Settings
from sweeper.settings.space import SearchSpace
from sweeper.trials import Importance

pytestmark = pytest.mark.slow  # it imports torch

CUBE = {name: {"low": 0.0, "high": 1.0} for name in "xyz"}


def space_of(space: Mapping[str, Any]) -> SearchSpace:
    return Settings.from_mapping(
        {"objective": {"val": "maximize"}, "space": space, "study": {"name": "s", "trials": 9}}
    ).search_space


def studied(
    space: Mapping[str, Any],
    score: Callable[[dict[str, Any]], float],
    *,
    trials: int = 60,
    sampler: optuna.samplers.BaseSampler | None = None,
) -> optuna.Study:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    sampler = sampler or optuna.samplers.RandomSampler(seed=1)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    study.optimize(lambda trial: score(suggest(trial, space_of(space))), n_trials=trials)
    return study


def measured(
    space: Mapping[str, Any], score: Callable[[dict[str, Any]], float], **more: Any
) -> dict[str, Importance]:
    study = studied(space, score, **more)
    return effects_of(ScoreModels(study, space_of(space), ["val"])).get("val", {})


def test_the_importance_of_a_param_in_a_linear_function_is_its_part_of_the_scores_variance() -> (
    None
):
    # For x and y uniform in [0, 1], the variances of 3x and 4y are 9/12 and 16/12.
    found = measured(CUBE, lambda params: 3 * params["x"] + 4 * params["y"])
    assert [*found] == ["y", "x", "z"]
    assert found["y"].share == pytest.approx(16 / 25, abs=0.06)
    assert found["x"].share == pytest.approx(9 / 25, abs=0.06)
    assert sum(effect.share for effect in found.values()) == pytest.approx(1)
    for effect in found.values():
        assert effect.low <= effect.share <= effect.high
        assert effect.joint < 0.1
        assert effect.is_clear


def test_params_that_matter_only_together_have_a_joint_effect_in_trials_proposed_by_tpe() -> None:
    noise = random.Random(1)
    found = measured(
        CUBE,
        lambda params: -((params["x"] - params["y"]) ** 2) + noise.gauss(0, 0.01),
        sampler=optuna.samplers.TPESampler(seed=1, multivariate=True),
    )
    assert found["x"].joint > 0.5
    assert found["y"].joint > 0.5
    assert found["z"].share < 0.1


@pytest.mark.parametrize("trials", [12, 60])
def test_no_param_has_a_clear_effect_if_scores_are_only_noise(trials: int) -> None:
    noise = random.Random(2)
    found = measured(CUBE, lambda _: noise.gauss(), trials=trials)
    assert {(effect.low, effect.joint, effect.is_clear) for effect in found.values()} == {
        (0.0, 0.0, False)
    }


def test_a_categorical_param_and_a_param_of_one_branch_can_have_the_largest_effect() -> None:
    space = {
        "kind": {"choices": ["a", "b"]},
        "rate": {"low": 1e-4, "high": 1.0, "log": True, "when": {"kind": ["b"]}},
    }
    found = measured(space, lambda params: math.log10(params.get("rate", 1e-2)))
    assert found["rate"].share > 0.5
    found = measured({**CUBE, "kind": space["kind"]}, lambda params: float(params["kind"] == "a"))
    assert next(iter(found)) == "kind"
    assert found["kind"].share > 0.9


def test_no_effects_are_computed_if_all_scores_are_equal() -> None:
    assert measured(CUBE, lambda _: 1.0, trials=12) == {}


def test_the_estimated_noise_is_the_standard_deviation_between_runs_of_the_same_params() -> None:
    noise = random.Random(3)
    study = studied(CUBE, lambda params: params["x"] ** 2 + noise.gauss(0, 0.02))
    models = ScoreModels(study, space_of(CUBE), ["val"])
    assert models.noise == {}  # empty, because nothing was fitted yet
    effects_of(models)
    assert models.noise["val"] == pytest.approx(0.02, rel=0.3)


def test_pruned_trials_count_with_their_predicted_scores_and_failed_ones_do_not_count() -> None:
    drawn = random.Random(4)
    unit = optuna.distributions.FloatDistribution(0.0, 1.0)
    study = optuna.create_study(direction="maximize")
    counts = {TrialState.COMPLETE: 20, TrialState.PRUNED: 30, TrialState.FAIL: 5}
    for state in (state for state, count in counts.items() for _ in range(count)):
        is_completed = state is TrialState.COMPLETE
        x = drawn.uniform(0.6, 1) if is_completed else drawn.uniform(0, 0.6)
        study.add_trial(
            optuna.trial.create_trial(
                state=state,
                params={"x": x, "y": drawn.random(), "z": drawn.random()},
                distributions=dict.fromkeys("xyz", unit),
                intermediate_values={0: x / 2, 1: x} if is_completed else {0: x / 2},
                value=x if is_completed else None,
            )
        )
    models = ScoreModels(study, space_of(CUBE), ["val"])
    model = models.of("val")
    assert model is not None
    assert len(model.points) == 50
    low, high = (model.predict(np.array([[x, 0.5, 0.5]]))[0][0] for x in (0.2, 0.8))
    assert low < 0.5 < high
    assert models.noise == {}, "predicted scores have errors of their own"


def test_the_estimated_noise_of_scores_without_effects_is_their_standard_deviation() -> None:
    noise = random.Random(2)
    study = studied(CUBE, lambda _: noise.gauss(0, 0.02))
    models = ScoreModels(study, space_of(CUBE), ["val"])
    effects_of(models)
    assert models.noise["val"] == pytest.approx(0.02, rel=0.2)
