"""Predict final scores by comparing trials at the same step.

The leader is the best completed trial, or the most promising one as long as none has completed. A
trial's lead is its value minus the leader's value at the same step: negative if it is worse. This
module contains all constants of `pruner: auto`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property

import numpy as np

from .curves import Array, Curve, Curves

# Constants of `pruner: auto`. A constant that is marked "(fitted)" had the best outcome on the 18
# data sets of LCBench with an odd index. It was then checked on the 17 data sets with an even index
# (benchmarks/README.md, "Pruning"). The other constants are round numbers, set by judgement.
#
# Constants of the prediction:
#: Until the end of the training, a trial's lead is predicted to grow by this share of its growth in
#: the last doubling of steps (fitted).
GAIN_KEPT = 0.68
#: If little of the training is left, the lead is predicted to grow less: by this share of the same
#: growth for each doubling of steps that is left (fitted).
GAIN_KEPT_NEAR_THE_END = 0.9
#: Standard deviation of a lead's random change while the number of steps grows by the factor e, as
#: a share of the study's spread (fitted). The spread is the distance from the median to the best
#: value at the step of the first judgement.
WANDER = 0.2
#: The variance of a prediction by `WANDER` is multiplied by a factor. This factor is the weighted
#: mean of 1 and of the squared errors of the predictions for completed trials (`Race._deviation`).
#: In this mean, the 1 has this weight (chosen, not measured).
PRIOR_TRIALS = 4
#: In the same mean, each completed trial except the best has this weight (chosen, not measured).
TRIAL_WEIGHT = 2
#: Least value of the variance's factor, even if all predictions were close (chosen, not measured).
LEAST_VARIANCE = 0.4
#: Predictions are no longer used if the mean of the squared errors alone, without the 1, is above
#: this (chosen on one-cycle curves, not fitted).
MOST_VARIANCE = 6.0
#
# Constants of the time at which a trial is judged:
#: A trial is first judged after one ninth of its training (chosen, not measured).
FIRST_LOOK = 9
#: If the length of a training is not known, a trial is first judged after this many steps (chosen,
#: not measured).
FIRST_STEPS = 4
#: If the length of a training is not known, it is assumed to be this many times the length of the
#: longest curve so far (chosen, not measured).
UNKNOWN_TOTAL = 4
#: The curves of a study are thinned to at most this many steps, for speed (chosen, not measured).
MOST_STEPS = 64
#
# Constants of the decisions:
#: As long as fewer trials than this have completed, each trial counts as able to win (chosen, not
#: measured).
COMPLETED = 2
#: While the study has new trials to begin, one slot in this many continues a trial that was judged,
#: and the other slots begin new trials (chosen, not measured). A slot runs one trial at a time.
SLOTS = 4
#: A trial is first judged after a number of steps. After more than this many times that number, it
#: is no longer frozen, as long as it can win (chosen, not measured). Without this rule, a sweep
#: that was stopped early had dozens of half-trained trials and no score (decision 27).
COMMITTED = 2
#: A running trial is compared with frozen (paused) trials as if its prediction were better by this
#: share of its standard deviation (chosen, not measured), so that it is not frozen for a tiny
#: difference.
RESTLESS = 0.25
#
# Constants for outliers:
#: Scores that are further below the median than this multiple of the distance from median to best
#: are raised to that limit (chosen, not measured). A loss of a million would otherwise hide the
#: differences between other trials.
FURTHEST = 4.0


class Race:
    """Predicts the final scores of trials from their leads over the leader at the same step.

    The leader is the best completed trial, or the most promising one as long as none has completed
    (see `leader`). A trial's lead is its value minus the leader's value at the same step. Higher
    scores are better throughout. The steps are those at which any trial has reported a finite
    value. If there are more than `MOST_STEPS`, only so many are used.

    A lead is predicted to keep growing, or shrinking, by two thirds of its change in the last
    doubling of steps. In addition, it may change at random. The standard deviation of this change
    is one fifth of the study's spread (`_spread`) for each growth of the number of steps by the
    factor e.

    All other arrays are computed from the arrays below, and never change.

    Args:
        curves: Curves of the study. At least one must have a value.

    Attributes:
        numbers: Numbers of the trials that have reported a finite value. A trial's index in this
            list, its place, is also its index in all arrays.
        is_completed: For each trial, whether it has completed.
        done: For each trial, how many steps there are up to its last report. At least 1.
        finals: For each trial, its final score. Minus infinity if it has none.
        values: For each trial and step, the trial's last value at or before the step. Before its
            first report, its first value.
    """

    def __init__(self, curves: Curves) -> None:
        reported = []
        self.numbers = []
        for number, curve in curves.by_number.items():
            steps, values = _finite(curve, curves.sign)
            if len(steps):
                self.numbers.append(number)
                reported.append((steps, values))
        finals = [curves.by_number[number].final for number in self.numbers]
        self.is_completed = np.array([final is not None for final in finals])
        self.finals = np.full(len(finals), -np.inf)
        for place, final in enumerate(finals):
            if final is not None:
                self.finals[place] = curves.sign * final
        grid = _grid_of([steps for steps, _ in reported])
        self.values = np.array([_along(grid, steps, values) for steps, values in reported])
        last_steps = np.array([steps[-1] for steps, _ in reported])
        self.done = np.maximum(np.searchsorted(grid, last_steps, side="right"), 1)

    # --- length of a training ---------------------------------------------------------------------

    @cached_property
    def total(self) -> int | None:
        """Number of steps of a whole training. None until a trial has completed."""
        ends = self.done[self.is_completed]
        return int(np.median(ends)) if len(ends) else None

    @property
    def first_look(self) -> int:
        """Number of steps after which a trial is first judged."""
        return FIRST_STEPS if self.total is None else -(-self.total // FIRST_LOOK)

    @cached_property
    def begun(self) -> np.ndarray:
        """For each trial, whether it has done enough steps to be judged."""
        begun: np.ndarray = self.done >= self.first_look
        return begun

    @cached_property
    def _left(self) -> Array:
        """For each step, log(training's length / step). 0 after the end of the training."""
        total = self.total or UNKNOWN_TOTAL * self.done.max()
        left: Array = np.log(np.maximum(total / self._steps, 1))
        return left

    @cached_property
    def _steps(self) -> np.ndarray:
        return np.arange(1, self.values.shape[1] + 1)

    # --- predicted final scores -------------------------------------------------------------------

    @cached_property
    def _level(self) -> Array:
        """For each trial and step, its value plus the predicted gain until the training ends.

        The part of the gain that all trials have in common is left out, because it cancels out in
        the difference between two trials at the same step.
        """
        halves = np.maximum(self._steps // 2, 1) - 1
        gains = self.values - self.values[:, halves]
        kept = np.minimum(GAIN_KEPT, GAIN_KEPT_NEAR_THE_END * self._left / math.log(2))
        level: Array = self.values + kept * gains
        return level

    @cached_property
    def _levels(self) -> Array:
        """For each trial, its `_level` at its last report."""
        levels: Array = self._level[np.arange(len(self.numbers)), self.done - 1]
        return levels

    @cached_property
    def leader(self) -> int:
        """Index in `numbers` of the best completed trial.

        As long as no trial has completed, index of the trial with the best value in `_levels`.
        Trials that have done enough steps to be judged then come before all others.
        """
        if self.is_completed.any():
            return int(self.finals.argmax())
        are_compared = self.begun if self.begun.any() else ~self.begun
        return int(np.where(are_compared, self._levels, -np.inf).argmax())

    @property
    def best(self) -> float:
        """Best final score. Minus infinity if no trial has completed."""
        return float(self.finals.max())

    @cached_property
    def leads(self) -> Array:
        """For each trial, its predicted final score minus that of the leader (see `leader`)."""
        same_step = np.minimum(self.done, self.done[self.leader]) - 1
        leads: Array = self._levels - self._level[self.leader, same_step]
        return leads

    def likely(self, place: int) -> float:
        """Return the predicted final score of a trial.

        Args:
            place: Index of the trial in `numbers`.
        """
        if self.is_completed.any():
            return float(self.leads[place] + self.best)
        return float(self.leads[place] + self._levels[self.leader])

    # --- errors of predictions --------------------------------------------------------------------

    @cached_property
    def _spread(self) -> float:
        """Distance from the median to the best of the trials' values at the first judgement's step.

        Only trials that have done this step count. 0 if there is none.
        """
        step = min(self.first_look, self.values.shape[1])
        looked = self.values[self.begun, step - 1]
        return float(looked.max() - np.median(looked)) if len(looked) else 0.0

    @cached_property
    def _wander(self) -> Array:
        """For each step, the standard deviation of a lead's random change until the training ends.

        A lead is a trial's value minus the leader's. The deviation is always above zero.
        """
        wander: Array = np.maximum(WANDER * self._spread * self._left, 1e-12)
        return wander

    @cached_property
    def off(self) -> Array:
        """For each trial, the standard deviation of the error of its predicted final score."""
        completed = TRIAL_WEIGHT * max(int(self.is_completed.sum()) - 1, 0)
        variance = (PRIOR_TRIALS + completed * self._deviation) / (PRIOR_TRIALS + completed)
        factor = math.sqrt(max(variance, LEAST_VARIANCE))
        off: Array = self._wander[self.done - 1] * factor
        return off

    @property
    def is_trusted(self) -> bool:
        """Whether predictions can be used, because those for completed trials were about right."""
        return self._deviation <= MOST_VARIANCE

    @cached_property
    def _deviation(self) -> float:
        """Mean squared error of the predictions for completed trials, in units of their variance.

        This variance is the square of `_wander` at the step from which a trial is predicted.

        The final lead of each completed trial (its score minus the leader's) is predicted from each
        step of the training except the last, beginning with the first judgement. Of each trial,
        only the largest squared error counts. 1 if no trial but the leader has completed, or if a
        training ends at the first judgement.
        """
        others = np.flatnonzero(self.is_completed)
        others = others[others != self.leader]
        if not len(others) or self.total is None or self.first_look >= self.total:
            return 1.0
        steps = slice(self.first_look - 1, self.total - 1)
        predicted = self._level[others, steps] - self._level[self.leader, steps]
        errors = (self.finals[others] - self.best)[:, None] - predicted
        squares = (errors / self._wander[steps]) ** 2
        return float(squares.max(axis=1).mean())


def _finite(curve: Curve, sign: float) -> tuple[Array, Array]:
    """Return the steps of a curve with finite values, in order, and these values times `sign`.

    Args:
        curve: Reports of a trial.
        sign: 1 if higher scores are better, else -1.
    """
    finite = [point for point in sorted(curve.values.items()) if math.isfinite(point[1])]
    array: Array = np.array(finite, dtype=float).reshape(-1, 2)
    return array[:, 0], sign * array[:, 1]


def _grid_of(all_steps: Sequence[Array]) -> Array:
    """Return the steps at which any trial has reported a finite value, in order.

    If there are more than `MOST_STEPS`, return this number of them, spaced evenly in that order.

    Args:
        all_steps: For each trial, the steps at which it has reported a finite value.
    """
    grid: Array = np.unique(np.concatenate(all_steps))
    if len(grid) > MOST_STEPS:
        kept = np.linspace(0, len(grid) - 1, MOST_STEPS).round()
        grid = grid[kept.astype(int)]
    return grid


def _along(grid: Array, steps: Array, values: Array) -> Array:
    """Return a curve's last value at or before each step of a grid.

    For grid steps before the curve's first step, return its first value.

    Args:
        grid: Steps of the study, as `_grid_of` returns them.
        steps: Steps of the curve, in order.
        values: Value of the curve at each of its steps.
    """
    places = np.maximum(np.searchsorted(steps, grid, side="right") - 1, 0)
    along: Array = values[places]
    return along
