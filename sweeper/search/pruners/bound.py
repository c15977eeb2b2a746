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
    """Prediction of a trial's final score by a line that is fitted to completed trials.

    Higher scores are better. The function `bound_of` describes the line.

    Attributes:
        likely: Predicted final score.
        spread: Standard deviation of the prediction.
        is_beaten: Whether a completed trial has a score above the upper bound of the prediction, so
            that the predicted trial is unlikely to become the best. As a check, the final score of
            the best trial to which the line is fitted is predicted, too, from its best report up to
            the same step. If even the upper bound of this prediction is below the best score, the
            bounds are too low to decide, and the value is False.
    """

    likely: float
    spread: float
    is_beaten: bool


def bound_of(
    curves: Curves, number: int, *, n_startup_trials: int, confidence: float
) -> Bound | None:
    """Return the prediction for a trial after its latest report.

    A line is fitted by least squares to the completed trials. It predicts a trial's final
    score from its best report up to the step of that latest report. The upper bound is the
    prediction bound for one new value (Draper and Smith, 1998, "Applied Regression Analysis",
    section 3.1).

    Args:
        curves: Learning curves of the study.
        number: Trial number in the study.
        n_startup_trials: Least number of completed trials for a prediction.
        confidence: One-sided confidence level of the bound.

    Returns:
        The prediction. None if fewer than `n_startup_trials` completed trials have reported at that
        step, if their best reports up to it are all equal, or if the trial has reported an infinite
        value in the better direction.
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
    # Predict for two trials: the given one, and the best of the regressed ones from its best report
    # up to the same step.
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
    """Return the limit to which callers raise all lower scores. Higher scores are better.

    The limit is the median minus `FURTHEST` times the distance from the median to the best score.
    Lower scores would hide the differences between the others. If more than half of the scores
    equal the best one, the limit is the lowest score.
    """
    middle, best = float(np.median(values)), float(np.max(values))
    if best <= middle:
        return float(np.min(values))
    return middle - FURTHEST * (best - middle)


def _pairs_at(step: int, curves: Curves) -> tuple[Array, float]:
    """Return the reports of completed trials at a step, with their final scores.

    All values are multiplied by the sign of `curves`, so that higher ones are better.

    Returns:
        Array with a row for each completed trial that has reported at that step: its best report up
        to the step, and its final score. Trials whose best report is infinite, or whose reports are
        all NaN, are left out. Second, the best final score of all completed trials.
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
    """Return the best report of a trial up to a step, times `sign`, so that higher is better.

    Return minus infinity if there is no report, or only NaN.
    """
    so_far = [value for at, value in values.items() if at <= step]
    numbers = [sign * value for value in so_far if not math.isnan(value)]
    return max(numbers, default=-math.inf)
