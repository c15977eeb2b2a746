"""Measure with the Gaussian process of a study how much each param matters for a score.

A sampler that has learned proposes similar params again and again. A random forest that is fitted
to such trials learns little about the rest of the space. The Gaussian process predicts the score in
the whole space, and knows where it is unsure (decision 35).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from ...trials import Importance
from .padded_gp import on_one_thread
from .padding import Array
from .score_model import ScoreModel, ScoreModels

#: To measure the effects of n params on a score, scores are predicted in n + 2 groups of points. A
#: group has at most the first number of points, and all groups have at most the second number,
#: because the covariance of all points is computed (chosen, not measured).
_POINTS, _MOST_PLACES = 128, 1024
#: The effects are measured in this number of functions, which are random draws from the Gaussian
#: process. They differ where the process is unsure (chosen, not measured).
_FUNCTIONS = 64
#: Ends of the interval of an importance, as quantiles over these functions (chosen, not measured).
INTERVAL = [(1 - 0.9) / 2, (1 + 0.9) / 2]


def effects_of(
    models: ScoreModels, *, before_step: Callable[[], None] = lambda: None
) -> dict[str, dict[str, Importance]]:
    """Return how much of a score's variance in the whole space each param explains.

    This share is the total effect of Saltelli and others (2010, "Variance based sensitivity
    analysis of model output"): what the param explains alone and together with other params. Shares
    are divided by their sum, so that they add up to 1. They are measured in random functions that
    are drawn from the fitted Gaussian process. Their mean is the share, and their spread gives its
    interval. If the process predicts each score from all others no better than it would predict
    noise, the interval begins at 0.

    Args:
        models: Models of the study's scores.
        before_step: Called before a model is fitted, and before its effects are measured. An
            exception that it raises ends the computation.

    Returns:
        For each objective, the importances by param, the largest share first. Params with a single
        value are missing, and objectives without scores or with equal scores.
    """
    found = {}
    for objective in models.objectives:
        model = models.of(objective, before_step=before_step)
        if model is None:
            continue
        before_step()
        with on_one_thread():
            shares, joint = _shares(model)
        is_predicted = model.predicts_better_than_luck
        lows, highs = np.quantile(shares, INTERVAL, axis=0)
        known = {}
        for column, name in enumerate(model.names):
            known[name] = Importance(
                share=float(shares[:, column].mean()),
                low=float(lows[column]) if is_predicted else 0.0,
                high=float(highs[column]),
                joint=float(joint[:, column].mean()) if is_predicted else 0.0,
                is_clear=is_predicted,
            )
        found[objective] = by_share(known)
    return found


def by_share(importances: Mapping[str, Importance]) -> dict[str, Importance]:
    """Return importances with the largest share first."""
    return dict(sorted(importances.items(), key=lambda named: -named[1].share))


def _shares(model: ScoreModel) -> tuple[Array, Array]:
    """Return the total effect of each param, and the part that it has only with other params.

    Both are measured in functions that are drawn from the Gaussian process, so both arrays have the
    shape (functions, params). The total effects in a function add up to 1. The other parts are
    shares of the function's variance.
    """
    import torch

    padding, n_params = model.padding, len(model.names)
    most = _MOST_PLACES // (n_params + 2)
    n_points = min(_POINTS, 1 << most.bit_length() - 1)
    base, other = padding.spread(n_points, 2)
    mixed = np.tile(base, (n_params, 1, 1))
    for column in range(n_params):
        mixed[column, :, column] = other[:, column]
    places = np.concatenate([base[None], other[None], mixed]).reshape(-1, n_params)
    with torch.no_grad():
        mean, covariance = model.process.posterior(
            padding.padded(torch.from_numpy(places)), joint=True
        )
    values, vectors = np.linalg.eigh(covariance.numpy())
    root = vectors * np.sqrt(np.clip(values, 0, None))
    noise = np.random.default_rng(0).standard_normal((len(root), _FUNCTIONS))
    drawn = (mean.numpy()[:, None] + root @ noise).T
    drawn = drawn.reshape(_FUNCTIONS, n_params + 2, n_points)
    first, second, changed = drawn[:, :1], drawn[:, 1:2], drawn[:, 2:]
    variance = drawn[:, :2].reshape(_FUNCTIONS, -1).var(1)[:, None]
    # Jansen's estimators of a param's total effect, and of its effect alone.
    total = ((first - changed) ** 2).mean(-1) / 2
    alone = variance - ((second - changed) ** 2).mean(-1) / 2
    sums = np.maximum(total.sum(1, keepdims=True), 1e-300)
    joint = np.clip(total - alone, 0, None) / np.maximum(variance, 1e-300)
    return total / sums, joint
