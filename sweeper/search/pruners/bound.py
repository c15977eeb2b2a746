"""Predict a trial's final score from its reports so far, by a regression over completed trials.

`pruner: auto` prunes a trial if the best score of a completed trial is above the upper bound of
this prediction. `Bound.is_beaten` states the exception.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from .curves import Array, Curves
from .race import FURTHEST


@dataclass(frozen=True, kw_only=True)
class Bound:
    """Prediction of a trial's final score from completed trials. Higher scores are better.

    Attributes:
        likely: Predicted final score.
        spread: Standard deviation of the prediction.
        is_beaten: Whether the best score of a completed trial is above the upper bound of the
            prediction. Also False if the best completed trial ended above the bound that the
            regression gives for it at the same step, because such bounds are then too low.
    """

    likely: float
    spread: float
    is_beaten: bool


def bound_of(
    curves: Curves, number: int, *, n_startup_trials: int, confidence: float
) -> Bound | None:
    """Return the prediction for a trial after its latest report.

    The final scores of completed trials are regressed on their best reports up to the step of that
    report, linearly by least squares. The bound is the prediction bound for one new value (Draper
    and Smith, 1998, "Applied Regression Analysis", section 3.1).

    Args:
        curves: Learning curves of the study.
        number: Trial number in the study.
        n_startup_trials: Completed trials that are needed for a prediction.
        confidence: One-sided confidence level of the bound.

    Returns:
        The prediction. None if fewer than `n_startup_trials` completed trials have reported at that
        step, or if all of them have reported the same value.
    """
    values, sign = curves.by_number[number].values, curves.sign
    step = max(values)
    pairs, best = _pairs_at(step, curves)
    if len(pairs) < n_startup_trials:
        return None
    floors = [floor_of(column) for column in pairs.T]
    reported, final = np.maximum(pairs, floors).T
    own = max(_best_until(step, values, sign), floors[0])
    away = reported - reported.mean()
    squares, freedom = float(away @ away), len(pairs) - 2
    if squares <= 0 or not math.isfinite(own):
        return None
    # A higher early score must not predict a lower final score, so the slope is never negative.
    slope = max(float(away @ final) / squares, 0.0)
    residuals = final - final.mean() - slope * away
    # Predictions for the trial itself, and for the best completed trial as it was at this step.
    of_best = reported[final.argmax()]
    both = np.array([own, of_best]) - reported.mean()
    likely = final.mean() + slope * both
    variance = residuals @ residuals / freedom
    spread = np.sqrt(variance * (1 + 1 / len(pairs) + both**2 / squares))
    from scipy.special import stdtrit  # The import takes 0.1 s.

    bounds = likely + stdtrit(freedom, confidence) * spread
    return Bound(
        likely=float(likely[0]),
        spread=float(spread[0]),
        is_beaten=bool(bounds[0] < best <= bounds[1]),
    )


def floor_of(values: Sequence[float] | np.ndarray) -> float:
    """Return the value to which lower scores are raised, so that outliers do not decide.

    Higher scores are better. If more than half of the scores equal the best one, none is raised.
    """
    middle, best = float(np.median(values)), float(np.max(values))
    if best <= middle:
        return float(np.min(values))
    return middle - FURTHEST * (best - middle)


def _pairs_at(step: int, curves: Curves) -> tuple[Array, float]:
    """Return what completed trials had reported up to a step, and which scores they had in the end.

    Returns:
        A pair for each completed trial that has reported at that step: its best report up to then,
        and its final score. In addition, the best final score of all completed trials.
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
    """Return the best value that a trial has reported up to a step. Higher values are better."""
    so_far = [value for at, value in values.items() if at <= step]
    numbers = [sign * value for value in so_far if not math.isnan(value)]
    return max(numbers, default=-math.inf)
