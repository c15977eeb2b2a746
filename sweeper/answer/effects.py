"""Test which params have an effect on a score that is larger than the noise, and which pairs have.

The importances of fANOVA add up to 1 even if all scores are noise. So this module asks first
whether there is anything to explain. It fits the ranks of the scores by least squares. Ranks make
the tests insensitive to a few scores that are far off.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from ..trials import TrialRecord, value_text

#: A param or a pair has an effect if its F test has a p-value below this level, divided by the
#: number of params or pairs (chosen). Of 60 studies of pure noise with 12 to 120 random trials,
#: none to five had such a param.
_LEVEL, _LEVEL_OF_PAIRS = 0.05, 0.01
#: A pair acts together if its products explain at least this share of the variance of the ranks
#: (chosen). Smaller shares also come from the curvature of a single effect.
_LEAST_OF_A_PAIR = 0.1
#: Pairs are tested for at most this number of params, those with the largest effects (chosen).
_MOST_PARAMS = 8
#: A param with more choices than this is not tested (chosen): each choice costs a trial.
_MOST_CHOICES = 8

_Columns = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Effects:
    """The effects that are larger than the noise.

    Attributes:
        params: Params with an effect of their own.
        pair: The pair of params that act together most. None if no pair does.
    """

    params: Sequence[str]
    pair: tuple[str, str] | None


def clear_effects(completed: Sequence[TrialRecord], objective: str) -> Effects:
    """Return the effects of params on a score that are larger than the noise.

    Args:
        completed: Completed trials. Only params that all of them have are tested.
        objective: Name of the score.
    """
    ranks = _ranks([record.scores[objective] for record in completed])
    names = [name for name in completed[0].params if all(name in r.params for r in completed)]
    columns = {name: _columns([record.params[name] for record in completed]) for name in names}
    columns = {name: own for name, own in columns.items() if own.shape[1]}
    if not columns or not ranks.any():
        return Effects(params=(), pair=None)
    nothing = np.ones((len(completed), 1))
    n_all = sum(own.shape[1] for own in columns.values())
    chances = {}
    for name, own in columns.items():
        # A sampler moves all params at once, so the others are taken into account if there are
        # enough trials for that.
        others = [it for other, it in columns.items() if other != name]
        known = others if 2 * n_all < len(completed) else []
        chances[name], _ = _test(np.hstack([nothing, *known]), own, ranks)
    shown = [name for name, chance in chances.items() if chance < _LEVEL / len(columns)]
    first = sorted(columns, key=chances.__getitem__)[:_MOST_PARAMS]
    mains = np.hstack([nothing, *(columns[name] for name in first)])
    pairs = {
        (a, b): _test(mains, _products(columns[a], columns[b]), ranks)
        for a, b in combinations(first, 2)
    }
    together = {
        pair: share
        for pair, (chance, share) in pairs.items()
        if chance < _LEVEL_OF_PAIRS / len(pairs) and share >= _LEAST_OF_A_PAIR
    }
    return Effects(params=shown, pair=max(together, key=together.__getitem__, default=None))


def _columns(values: Sequence[Any]) -> _Columns:
    """Return a param as columns of a regression: two polynomials, or a column for each choice."""
    are_numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)
    if are_numbers and len(set(values)) > 2:
        u = _ranks(values)
        squared = u**2
        return np.column_stack([u, squared - squared.mean()])
    texts = [value_text(value) for value in values]
    choices = list(dict.fromkeys(texts))
    if not 2 <= len(choices) <= _MOST_CHOICES:
        return np.empty((len(values), 0))
    marks = np.array([[text == choice for choice in choices[1:]] for text in texts], float)
    centred: _Columns = marks - marks.mean(axis=0)
    return centred


def _products(a: _Columns, b: _Columns) -> _Columns:
    """Return the products of the columns of two params."""
    products: _Columns = np.einsum("ni,nj->nij", a, b).reshape(len(a), -1)
    return products


def _ranks(values: Sequence[float]) -> _Columns:
    """Return the ranks of values, from -1 to 1. Equal values have the same rank. 0 if all are."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    middles = np.cumsum(counts) - (counts + 1) / 2
    ranks: _Columns = 2 * middles[places] / max(len(values) - 1, 1) - 1
    return ranks


def _test(known: _Columns, added: _Columns, ranks: _Columns) -> tuple[float, float]:
    """Return the p-value of columns that are added to a regression, and the share they explain.

    The p-value is 1 if there are too few trials for the test.
    """
    from scipy.special import fdtrc  # the F distribution; scipy.stats takes 10 times as long

    before, _ = _left_over(known, ranks)
    after, n_columns = _left_over(np.hstack([known, added]), ranks)
    n_added = n_columns - np.linalg.matrix_rank(known)
    n_free = len(ranks) - n_columns
    if n_added < 1 or n_free < 3 or before <= 0:
        return 1.0, 0.0
    share = (before - after) / float(ranks @ ranks)
    if after <= 1e-12 * before:
        return 0.0, share
    return float(fdtrc(n_added, n_free, (before - after) / n_added / (after / n_free))), share


def _left_over(columns: _Columns, ranks: _Columns) -> tuple[float, int]:
    """Return the sum of squares that a regression does not explain, and its number of columns."""
    found, _, rank, _ = np.linalg.lstsq(columns, ranks, rcond=None)
    rest = ranks - columns @ found
    return float(rest @ rest), int(rank)
