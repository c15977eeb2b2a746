"""Measure by the study's Gaussian process how much each param matters for a score.

A sampler that has learned proposes similar params again and again. A forest of trees sees little
else in such trials. The process predicts the score in the whole space, and knows where it is
unsure.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import optuna
from optuna.trial import TrialState

from ...settings.space import SearchSpace
from ...trials import Importance
from .padded_gp import on_one_thread
from .padding import Padding
from .surfaces import Array, clipped, fitted_process

#: The effects are measured at the first number of points for each param, but at no more than the
#: second number of points in all, whose covariances are known together (chosen).
_POINTS, _MOST_PLACES = 128, 1024
#: They are measured in the first number of functions that the process holds possible. It is fitted
#: to at most the second number of trials (chosen).
_FUNCTIONS, _MOST_TRIALS = 64, 200
#: The interval of a share covers this share of the functions (chosen).
_WITHIN = 0.9
#: Nothing stands out from the noise if the process predicts no more than the first number of the
#: variance of the scores, each from all others, and the second number divided by the number of
#: trials (chosen). In seven studies of a sampler that learns, whose scores were noise, it predicted
#: up to 0.62 for 12 trials, 0.40 for 20, 0.18 for 30, 0.23 for 60 and 0.02 for 120.
_LEAST_PREDICTED, _BY_LUCK = 0.08, 10


def effects_of(
    study: optuna.Study,
    space: SearchSpace,
    objectives: Sequence[str],
    *,
    before_step: Callable[[], None] = lambda: None,
) -> dict[str, dict[str, Importance]]:
    """Return the share of each objective's variance in the whole space that each param explains.

    A share is the total effect of Saltelli and others (2010, "Variance based sensitivity analysis
    of model output"): of the param alone and together with others. Shares are divided by their sum,
    so that they add up to 1. The spread over possible functions gives the interval. The functions
    are drawn from the process that is fitted to the completed trials. If the process predicts each
    trial from all others no better than luck would, the lower bound of each interval is 0.

    Args:
        study: Optuna's study.
        space: Search space of the study.
        objectives: Names of the objectives, in Optuna's order.
        before_step: Called before each step. What it raises ends the computation.

    Returns:
        By objective the params with more than one value, the largest share first. An objective
        whose scores are all equal is missing.
    """
    padding = Padding(space)
    names = list(padding.distributions)
    trials = padding.seen(study).get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    trials = random.Random(0).sample(trials, min(len(trials), _MOST_TRIALS))
    points = padding.points(trials)
    found = {}
    for index, objective in enumerate(objectives):
        scores = clipped(np.array([trial.values[index] for trial in trials]))
        if np.ptp(scores) == 0:
            continue
        scores = (scores - scores.mean()) / scores.std()
        before_step()
        with on_one_thread():
            process = fitted_process(padding, points, scores)
            before_step()
            shares, joint = _shares(padding, process, len(names))
        least = _LEAST_PREDICTED + _BY_LUCK / len(trials)
        is_predicted = _predicted_share(process, scores) > least
        edges = np.quantile(shares, [(1 - _WITHIN) / 2, (1 + _WITHIN) / 2], axis=0)
        known = {
            name: Importance(
                share=float(shares[:, column].mean()),
                low=float(edges[0, column]) if is_predicted else 0.0,
                high=float(edges[1, column]),
                joint=float(joint[:, column].mean()) if is_predicted else 0.0,
                is_clear=is_predicted,
            )
            for column, name in enumerate(names)
        }
        found[objective] = dict(sorted(known.items(), key=lambda named: -named[1].share))
    return found


def _shares(padding: Padding, process: Any, n_params: int) -> tuple[Array, Array]:
    """Return the total and the joint effects of each param, shape (functions, params)."""
    import torch
    from scipy.stats import qmc

    n_points = min(_POINTS, 1 << (_MOST_PLACES // (n_params + 2)).bit_length() - 1)
    cube = qmc.Sobol(2 * n_params, rng=np.random.default_rng(0)).random(n_points)
    base, other = cube[:, :n_params], cube[:, n_params:]
    for column, is_choice in enumerate(padding.is_choice):
        if is_choice:
            choices = len(padding.places(column, 0))
            base[:, column] = np.floor(base[:, column] * choices)
            other[:, column] = np.floor(other[:, column] * choices)
    mixed = np.tile(base, (n_params, 1, 1))
    for column in range(n_params):
        mixed[column, :, column] = other[:, column]
    places = np.concatenate([base[None], other[None], mixed]).reshape(-1, n_params)
    with torch.no_grad():
        mean, covariance = process.posterior(padding.padded(torch.from_numpy(places)), joint=True)
    values, vectors = np.linalg.eigh(covariance.numpy())
    root = vectors * np.sqrt(np.clip(values, 0, None))
    noise = np.random.default_rng(0).standard_normal((len(root), _FUNCTIONS))
    drawn = (mean.numpy()[:, None] + root @ noise).T
    drawn = drawn.reshape(_FUNCTIONS, n_params + 2, n_points)
    first, second, changed = drawn[:, :1], drawn[:, 1:2], drawn[:, 2:]
    variance = drawn[:, :2].reshape(_FUNCTIONS, -1).var(1)[:, None]
    total = ((first - changed) ** 2).mean(-1) / 2  # Jansen's estimators
    alone = variance - ((second - changed) ** 2).mean(-1) / 2
    sums = np.maximum(total.sum(1, keepdims=True), 1e-300)
    return total / sums, np.clip(total - alone, 0, None) / np.maximum(variance, 1e-300)


def _predicted_share(process: Any, scores: Array) -> float:
    """Return the share of the variance of the scores that is predicted from the other trials."""
    covariance = process.kernel().numpy() + float(process.noise_var) * np.eye(len(scores))
    inverse = np.linalg.inv(covariance)
    errors = inverse @ scores / np.diag(inverse)
    return float(1 - np.mean(errors**2))
