"""Where the trials of a study stand in its race: formulas over their curves, and all constants."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property

import numpy as np

from .curves import Array, Curve, Curves

# The constants of `pruner: auto`. *Fitted* ones had the best outcome on the 18 data sets of LCBench
# with an odd index and were then checked on the 17 even ones (benchmarks/README.md, "Pruning").
# *Chosen* ones are round numbers that were set by judgement.
#
# What is predicted:
#: share of a lead that was won in the last doubling of steps by which the lead still grows; fitted
GAIN_KEPT = 0.68
#: the same, as a share of the part of a doubling that is left; fitted
GAIN_KEPT_NEAR_THE_END = 0.9
#: share of the study's spread by which two trials move apart while training grows e-fold; fitted
WANDER = 0.2
#: trials whose prediction is assumed to have been exactly as far off as that; chosen
PRIOR_TRIALS = 4
#: how much each completed trial counts beside these; chosen
TRIAL_WEIGHT = 2
#: lowest factor of the predicted variance, however close predictions came; chosen
LEAST_VARIANCE = 0.4
#: highest factor with which predictions are still believed; chosen after one-cycle curves
MOST_VARIANCE = 6.0
#
# When a trial is judged:
#: first look, as a part of the training: one ninth; chosen
FIRST_LOOK = 9
#: first look in steps, where nobody knows how long a training is; chosen
FIRST_STEPS = 4
#: length of a training in longest curves so far, where nobody knows it; chosen
UNKNOWN_TOTAL = 4
#: steps to which the curves of a study are thinned, for speed; chosen
MOST_STEPS = 64
#
# What is decided:
#: completed trials before a frozen trial is given up; chosen
COMPLETED = 2
#: slots of which one continues a trial while others are left to begin; chosen
SLOTS = 4
#: first looks after which a trial that can win runs until it completes; chosen, as a sweep that was
#: stopped early had dozens of trials that stood half way, and no score (decision 27)
COMMITTED = 2
#: share of its deviation that a trial gains on others by running already; chosen
RESTLESS = 0.25
#
# What is off the scale:
#: distances from median to best below the median where scores are cut off: a loss of a million
#: would hide what the others have in common; chosen
FURTHEST = 4.0


class Race:
    """Where trials stand, by how far they are behind the leader at the same step.

    A trial is expected to keep gaining on the leader, or falling behind, by two thirds of what it
    gained in the last doubling of its steps. Beyond that the distance may change by a fifth of the
    study's spread for each e-fold of training that is left. Higher scores are better throughout.

    All arrays are read-only results of formulas over three: `values`, `done` and `finals`.

    Args:
        curves: Curves of which at least one has a value.

    Attributes:
        numbers: Numbers of the trials that have a value. A trial's place is its index here.
        is_completed: By place, whether the trial has completed.
        done: By place, the steps that the trial has behind it, counted along all steps of the
            study.
        finals: By place, the final score; minus infinity where there is none.
        values: The value of each trial at or before each step, shape (trials, steps).
    """

    def __init__(self, curves: Curves) -> None:
        series = {n: _finite(curve, curves.sign) for n, curve in curves.by_number.items()}
        self.numbers = [number for number, (steps, _) in series.items() if len(steps)]
        finals = [curves.by_number[number].final for number in self.numbers]
        self.is_completed = np.array([final is not None for final in finals])
        self.finals = np.array(
            [-np.inf if final is None else curves.sign * final for final in finals]
        )
        reported = [series[number] for number in self.numbers]
        grid = _grid_of([steps for steps, _ in reported])
        self.values = np.array([_along(grid, steps, values) for steps, values in reported])
        last_steps = np.array([steps[-1] for steps, _ in reported])
        self.done = np.maximum(np.searchsorted(grid, last_steps, side="right"), 1)

    # --- how long a training is ------------------------------------------------------------------

    @cached_property
    def total(self) -> int | None:
        """The steps of a whole training; None until a trial has completed."""
        ends = self.done[self.is_completed]
        return int(np.median(ends)) if len(ends) else None

    @property
    def first_look(self) -> int:
        """The steps after which a trial is judged at all."""
        return FIRST_STEPS if self.total is None else -(-self.total // FIRST_LOOK)

    @cached_property
    def begun(self) -> np.ndarray:
        """By place, whether the trial is judged."""
        begun: np.ndarray = self.done >= self.first_look
        return begun

    @cached_property
    def _left(self) -> Array:
        """By step, the e-folds of training that are left after it."""
        total = self.total or UNKNOWN_TOTAL * self.done.max()
        left: Array = np.log(np.maximum(total / self._steps, 1))
        return left

    @cached_property
    def _steps(self) -> np.ndarray:
        return np.arange(1, self.values.shape[1] + 1)

    # --- where a trial will end ------------------------------------------------------------------

    @cached_property
    def _level(self) -> Array:
        """By place and step, the final score if the trial gained as much as all others do."""
        halves = np.maximum(self._steps // 2, 1) - 1
        gains = self.values - self.values[:, halves]
        kept = np.minimum(GAIN_KEPT, GAIN_KEPT_NEAR_THE_END * self._left / math.log(2))
        level: Array = self.values + kept * gains
        return level

    @cached_property
    def leader(self) -> int:
        """The place of the best completed trial, or before there is one of the best so far."""
        if self.is_completed.any():
            return int(self.finals.argmax())
        levels = self._level[np.arange(len(self.numbers)), self.done - 1]
        are_compared = self.begun if self.begun.any() else ~self.begun
        return int(np.where(are_compared, levels, -np.inf).argmax())

    @property
    def best(self) -> float:
        """The best final score; minus infinity while there is none."""
        return float(self.finals.max())

    @cached_property
    def leads(self) -> Array:
        """By place, how far above the leader the trial is predicted to end."""
        same_step = np.minimum(self.done, self.done[self.leader]) - 1
        levels = self._level[np.arange(len(self.numbers)), self.done - 1]
        leads: Array = levels - self._level[self.leader, same_step]
        return leads

    def likely(self, place: int) -> float:
        """Return the final score that is predicted for a trial."""
        if self.is_completed.any():
            return float(self.leads[place] + self.best)
        return float(self.leads[place] + self._level[self.leader, self.done[self.leader] - 1])

    # --- how far off that may be -----------------------------------------------------------------

    @cached_property
    def _spread(self) -> float:
        """The distance from the median to the best at the first look."""
        step = min(self.first_look, self.values.shape[1])
        looked = self.values[self.begun, step - 1]
        return float(looked.max() - np.median(looked)) if len(looked) else 0.0

    @cached_property
    def _wander(self) -> Array:
        """By step, how far a lead may still change: a standard deviation, above zero."""
        wander: Array = np.maximum(WANDER * self._spread * self._left, 1e-12)
        return wander

    @cached_property
    def off(self) -> Array:
        """By place, the standard deviation of the prediction."""
        completed = TRIAL_WEIGHT * max(int(self.is_completed.sum()) - 1, 0)
        variance = (PRIOR_TRIALS + completed * self._deviation) / (PRIOR_TRIALS + completed)
        off: Array = self._wander[self.done - 1] * math.sqrt(max(variance, LEAST_VARIANCE))
        return off

    @property
    def is_trusted(self) -> bool:
        """Whether the completed trials have ended about where that was predicted."""
        return self._deviation <= MOST_VARIANCE

    @cached_property
    def _deviation(self) -> float:
        """The mean over completed trials of their largest error, relative and squared."""
        others = np.flatnonzero(self.is_completed)
        others = others[others != self.leader]
        if not len(others) or self.total is None or self.first_look >= self.total:
            return 1.0
        steps = slice(self.first_look - 1, self.total - 1)
        predicted = self._level[others, steps] - self._level[self.leader, steps]
        errors = (self.finals[others] - self.best)[:, None] - predicted
        return float(((errors / self._wander[steps]) ** 2).max(axis=1).mean())


def _finite(curve: Curve, sign: float) -> tuple[Array, Array]:
    """Return steps in their order, and values, higher ones being better, shape (reports) each."""
    finite = [(step, value) for step, value in curve.values.items() if math.isfinite(value)]
    array: Array = np.array(sorted(finite), dtype=float).reshape(-1, 2)
    return array[:, 0], sign * array[:, 1]


def _grid_of(all_steps: Sequence[Array]) -> Array:
    """Return the steps of a study in their order, thinned where there are many."""
    grid: Array = np.unique(np.concatenate(all_steps))
    if len(grid) > MOST_STEPS:
        kept = np.linspace(0, len(grid) - 1, MOST_STEPS).round().astype(int)
        grid = grid[kept]
    return grid


def _along(grid: Array, steps: Array, values: Array) -> Array:
    """Return the last value at or before each step of a grid, before the first step the first."""
    places = np.maximum(np.searchsorted(steps, grid, side="right") - 1, 0)
    along: Array = values[places]
    return along
