"""Predict how a score depends on two params together, for the comparison page of a study.

A surface is a grid of values of two params, with the score that the Gaussian process of the study
predicts for each point of the grid.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from .padded_gp import on_one_thread
from .padding import Array
from .score_model import ScoreModel, ScoreModels

#: There is one surface for each pair of the most important params. The first number is the number
#: of these params. The second one is the number of points that a surface has along a range (chosen,
#: not measured).
_PARAMS, _PLACES = 4, 16
#: The effect of two params is averaged over values of the other params, at the first number of
#: points. It is compared with the score's variance over the second number of points (chosen, not
#: measured).
_BACKGROUND, _WHOLE = 16, 256


def surfaces_of(
    models: ScoreModels,
    important: Mapping[str, Sequence[str]],
    *,
    before_step: Callable[[], None] = lambda: None,
) -> dict[str, list[dict[str, Any]]]:
    """Return the predicted score over the values of two params, for each objective.

    There is a surface for each pair of the `_PARAMS` most important params that the model has. The
    pair with the strongest interaction is first. Objectives without a model, or with fewer than two
    such params, are left out.

    Args:
        models: Models of the study's scores.
        important: Params by objective, the most important first.
        before_step: Called before a model is fitted and before each pair. An exception that it
            raises ends the computation.

    Returns:
        By objective, a mapping for each pair of params, with these keys. `params`: the names of
        both. `places`: the values of each param on the grid, or the indices of its choices. `means`
        and `stds`: the predicted score and its standard deviation on the grid, if all other params
        are as in the best trial. `interaction`: the share of the score's variance in the whole
        space that is explained by both params together, but by neither of them alone.
    """
    found = {}
    for objective, params in important.items():
        model = models.of(objective, before_step=before_step) if len(params) > 1 else None
        if model is None:
            continue
        (whole,) = model.padding.spread(_WHOLE, 1)
        modelled = [name for name in params if name in model.names]
        columns = [model.names.index(name) for name in modelled[:_PARAMS]]
        pairs = []
        with on_one_thread():
            variance = float(np.var(model.predict(whole)[0]))
            for pair in combinations(columns, 2):
                before_step()
                pairs.append(_surface(model, pair, whole[:_BACKGROUND], variance))
        if pairs:
            found[objective] = sorted(pairs, key=lambda pair: -pair["interaction"])
    return found


def _surface(
    model: ScoreModel, pair: tuple[int, int], others: Array, variance: float
) -> dict[str, Any]:
    """Return the predicted score over the values of two params, with the keys of `surfaces_of`.

    Args:
        model: Model of the score.
        pair: Indices of the two params in `model.names`.
        others: Points of the unit cube. The interaction is averaged over their values of the other
            params.
        variance: Variance of the predicted score in the whole space.
    """
    padding = model.padding
    along = [padding.places(column, _PLACES) for column in pair]
    background = np.concatenate([model.points[:1], others])
    n_rows, n_columns = map(len, along)
    cells = np.tile(background, (n_rows, n_columns, 1, 1))
    for axis, (column, places) in enumerate(zip(pair, along, strict=True)):
        cells[..., column] = np.expand_dims(places, (1 - axis, 2))
    means, stds = model.predict(cells)
    effects = means[..., 1:].mean(-1)
    alone = effects.mean(0) + effects.mean(1, keepdims=True) - effects.mean()
    whole = max(variance, float(np.var(effects))) or 1.0
    values = [padding.values_at(*axis) for axis in zip(pair, along, strict=True)]
    return {
        "params": [model.names[column] for column in pair],
        "places": [_short(of_axis).tolist() for of_axis in values],
        "means": _short(means[..., 0]).tolist(),
        "stds": _short(stds[..., 0]).tolist(),
        "interaction": float(np.var(effects - alone) / whole),
    }


_short = np.vectorize(lambda value: float(f"{value:.4g}"))
