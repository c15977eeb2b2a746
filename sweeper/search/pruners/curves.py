"""Learning curves of a study, and where the trials that have not ended stand in its race."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import optuna
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

#: Of numbers, one for each trial or step.
Array = np.ndarray[Any, np.dtype[np.float64]]
CurveState = Literal["running", "frozen", "completed", "pruned"]
_STATES: Mapping[TrialState, CurveState] = {
    TrialState.RUNNING: "running",
    TrialState.COMPLETE: "completed",
    TrialState.PRUNED: "pruned",
}
#: More steps than these are thinned.
_MOST_STEPS = 64
#: The steps before the first look: a ninth of the training, or where nobody knows its length, four.
_FIRST_LOOK = 9
_FIRST_STEPS = 4
#: A lead that a trial has won in the last doubling of its steps grows by this share of it, and by
#: no more than it would in the part of a doubling that is left.
_GOES_ON, _LEFT = 0.68, 0.9
#: Two trials may move apart by this share of the study's spread while training grows e-fold. These
#: three are fitted to 18 data sets of LCBench.
_WANDERS = 0.2
#: Completed trials may have been off by this many times what they were foretold, as a square.
_MOST_OFF = 6.0


@dataclass(frozen=True, kw_only=True)
class Curve:
    """What a trial has reported so far.

    Attributes:
        values: what it reported, by step, in any order, also NaN.
        state: failed and waiting trials have no curve.
        final: its final score; None unless it has completed.
        ends_at: its last step; None as long as nobody knows it.
    """

    values: Mapping[int, float]
    state: CurveState
    final: float | None = None
    ends_at: int | None = None


@dataclass(frozen=True, kw_only=True)
class Curves:
    """What the trials of a study have reported.

    Attributes:
        by_number: of the trials that have begun and not failed.
        sign: 1 or -1, by which scores are multiplied, so that higher ones are better.
    """

    by_number: Mapping[int, Curve]
    sign: float


def curves_of(study: optuna.Study, *, frozen: Collection[int] = ()) -> Curves:
    """The curves of a study of one objective; the running trials among `frozen` stand still."""
    found = {}
    trials = study.get_trials(deepcopy=False, states=tuple(_STATES))
    ends = _known_ends(trials)
    for trial in trials:
        state = _STATES[trial.state]
        found[trial.number] = Curve(
            values=trial.intermediate_values,
            state="frozen" if state == "running" and trial.number in frozen else state,
            final=float(trial.values[0]) if state == "completed" else None,
            ends_at=ends.get(trial.number),
        )
    return Curves(by_number=found, sign=1.0 if study.direction is StudyDirection.MAXIMIZE else -1.0)


def _known_ends(trials: Sequence[FrozenTrial]) -> Mapping[int, int]:
    """The last step of each trial, where completed trials of several lengths show what decides it.

    They do when the last step of each is as far from one of its params as those of the others.
    """
    lasts = {
        trial.number: trial.last_step
        for trial in trials
        if trial.state is TrialState.COMPLETE and trial.last_step is not None
    }
    if len(set(lasts.values())) < 2:
        return {}
    for name in sorted({name for trial in trials for name in trial.params}):
        counts = {
            trial.number: trial.params[name]
            for trial in trials
            if type(trial.params.get(name)) is int
        }
        if counts.keys() >= lasts.keys():
            apart, *others = {last - counts[number] for number, last in lasts.items()}
            if not others:
                return {number: count + apart for number, count in counts.items()}
    return {}


class Race:
    """Where trials stand, by how far they are behind the leader at the same step.

    A trial is expected to go on gaining on the leader, or falling behind, for two thirds of what it
    gained in the last doubling of its steps. Beyond that the distance may change by a fifth of
    the study's spread, which is the distance from the median to the best at the first look, for
    each e-fold of training that is left. The leader is the best completed trial, and before there
    is one the trial that goes best. Higher scores are better throughout.

    Args:
        curves: of which at least one has a value.

    Attributes:
        numbers: of the trials that have a value, in their order.
        done: the steps that each has behind it, counted along all steps of the study.
        total: the steps of a whole training; None until a trial has completed.
        first_look: the steps after which a trial is judged at all.
        is_completed: by trial.
    """

    def __init__(self, curves: Curves) -> None:
        found = {n: _finite(curve, curves.sign) for n, curve in curves.by_number.items()}
        self.numbers = [number for number, (steps, _) in found.items() if len(steps)]
        of = [curves.by_number[number] for number in self.numbers]
        self.is_completed = np.array([curve.final is not None for curve in of])
        self._finals = np.array(
            [-np.inf if it.final is None else curves.sign * it.final for it in of]
        )
        own = [found[number] for number in self.numbers]
        grid = np.unique(np.concatenate([steps for steps, _ in own]))
        if len(grid) > _MOST_STEPS:
            grid = grid[np.linspace(0, len(grid) - 1, _MOST_STEPS).round().astype(int)]
        # The last value at or before each step, shape (trials, steps); the first one before that.
        self._values = np.array(
            [
                values[np.maximum(np.searchsorted(steps, grid, side="right") - 1, 0)]
                for steps, values in own
            ]
        )
        last = np.array([steps[-1] for steps, _ in own])
        self.done = np.maximum(np.searchsorted(grid, last, side="right"), 1)
        ends = self.done[self.is_completed]
        self.total = int(np.median(ends)) if len(ends) else None
        self.first_look = _FIRST_STEPS if self.total is None else -(-self.total // _FIRST_LOOK)
        self.begun = self.done >= self.first_look
        steps = np.arange(1, len(grid) + 1)
        halves = np.maximum(steps // 2, 1) - 1
        left = np.log(np.maximum((self.total or 4 * self.done.max()) / steps, 1))
        self._goes_on = np.minimum(_GOES_ON, _LEFT * left / math.log(2))
        looked = self._values[self.begun, min(self.first_look, len(grid)) - 1]
        spread = float(looked.max() - np.median(looked)) if len(looked) else 0.0
        self._wanders = np.maximum(_WANDERS * spread * left, 1e-12)
        gains = self._values - self._values[:, halves]
        # What a trial would end with, were all as good at going on.
        self._level = self._values + self._goes_on * gains

    @cached_property
    def leader(self) -> int:
        """The place of the leader among the trials."""
        if self.is_completed.any():
            return int(self._finals.argmax())
        at = self._level[np.arange(len(self.numbers)), self.done - 1]
        return int(np.where(self.begun | ~self.begun.any(), at, -np.inf).argmax())

    @property
    def best(self) -> float:
        """The best final score; minus infinity while there is none."""
        return float(self._finals.max())

    @cached_property
    def leads(self) -> Array:
        """By how much each trial is expected to end before the leader, shape (trials)."""
        at = np.minimum(self.done, self.done[self.leader]) - 1
        own = self._level[np.arange(len(at)), self.done - 1]
        leads: Array = own - self._level[self.leader, at]
        return leads

    def likely(self, place: int) -> float:
        """The final score that is expected of a trial."""
        leading = self._level[self.leader, self.done[self.leader] - 1]
        return float(self.leads[place] + (self.best if self.is_completed.any() else leading))

    @cached_property
    def off(self) -> Array:
        """How far off that may be: a standard deviation, shape (trials)."""
        known = max(int(self.is_completed.sum()) - 1, 0)
        seen = (4 + 2 * known * self._deviation) / (4 + 2 * known)
        off: Array = self._wanders[self.done - 1] * math.sqrt(max(seen, 0.4))
        return off

    @property
    def is_trusted(self) -> bool:
        """Whether the completed trials have ended about where they were foretold."""
        return self._deviation <= _MOST_OFF

    @cached_property
    def _deviation(self) -> float:
        """How far off completed trials were at their worst step, squared and relative: the mean."""
        others = np.flatnonzero(self.is_completed)
        others = others[others != self.leader]
        if not len(others) or self.total is None or self.first_look >= self.total:
            return 1.0
        steps = slice(self.first_look - 1, self.total - 1)
        foretold = self._level[others, steps] - self._level[self.leader, steps]
        away = (self._finals[others] - self.best)[:, None] - foretold
        return float(((away / self._wanders[steps]) ** 2).max(axis=1).mean())


def _finite(curve: Curve, sign: float) -> tuple[Array, Array]:
    """Steps in their order, and values, higher ones being better, shape (reports) each."""
    pairs = sorted((step, v) for step, v in curve.values.items() if math.isfinite(v))
    array: Array = np.array(pairs, dtype=float).reshape(-1, 2)
    return array[:, 0], sign * array[:, 1]
