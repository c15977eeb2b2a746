"""Test surfaces: the scores that a study's Gaussian process predicts over two of its params."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Mapping
from typing import Any

import optuna
import pytest

from sweeper.search.samplers import ScoreModels, surfaces_of
from sweeper.search.samplers.distributions import suggest
from sweeper.settings import Settings
from sweeper.settings.space import SearchSpace
from sweeper.study.insights import forest_importances, param_importances

pytestmark = pytest.mark.slow  # it imports torch
SPACE = {
    "x": {"low": 0.0, "high": 1.0},
    "rate": {"low": 1e-4, "high": 1.0, "log": True},
    "layers": {"choices": [[32], [64, 64]]},
    "depth": {"low": 1, "high": 3, "when": {"layers": [[64, 64]]}},
}


def space_of(space: Mapping[str, Any]) -> SearchSpace:
    study = {"name": "s", "trials": 9}
    return Settings.from_mapping(
        {"objective": {"loss": "minimize"}, "space": space, "study": study}
    ).search_space


def study_of(space: SearchSpace, score: Callable[[dict[str, Any]], float]) -> optuna.Study:
    """Return a study of 40 random trials."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=1))
    noise = random.Random(1)
    study.optimize(lambda trial: score(suggest(trial, space)) + noise.gauss(0, 0.01), n_trials=40)
    return study


def test_the_first_surface_is_over_the_interacting_params_and_predicts_the_true_score() -> None:
    space = space_of(SPACE)

    def loss(params: dict[str, Any]) -> float:
        return float((params["x"] - 0.5) * (math.log10(params["rate"]) + 2))

    models = ScoreModels(study_of(space, loss), space, ["loss"])
    found = surfaces_of(models, {"loss": ["rate", "x", "layers", "depth"]})["loss"]
    first, *others = found
    assert first["params"] == ["rate", "x"]
    assert 0.5 < first["interaction"] <= 1
    assert all(surface["interaction"] < 0.1 for surface in others)
    rates, xs = first["places"]
    assert (rates[0], rates[-1], xs[0], xs[-1]) == (1e-4, 1.0, 0.0, 1.0)
    corner = first["means"][rates.index(1.0)][xs.index(1.0)]
    assert corner == pytest.approx(1.0, abs=0.3)
    assert all(std > 0 for row in first["stds"] for std in row)
    layers = next(s for s in others if s["params"] == ["x", "layers"])
    assert layers["places"][1] == [0, 1]  # positions of the choices in their list
    depth = next(s for s in others if s["params"] == ["x", "depth"])
    assert set(depth["places"][1]) == {1, 2, 3}


def test_params_with_additive_effects_do_not_interact_and_an_outlier_changes_little() -> None:
    space = space_of({"x": {"low": 0.0, "high": 1.0}, "y": {"low": 0.0, "high": 1.0}})

    def loss(params: dict[str, Any]) -> float:
        return 1e9 if params["x"] > 0.97 else float((params["x"] - 0.3) ** 2 + params["y"])

    models = ScoreModels(study_of(space, loss), space, ["loss"])
    [surface] = surfaces_of(models, {"loss": ["x", "y"]})["loss"]
    assert surface["interaction"] < 0.1
    assert surface["means"][5][0] < surface["means"][5][-1] < 2


def test_a_single_param_has_no_surface_of_predicted_scores() -> None:
    space = space_of({"x": {"low": 0.0, "high": 1.0}})
    study = study_of(space, lambda params: float(params["x"]))
    assert surfaces_of(ScoreModels(study, space, ["loss"]), {"loss": ["x"]}) == {}


class StoppedError(Exception):
    pass


def test_computing_score_surfaces_or_importances_can_be_stopped_before_each_step() -> None:
    space = space_of({"x": {"low": 0.0, "high": 1.0}, "y": {"low": 0.0, "high": 1.0}})
    study = study_of(space, lambda params: float(params["x"] * params["y"]))

    def stop_at(step: int) -> Callable[[], None]:
        steps = itertools.count(1)

        def before_step() -> None:
            if next(steps) == step:
                raise StoppedError

        return before_step

    for step in (1, 2):  # stop before the fit of the Gaussian process, or before the only pair
        models = ScoreModels(study, space, ["loss"])
        with pytest.raises(StoppedError):
            surfaces_of(models, {"loss": ["x", "y"]}, before_step=stop_at(step))
        models = ScoreModels(study, space, ["loss"])
        with pytest.raises(StoppedError):  # importances have two steps too: the fit, and the shares
            param_importances(study, ["loss"], models, before_step=stop_at(step))
    # The Gaussian process was fitted for the importances, so only the step of the pair remains.
    models = ScoreModels(study, space, ["loss"])
    param_importances(study, ["loss"], models)
    assert surfaces_of(models, {"loss": ["x", "y"]}, before_step=stop_at(2))
    for step in (1, 5):
        with pytest.raises(StoppedError):
            forest_importances(study, ["loss"], before_step=stop_at(step))
