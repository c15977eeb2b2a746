"""The bound of `pruner: auto`: final scores of completed trials, regressed on their reports."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from .curves import Array, Curves
from .race import FURTHEST


@dataclass(frozen=True, kw_only=True)
class Bound:
    """What the completed trials predict for a trial at its last step. Higher scores are better.

    Attributes:
        likely: The predicted final score.
        spread: The standard deviation of that.
        is_beaten: Whether the best completed score is beyond the bound of the prediction. It must
            not be beyond the bound that the same trial had at that step.
    """

    likely: float
    spread: float
    is_beaten: bool


def bound_of(
    curves: Curves, number: int, *, n_startup_trials: int, confidence: float
) -> Bound | None:
    """Return the bound of a trial at its last step.

    At each step the final scores of completed trials are regressed on the best that these had
    reported up to that step, linearly by least squares, and the bound is that of the prediction of
    one more value (Draper and Smith, 1998, "Applied Regression Analysis", section 3.1).

    Returns:
        None where fewer than `n_startup_trials` completed trials have reported at that step, or all
        of them the same.
    """
    step, sign = max(curves.by_number[number].values), curves.sign
    pairs, best = _pairs_at(step, curves)
    if len(pairs) < n_startup_trials:
        return None
    floors = [floor_of(column) for column in pairs.T]
    reported, final = np.maximum(pairs, floors).T
    own = max(_best_until(step, curves.by_number[number].values, sign), floors[0])
    away = reported - reported.mean()
    squares, freedom = float(away @ away), len(pairs) - 2
    if squares <= 0 or not math.isfinite(own):
        return None
    # A higher score early on is no sign of a lower one in the end.
    slope = max(float(away @ final) / squares, 0.0)
    residuals = final - final.mean() - slope * away
    # Of the trial itself, and of the best completed one as it was at this step.
    both = np.array([own, reported[final.argmax()]]) - reported.mean()
    likely = final.mean() + slope * both
    variance = residuals @ residuals / freedom
    spread = np.sqrt(variance * (1 + 1 / len(pairs) + both**2 / squares))
    from scipy.special import stdtrit  # its import takes 0.1 s

    bounds = likely + stdtrit(freedom, confidence) * spread
    return Bound(
        likely=float(likely[0]),
        spread=float(spread[0]),
        is_beaten=bool(bounds[0] < best <= bounds[1]),
    )


def floor_of(values: Sequence[float] | np.ndarray) -> float:
    """Return the lowest value that counts as it is, where higher ones are better."""
    middle = float(np.median(values))
    return middle - FURTHEST * (float(np.max(values)) - middle)


def _pairs_at(step: int, curves: Curves) -> tuple[Array, float]:
    """Return the best report up to a step and the final score of each completed trial.

    Returns:
        The pairs of the trials that have reported at that step, and the best final score of all.
    """
    pairs, best = [], -math.inf
    for curve in curves.by_number.values():
        if curve.final is None:
            continue
        score = curves.sign * curve.final
        best = max(best, score)
        so_far = _best_until(step, curve.values, curves.sign)
        if step in curve.values and math.isfinite(so_far):
            pairs.append((so_far, score))
    return np.array(pairs), best


def _best_until(step: int, values: Mapping[int, float], sign: float) -> float:
    """Return the best that a trial has reported by a step, higher ones being better."""
    numbers = [sign * value for at, value in values.items() if at <= step and not math.isnan(value)]
    return max(numbers, default=-math.inf)
