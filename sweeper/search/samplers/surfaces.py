"""Predict the score over two params at a time by the study's Gaussian process, for its page."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from itertools import combinations
from typing import Any

import numpy as np
import optuna
from optuna.study import StudyDirection
from optuna.trial import TrialState

from ...settings.space import SearchSpace
from .padded_gp import on_one_thread
from .padding import Padding
from .views import with_expected_scores

#: Surfaces show all pairs of the most important params: the first number of params, with the second
#: number of points along a range (chosen, not measured).
_PARAMS, _PLACES = 4, 16
#: The Gaussian process is fitted to at most the first number of trials, so that the fit takes
#: seconds. The interaction is averaged over the second number of trials (chosen, not measured).
_MOST_TRIALS, _BACKGROUND = 200, 12
#: Scores are cut off at this many interquartile ranges beyond the quartiles (Tukey's fence for
#: values that are far out). Otherwise, a loss that has exploded would make all others look equal.
_REACH = 3.0

Array = np.ndarray[Any, Any]


def can_predict() -> bool:
    """Return whether this environment has the package by which surfaces are predicted, torch."""
    return find_spec("torch") is not None


def surfaces_of(
    study: optuna.Study,
    space: SearchSpace,
    objectives: Sequence[str],
    important: Mapping[str, Sequence[str]],
    *,
    before_step: Callable[[], None] = lambda: None,
) -> dict[str, list[dict[str, Any]]]:
    """Return predicted surfaces of two params each, by objective, the strongest interaction first.

    The Gaussian process is that of `sampler: gp`, so it needs torch. It takes 1 s of CPU time for
    each objective of 200 trials.

    Args:
        study: Optuna's study.
        space: Search space of the study.
        objectives: Names of the objectives, in Optuna's order.
        important: Params by objective, the most important first.
        before_step: Called before the process is fitted and before each pair. What it raises ends
            the computation.

    Returns:
        For each pair of params: their names as `params`; the `places` along both, where a choice
            has its number; `means` and `stds` of the score there, if all other params are as in the
            best trial; the `interaction`, the share of the predicted variance that neither param
            explains alone. Empty without torch.
    """
    if not can_predict():
        return {}
    padding = Padding(space)
    names = list(padding.distributions)
    trials = padding.seen(with_expected_scores(study)).get_trials(
        deepcopy=False, states=(TrialState.COMPLETE,)
    )
    found = {}
    for objective, params in important.items():
        columns = [names.index(param) for param in params if param in names][:_PARAMS]
        if len(columns) < 2:
            continue
        index = objectives.index(objective)
        sign = 1 if study.directions[index] == StudyDirection.MINIMIZE else -1
        best, *others = sorted(trials, key=lambda trial: sign * trial.values[index])
        others = random.Random(0).sample(others, min(len(others), _MOST_TRIALS - 1))
        points = padding.points([best, *others])
        scores = np.array([trial.values[index] for trial in [best, *others]])
        before_step()
        pairs = []
        with on_one_thread():
            model = _fitted(padding, points, scores)
            for pair in combinations(columns, 2):
                before_step()
                pairs.append(_surface(padding, model, points, pair))
        found[objective] = sorted(pairs, key=lambda pair: -pair["interaction"])
    return found


def _surface(
    padding: Padding,
    model: Callable[[Array], tuple[Array, Array]],
    points: Array,
    pair: tuple[int, int],
) -> dict[str, Any]:
    """Return the surface of two params, given as columns of `points`.

    The first point is the best trial.
    """
    along = [padding.places(column, _PLACES) for column in pair]
    cells = np.tile(points[:_BACKGROUND], (len(along[0]), len(along[1]), 1, 1))
    for axis, (column, places) in enumerate(zip(pair, along, strict=True)):
        cells[..., column] = np.expand_dims(places, (1 - axis, 2))
    means, stds = model(cells)
    effects = means.mean(-1)
    alone = effects.mean(0) + effects.mean(1, keepdims=True) - effects.mean()
    return {
        "params": [list(padding.distributions)[column] for column in pair],
        "places": [
            _short(padding.values_at(column, places)).tolist()
            for column, places in zip(pair, along, strict=True)
        ],
        "means": _short(means[..., 0]).tolist(),
        "stds": _short(stds[..., 0]).tolist(),
        "interaction": float(np.var(effects - alone) / (np.var(model(points)[0]) or 1.0)),
    }


def _fitted(
    padding: Padding, points: Array, scores: Array
) -> Callable[[Array], tuple[Array, Array]]:
    """Return a function that predicts means and standard deviations at points of the unit cube."""
    import torch

    scores = clipped(scores)
    middle, scale = scores.mean(), scores.std() or 1.0
    process = fitted_process(padding, points, (scores - middle) / scale)

    def predict(cells: Array) -> tuple[Array, Array]:
        with torch.no_grad():
            mean, variance = process.posterior(padding.padded(torch.from_numpy(cells)))
        return middle + scale * mean.numpy(), scale * variance.numpy() ** 0.5

    return predict


def clipped(scores: Array) -> Array:
    """Return scores, those that are far out cut off."""
    low, high = np.quantile(scores, [0.25, 0.75])
    reach = _REACH * (high - low) or np.inf
    return np.clip(scores, low - reach, high + reach)


def fitted_process(padding: Padding, points: Array, scores: Array) -> Any:
    """Return Optuna's Gaussian process, fitted to scores of mean 0 and variance 1."""
    from optuna._gp import gp, prior

    return gp.fit_kernel_params(
        X=points,
        Y=scores,
        is_categorical=padding.is_choice,
        log_prior=prior.default_log_prior,
        minimum_noise=prior.DEFAULT_MINIMUM_NOISE_VAR,
        deterministic_objective=False,
    )


_short = np.vectorize(lambda value: float(f"{value:.4g}"))
