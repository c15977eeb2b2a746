"""Freezes trials that will hardly win now, and prunes those that will hardly win at all."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np
import optuna
from optuna.pruners import BasePruner
from optuna.trial import FrozenTrial

from .curves import Curves, Race, curves_of

#: Scores count as no further below the median than four times the way from there to the best: a
#: loss of a million would hide what the others have in common.
_FURTHEST = 4.0
#: No frozen trial is given up before so many have completed.
_COMPLETED = 2
#: While trials are left to begin, one slot in four goes on with a trial, and at least one of two.
_SLOTS = 4
#: After twice the first look a trial that may win goes on to its end, or a sweep that is stopped
#: early would have many trials that are half trained, and no score.
_COMMITTED = 2
#: Before that it is frozen for another one that can reach more by this share of the doubt.
_RESTLESS = 0.25


class Verdict(Enum):
    """What becomes of a running trial that has reported."""

    GO_ON = "go on"
    FREEZE = "freeze"
    PRUNE = "prune"


@dataclass(frozen=True, kw_only=True)
class Outlook:
    """What a trial will have in the end, in the scores' own units and direction.

    Attributes:
        number: of the trial.
        step: its last one, at which it is judged.
        likely: the final score that is expected.
        spread: how far off that may be: a standard deviation.
        may_win: False where it may be given up.
        best: the best score of the completed trials; None while there is none.
        completed: the number of completed trials from which this follows.
    """

    number: int
    step: int
    likely: float
    spread: float
    may_win: bool
    best: float | None
    completed: int

    def __str__(self) -> str:
        if self.best is None:
            return "no trial has completed"
        return (
            f"it was expected to end with {self.likely:.4g}, give or take {self.spread:.2g}, and "
            f"the best of {self.completed} finished trials has {self.best:.6g}"
        )


class PredictivePruner(BasePruner):
    """Freezes trials that will hardly win now, and prunes those that will hardly win at all.

    Where trials can be frozen (`judge`, `thaw`, `order`), each is judged after a ninth of its
    training. While trials are left to begin, one slot in four goes on with what can reach most, and
    the others begin new ones; then all slots go on, until no frozen trial is expected within a
    standard deviation of the best. One that has got through two ninths goes on to its end, as long
    as it may win. What a trial can reach is foretold by the `Race`, as long as
    completed trials have ended about where that had them; else, by the bound below.

    Where none can be frozen (`prune`), a trial is pruned when the best score so far is beyond that
    bound. At each step the final scores of completed trials are regressed on the best that these
    had reported up to that step, linearly by least squares, and the bound is that of the prediction
    of one more value (Draper and Smith, 1998, "Applied Regression Analysis", section 3.1). Where
    early scores say little about late ones, as in the first half of a one-cycle schedule, the bound
    is wide and hardly a trial is pruned. The idea is that of Domhan et al. (2015), "Speeding Up
    Automatic Hyperparameter Optimization of Deep Neural Networks by Extrapolation of Learning
    Curves", with the study's own curves in place of families of functions.

    At its last step no trial is frozen or pruned. Where a param decides how many steps a trial has,
    that is known once trials of two lengths have completed; else the median length counts.

    A trial that reports NaN is pruned, as its training has diverged.

    Args:
        confidence: of the bound, above 0.5 and below 1. A trial is judged at each of its steps, and
            the later winner is often a lucky one of several that are alike, so 0.95 prunes it in
            one of four studies.
        n_startup_trials: so many trials complete before the bound is believed; at least 3.
        n_warmup_steps: no trial is frozen or pruned at an earlier step.

    Raises:
        ValueError: an argument is out of its range.
    """

    def __init__(
        self, *, confidence: float = 0.99, n_startup_trials: int = 5, n_warmup_steps: int = 0
    ) -> None:
        if not 0.5 < confidence < 1:
            raise ValueError(f"confidence is above 0.5 and below 1; got {confidence}")
        if n_startup_trials < 3:
            raise ValueError(f"n_startup_trials is at least 3; got {n_startup_trials}")
        if n_warmup_steps < 0:
            raise ValueError(f"n_warmup_steps is not negative; got {n_warmup_steps}")
        self._confidence = confidence
        self._n_startup_trials = n_startup_trials
        self._n_warmup_steps = n_warmup_steps

    def prune(self, study: optuna.Study, trial: FrozenTrial) -> bool:
        """Whether a trial should be pruned at its last step."""
        step = trial.last_step
        if step is None or step < self._n_warmup_steps:
            return False
        if math.isnan(trial.intermediate_values[step]):
            return True
        curves = curves_of(study)
        if curves.by_number[trial.number].ends_at == step:  # no training is left to save
            return False
        return self._is_beaten(curves, trial.number)

    def judge(self, curves: Curves, number: int, *, to_begin: int) -> Verdict:
        """What becomes of a running trial at its last report, where it can be frozen.

        Args:
            to_begin: trials that the study has still to begin, 0 at the end of the search.
        """
        values = curves.by_number[number].values
        step = max(values)
        if step < self._n_warmup_steps:
            return Verdict.GO_ON
        if not math.isfinite(values[step]):
            return Verdict.PRUNE
        race = Race(curves)
        place = race.numbers.index(number)
        ends_at = curves.by_number[number].ends_at
        is_last = race.done[place] == race.total if ends_at is None else step >= ends_at
        if is_last:  # no training is left to save
            return Verdict.GO_ON
        if self._is_beaten(curves, number):
            return Verdict.PRUNE
        beginning = _beginning(curves, race)
        if number in beginning:
            return Verdict.GO_ON
        reach = self._reach(curves, race)
        running = [n for n, curve in curves.by_number.items() if curve.state == "running"]
        places = len(running) - len(beginning.intersection(running))
        if to_begin:
            places = min(places, max(1, len(running) // _SLOTS))
        if race.done[place] > _COMMITTED * race.first_look and number in reach:
            return Verdict.GO_ON
        own = reach.pop(number, -math.inf) + _RESTLESS * float(race.off[place])
        is_ahead = sum(other > own for other in reach.values()) < places
        return Verdict.GO_ON if is_ahead and math.isfinite(own) else Verdict.FREEZE

    def thaw(self, curves: Curves, *, to_begin: int) -> int | None:
        """The frozen trial that a free slot goes on with.

        Args:
            to_begin: as `judge` has it.

        Returns:
            None where a new trial is worth more, or none of the frozen ones may win.
        """
        if not any(curve.state == "frozen" for curve in curves.by_number.values()):
            return None
        race = Race(curves)
        beginning, reach = _beginning(curves, race), self._reach(curves, race)
        states = {number: curve.state for number, curve in curves.by_number.items()}
        if early := [number for number in sorted(beginning) if states[number] == "frozen"]:
            return early[0]
        running = [number for number, state in states.items() if state == "running"]
        going_on = len([number for number in running if number not in beginning])
        if to_begin and going_on >= max(min(1, len(running)), (len(running) + 1) // _SLOTS):
            return None
        frozen = [number for number in reach if states[number] == "frozen"]
        return max(frozen, key=reach.__getitem__, default=None)

    def order(self, curves: Curves) -> Sequence[Outlook]:
        """The frozen trials, the most promising first; those that cannot win are last."""
        frozen = [n for n, curve in curves.by_number.items() if curve.state == "frozen"]
        sign = curves.sign
        return sorted(
            self.outlooks(curves, frozen),
            key=lambda it: (not it.may_win, -sign * it.likely - it.spread),
        )

    def outlooks(self, curves: Curves, numbers: Sequence[int]) -> list[Outlook]:
        """Of trials that have not completed, without those that have reported no number."""
        reported = {number: curves.by_number[number].values for number in numbers}
        known = [n for n, values in reported.items() if any(map(math.isfinite, values.values()))]
        if not known:
            return []
        race = Race(curves)
        places = {number: place for place, number in enumerate(race.numbers)}
        return [self._outlook(curves, race, places[number]) for number in known]

    def _outlook(self, curves: Curves, race: Race, place: int) -> Outlook:
        number, completed = race.numbers[place], int(race.is_completed.sum())
        likely, spread = race.likely(place), float(race.off[place])
        if not race.is_trusted and (regressed := self._regressed(curves, number)) is not None:
            likely, spread, _ = regressed
        return Outlook(
            number=number,
            step=max(curves.by_number[number].values),
            likely=curves.sign * likely,
            spread=spread,
            may_win=self._may_win(curves, race, place),
            best=curves.sign * race.best if completed else None,
            completed=completed,
        )

    def _reach(self, curves: Curves, race: Race) -> dict[int, float]:
        """By how much trials can end before the leader, of those that may win and do not begin."""
        beginning = _beginning(curves, race)
        return {
            number: float(race.leads[place] + race.off[place])
            for place, number in enumerate(race.numbers)
            if number not in beginning
            and curves.by_number[number].state in ("running", "frozen")
            and self._may_win(curves, race, place)
        }

    def _may_win(self, curves: Curves, race: Race, place: int) -> bool:
        if race.is_completed.sum() < _COMPLETED:
            return True
        if race.is_trusted:
            return bool(race.leads[place] + race.off[place] > 0)
        return not self._is_beaten(curves, race.numbers[place])

    def _is_beaten(self, curves: Curves, number: int) -> bool:
        regressed = self._regressed(curves, number)
        return regressed is not None and regressed[2]

    def _regressed(self, curves: Curves, number: int) -> tuple[float, float, bool] | None:
        """What the completed trials let expect of a trial at its last step, higher being better.

        Returns:
            the final score, how far off it is, and whether the bound is below the best completed
            score and would not have been so for the trial that has it; None where too few
            completed trials have reported at that step, or all of them the same.
        """
        step, sign = max(curves.by_number[number].values), curves.sign
        ended = [it for it in curves.by_number.values() if it.final is not None]
        scores = [sign * float(it.final or 0.0) for it in ended]
        pairs = np.array(
            [
                (so_far, score)
                for it, score in zip(ended, scores, strict=True)
                if step in it.values and math.isfinite(so_far := _best_until(step, it.values, sign))
            ]
        )
        if len(pairs) < self._n_startup_trials:
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
        at = np.array([own, reported[final.argmax()]]) - reported.mean()
        likely = final.mean() + slope * at
        variance = residuals @ residuals / freedom
        spread = np.sqrt(variance * (1 + 1 / len(pairs) + at**2 / squares))
        from scipy.special import stdtrit  # its import takes 0.1 s

        bounds = likely + stdtrit(freedom, self._confidence) * spread
        return float(likely[0]), float(spread[0]), bool(bounds[0] < max(scores) <= bounds[1])


def _beginning(curves: Curves, race: Race) -> set[int]:
    """The trials that go on whatever the others do: up to the first look, and the very first."""
    live = [
        (number, bool(race.begun[place]))
        for place, number in enumerate(race.numbers)
        if curves.by_number[number].state in ("running", "frozen")
    ]
    early = {number for number, is_begun in live if not is_begun}
    return early if race.total is not None or not live else {min(live)[0], *early}


def _best_until(step: int, values: Mapping[int, float], sign: float) -> float:
    """The best that a trial has reported by a step, higher ones being better."""
    numbers = (sign * value for at, value in values.items() if at <= step and value == value)
    return max(numbers, default=-math.inf)


def floor_of(values: Sequence[float] | np.ndarray) -> float:
    """The lowest value that counts as it is, where higher ones are better."""
    middle = float(np.median(values))
    return middle - _FURTHEST * (float(np.max(values)) - middle)
