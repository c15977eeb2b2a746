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
#: Until its training ends, the lead of a trial grows by this share of the lead's growth in the last
#: doubling of steps (fitted).
GAIN_KEPT = 0.68
#: Near the end of the training, the lead grows by at most this share of the same growth, times the
#: number of doublings of steps that are left (fitted).
GAIN_KEPT_NEAR_THE_END = 0.9
#: While the number of steps grows e-fold, a lead changes at random by this share of the study's
#: spread (fitted). The spread is the distance from the median to the best value at the first
#: judgement.
WANDER = 0.2
#: The variance of predictions is estimated as if this many further trials had been predicted, each
#: with an error of one standard deviation (chosen, not measured).
PRIOR_TRIALS = 4
#: In that estimate, each completed trial counts as much as this many of the further trials (chosen,
#: not measured).
TRIAL_WEIGHT = 2
#: The variance is multiplied by at least this factor, even if all predictions were close (chosen,
#: not measured).
LEAST_VARIANCE = 0.4
#: Predictions are no longer used if their errors would multiply the variance by more than this
#: factor (chosen on one-cycle curves, not fitted).
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
#: A frozen trial can be pruned once this many trials have completed (chosen, not measured).
COMPLETED = 2
#: While the study has new trials to begin, one slot in this many continues a trial that was judged,
#: and the other slots begin new trials (chosen, not measured). A slot runs one trial at a time.
SLOTS = 4
#: A trial that has done more than this many times the steps of the first judgement is no longer
#: frozen, as long as it can win (chosen, not measured). Without this rule, a sweep that was stopped
#: early had dozens of half-trained trials and no score (decision 27).
COMMITTED = 2
#: A running trial is compared with frozen (paused) trials as if its prediction were better by this
#: share of its standard deviation (chosen, not measured), so that it is not frozen for a tiny
#: difference.
RESTLESS = 0.25
#
# Constants for outliers:
#: Scores are cut off below the median minus this multiple of the distance from median to best
#: (chosen, not measured). A loss of a million would otherwise hide the differences between other
#: trials.
FURTHEST = 4.0


class Race:
    """Predicts the final scores of trials from their leads over the leader at the same step.

    A lead is predicted to keep growing, or shrinking, by two thirds of its change in the last
    doubling of steps. In addition, it may change at random by one fifth of the study's spread for
    each e-fold of training that is left. Higher scores are better throughout.

    All arrays are read-only results of formulas over `values`, `done` and `finals`.

    Args:
        curves: Curves of the study. At least one must have a value.

    Attributes:
        numbers: Numbers of the trials that have a value. A trial's index in this list, its place,
            is also its index in all arrays.
        is_completed: For each trial, whether it has completed.
        done: For each trial, the number of steps up to its last report, among all steps of the
            study. Only `MOST_STEPS` of these steps count if there are more.
        finals: For each trial, its final score. Minus infinity if it has none.
        values: Value of each trial at or before each step, shape (trials, steps).
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
        """For each step, the e-folds by which the number of steps grows until the training ends."""
        total = self.total or UNKNOWN_TOTAL * self.done.max()
        left: Array = np.log(np.maximum(total / self._steps, 1))
        return left

    @cached_property
    def _steps(self) -> np.ndarray:
        return np.arange(1, self.values.shape[1] + 1)

    # --- predicted final scores -------------------------------------------------------------------

    @cached_property
    def _level(self) -> Array:
        """For each trial and step, the final score that is extrapolated from this step.

        The gain that all trials share is left out, because it cancels out in a lead.
        """
        halves = np.maximum(self._steps // 2, 1) - 1
        gains = self.values - self.values[:, halves]
        kept = np.minimum(GAIN_KEPT, GAIN_KEPT_NEAR_THE_END * self._left / math.log(2))
        level: Array = self.values + kept * gains
        return level

    @cached_property
    def _levels(self) -> Array:
        """For each trial, the final score that is extrapolated from its last report."""
        levels: Array = self._level[np.arange(len(self.numbers)), self.done - 1]
        return levels

    @cached_property
    def leader(self) -> int:
        """Index in `numbers` of the best completed trial.

        As long as no trial has completed, index of the trial with the best extrapolated value.
        """
        if self.is_completed.any():
            return int(self.finals.argmax())
        are_compared = self.begun if self.begun.any() else ~self.begun
        return int(np.where(are_compared, self._levels, -np.inf).argmax())

    @property
    def best(self) -> float:
        """Best final score. Minus infinity if there is none."""
        return float(self.finals.max())

    @cached_property
    def leads(self) -> Array:
        """For each trial, its predicted final score minus the leader's."""
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
        """Distance from the median to the best value at the step of the first judgement."""
        step = min(self.first_look, self.values.shape[1])
        looked = self.values[self.begun, step - 1]
        return float(looked.max() - np.median(looked)) if len(looked) else 0.0

    @cached_property
    def _wander(self) -> Array:
        """For each step, the standard deviation of a lead's change until the training ends.

        It is always above zero.
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
        """Mean over completed trials of the largest squared error of their predictions.

        Errors are in units of `_wander`. 1 if no completed trial can be compared with the leader.
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
    """Return the steps of a curve with finite values, in order, and these values times `sign`."""
    finite = [point for point in sorted(curve.values.items()) if math.isfinite(point[1])]
    array: Array = np.array(finite, dtype=float).reshape(-1, 2)
    return array[:, 0], sign * array[:, 1]


def _grid_of(all_steps: Sequence[Array]) -> Array:
    """Return the steps of a study in order, thinned if there are many."""
    grid: Array = np.unique(np.concatenate(all_steps))
    if len(grid) > MOST_STEPS:
        kept = np.linspace(0, len(grid) - 1, MOST_STEPS).round()
        grid = grid[kept.astype(int)]
    return grid


def _along(grid: Array, steps: Array, values: Array) -> Array:
    """Return the last value at or before each step of a grid.

    Grid steps before the first report get the first value.
    """
    places = np.maximum(np.searchsorted(steps, grid, side="right") - 1, 0)
    along: Array = values[places]
    return along
