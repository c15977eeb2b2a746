"""Test which params, and which pairs of params, affect a score by more than the noise.

The importances of fANOVA add up to 1 even if all scores are noise. So this module asks first
whether there is anything to explain. It fits the ranks of the scores by least squares. Ranks make
the tests insensitive to a few outliers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from ..trials import TrialRecord, is_number, value_text

#: A param has an effect if the p-value of its F test is below `_LEVEL`, divided by the number of
#: params that are tested. A pair has a joint effect only if its p-value is below `_LEVEL_OF_PAIRS`,
#: divided by the number of pairs, and if it also reaches `_LEAST_OF_A_PAIR` (both levels chosen).
#:
#: False alarms were measured on studies of random trials with five params, whose scores were normal
#: noise. There were 60 studies each of 12, 30, 60 and 120 trials. The tests found a param with an
#: effect in 2, 4, 3 and 1 of these 60 studies, and a pair with a joint effect in 0, 0, 1 and 0.
_LEVEL, _LEVEL_OF_PAIRS = 0.05, 0.01
#: A pair of params has a joint effect only if the products of their regression columns explain at
#: least this share of the variance of the ranks (chosen). Smaller shares also come from the
#: curvature of the effect of one param.
_LEAST_OF_A_PAIR = 0.1
#: A param explains most of the variance if its share is at least this (chosen).
_MOST_OF_IT = 0.6
#: Pairs are tested for at most this number of params, those with the largest effects (chosen).
_MOST_PARAMS = 8
#: A param with more choices than this is not tested (chosen): each choice is a further column of
#: the regression, and so costs one degree of freedom.
_MOST_CHOICES = 8

_Columns = np.ndarray[Any, np.dtype[np.float64]]


def clear_effects(
    completed: Sequence[TrialRecord], objective: str
) -> tuple[list[str], tuple[str, str] | None]:
    """Return the params, and the pair of params, whose effect on a score exceeds the noise.

    Args:
        completed: Completed trials. Only params that all of them have are tested.
        objective: Name of the score.

    Returns:
        The params that have an effect alone, and the pair of params with the largest joint effect.
        The pair is None if no pair has a joint effect.
    """
    ranks = _ranks([record.scores[objective] for record in completed])
    columns = _columns_by_param(completed)
    # A sampler changes all params at once. So the test of a param accounts for the other params, if
    # there are enough trials.
    n_columns = sum(own.shape[1] for own in columns.values())
    has_enough = 2 * n_columns < len(completed)
    chances = {}
    for name, own in columns.items():
        others = [columns[other] for other in columns if other != name]
        known = _regression(len(ranks), others if has_enough else [])
        chances[name], _ = _test(known, own, ranks)
    first = sorted(columns, key=chances.__getitem__)[:_MOST_PARAMS]
    clear = [name for name, chance in chances.items() if chance < _LEVEL / len(columns)]
    return clear, _joint_effect({name: columns[name] for name in first}, ranks)


def _joint_effect(columns: Mapping[str, _Columns], ranks: _Columns) -> tuple[str, str] | None:
    """Return the pair of params with the largest joint effect on a score. None if no pair has one.

    Args:
        columns: Columns of each param for the regression.
        ranks: Ranks of the scores.
    """
    alone, pairs = _regression(len(ranks), [*columns.values()]), [*combinations(columns, 2)]
    shares = {}
    for a, b in pairs:
        products = np.einsum("ni,nj->nij", columns[a], columns[b]).reshape(len(ranks), -1)
        chance, share = _test(alone, products, ranks)
        if chance < _LEVEL_OF_PAIRS / len(pairs) and share >= _LEAST_OF_A_PAIR:
            shares[a, b] = share
    return max(shares, key=shares.__getitem__, default=None)


def strongest_effect(completed: Sequence[TrialRecord], values: Sequence[float]) -> str | None:
    """Return the param that alone explains most of the variance of values.

    None if no param explains most of it, or if chance may explain the result.

    Args:
        completed: Completed trials. Only params that all of them have are tested.
        values: A value of each trial, such as its duration.
    """
    ranks = _ranks(values)
    columns = _columns_by_param(completed)
    shares = {}
    for name, own in columns.items():
        chance, share = _test(_regression(len(ranks), []), own, ranks)
        if chance < _LEVEL / len(columns) and share >= _MOST_OF_IT:
            shares[name] = share
    return max(shares, key=shares.__getitem__, default=None)


def _regression(n_trials: int, columns: Sequence[_Columns]) -> _Columns:
    """Return the columns of a regression: a constant, and the columns of some params."""
    return np.hstack([np.ones((n_trials, 1)), *columns])


def _columns_by_param(completed: Sequence[TrialRecord]) -> dict[str, _Columns]:
    """Return the columns of each param that can be tested and that all trials have."""
    found = {}
    for name in completed[0].params:
        if all(name in trial.params for trial in completed):
            columns = _columns([trial.params[name] for trial in completed])
            if columns.size:
                found[name] = columns
    return found


def _columns(values: Sequence[Any]) -> _Columns:
    """Return the values of a param as columns of a regression.

    If the values are more than two different numbers, there are two columns: their ranks, and the
    squares of the ranks. All other values are choices, with a column of zeros and ones for each
    choice but the first. The columns are centred. There is no column if the param has one value or
    too many choices.
    """
    texts = [value_text(value) for value in values]
    choices = [*dict.fromkeys(texts)]
    if all(map(is_number, values)) and len(choices) > 2:
        ranks = _ranks(values)
        columns = np.column_stack([ranks, ranks**2])
    elif len(choices) <= _MOST_CHOICES:
        columns = np.array([[text == choice for choice in choices[1:]] for text in texts], float)
    else:
        columns = np.empty((len(values), 0))
    centred: _Columns = columns - columns.mean(axis=0)
    return centred


def _ranks(values: Sequence[float]) -> _Columns:
    """Return the ranks of values, from -1 to 1. Equal values have the same rank."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    middles = np.cumsum(counts) - (counts + 1) / 2
    ranks: _Columns = 2 * middles[places] / max(len(values) - 1, 1) - 1
    return ranks


def _test(known: _Columns, added: _Columns, ranks: _Columns) -> tuple[float, float]:
    """Return the p-value of columns that are added to a regression, and the share they explain.

    The share is that of the variance of the ranks, from 0 to 1. If there are too few trials for the
    test, the p-value is 1.

    Args:
        known: Columns of the regression without the added ones.
        added: Columns that are tested.
        ranks: Ranks of the scores or durations that the regression explains.
    """
    # `fdtrc` is the upper tail of the F distribution. An import of scipy.stats, which has it too,
    # takes 10 times as long.
    from scipy.special import fdtrc

    before, n_known = _left_over(known, ranks)
    after, n_columns = _left_over(np.hstack([known, added]), ranks)
    n_added, n_free = n_columns - n_known, len(ranks) - n_columns
    if n_added < 1 or n_free < 3 or before <= 0:
        return 1.0, 0.0
    ratio = (before - after) / n_added / (max(after, 1e-12 * before) / n_free)
    return float(fdtrc(n_added, n_free, ratio)), (before - after) / float(ranks @ ranks)


def _left_over(columns: _Columns, ranks: _Columns) -> tuple[float, int]:
    """Return the sum of squares that a regression does not explain, and the rank of its matrix.

    The rank of the matrix is the number of linearly independent columns.

    Args:
        columns: Columns of the regression, which are the columns of its matrix.
        ranks: Ranks of the scores or durations that the regression explains.
    """
    found, _, rank, _ = np.linalg.lstsq(columns, ranks, rcond=None)
    rest = ranks - columns @ found
    return float(rest @ rest), int(rank)
