"""Freeze trials that are unlikely to win now, and prune those that are unlikely to win at all.

A trial wins if it gets the best score of the study. A frozen trial is paused, so that another trial
can run in its slot. The frozen trial may continue later. A pruned trial ends for good.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np
import optuna
from optuna.pruners import BasePruner
from optuna.trial import FrozenTrial

from .bound import Bound, bound_of
from .curves import Curves, CurveState, curves_of
from .race import COMMITTED, COMPLETED, RESTLESS, SLOTS, Race


class Verdict(Enum):
    """What happens to a running trial after a report.

    FREEZE pauses the trial's kernel, which may continue later. PRUNE ends the trial for good.
    """

    GO_ON = "go on"
    FREEZE = "freeze"
    PRUNE = "prune"


@dataclass(frozen=True, kw_only=True)
class Outlook:
    """Prediction of a trial's final score, in the score's own unit and direction.

    Attributes:
        number: Trial number in the study.
        step: Step of the trial's latest report, after which it is judged.
        likely: Predicted final score.
        spread: Standard deviation of the prediction.
        may_win: Whether the trial can still become the best one, by the prediction. If not, it may
            be pruned.
        best: Best score of the completed trials. None if no trial has completed.
        completed: Number of completed trials on which the prediction is based.
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
            f"its predicted final score is {self.likely:.4g} ± {self.spread:.2g}, and the best of "
            f"{self.completed} completed trials has {self.best:.6g}"
        )


class PredictivePruner(BasePruner):
    """Freezes trials that are unlikely to win now, and prunes those that cannot win any more.

    If trials can be frozen (`judge`, `thaw`, `order`), each trial is first judged after one ninth
    of its training. Each slot of the sweep runs one trial at a time. While the study has new trials
    to begin, one slot in four continues the trial that can reach the best score, and the other
    slots begin new trials. After that, all slots continue frozen trials, until none of them is
    predicted to end within one standard deviation of the best. A trial that has done more than two
    ninths of its training runs until it completes, as long as it can win. The `Race` predicts which
    score a trial can reach, as long as its predictions for completed trials were about right.
    Otherwise, the bound of the next paragraph decides.

    A trial is pruned when the best score so far is above the upper bound of its predicted score
    (`bound_of`). If trials cannot be frozen (`prune`), only this bound decides. If early scores say
    little about final ones, as in the first half of a one-cycle schedule, the bound is wide, and
    few trials are pruned. The idea comes from Domhan et al. (2015), "Speeding Up Automatic
    Hyperparameter Optimization of Deep Neural Networks by Extrapolation of Learning Curves". Here,
    the study's own curves replace families of functions.

    No trial is frozen or pruned after it has reported its last step. If a param decides the number
    of steps, the last step is known when trials of two lengths have completed. Otherwise, the
    median length of completed trials counts.

    A trial that reports NaN is pruned, because its training has diverged. If trials can be frozen,
    a trial that reports an infinite value is pruned, too.

    Args:
        confidence: Confidence level of the bound, above 0.5 and below 1. It should be high, because
            a trial is judged at each step, and because the best trial is often one of several
            equally good ones that had luck. With 0.95, the trial that would have become the best is
            pruned in one of four studies.
        n_startup_trials: Least number of completed trials for the bound. At least 3.
        n_warmup_steps: Step before which no trial is frozen or pruned.

    Raises:
        ValueError: An argument is out of its range.
    """

    def __init__(
        self, *, confidence: float = 0.99, n_startup_trials: int = 5, n_warmup_steps: int = 0
    ) -> None:
        if not 0.5 < confidence < 1:
            raise ValueError(f"confidence must be above 0.5 and below 1; got {confidence}")
        if n_startup_trials < 3:
            raise ValueError(f"n_startup_trials must be at least 3; got {n_startup_trials}")
        if n_warmup_steps < 0:
            raise ValueError(f"n_warmup_steps must not be negative; got {n_warmup_steps}")
        self._confidence = confidence
        self._n_startup_trials = n_startup_trials
        self._n_warmup_steps = n_warmup_steps

    def prune(self, study: optuna.Study, trial: FrozenTrial) -> bool:
        """Return whether a trial should be pruned after its latest report."""
        step = trial.last_step
        if step is None or step < self._n_warmup_steps:
            return False
        if math.isnan(trial.intermediate_values[step]):
            return True
        curves = curves_of(study)
        # Pruning at the end of the training would save nothing.
        if curves.by_number[trial.number].ends_at == step:
            return False
        return self._is_beaten(curves, trial.number)

    def judge(self, curves: Curves, number: int, *, to_begin: int) -> Verdict:
        """Decide whether a trial continues, is frozen, or is pruned after its latest report.

        Args:
            curves: Learning curves of the study.
            number: Trial number in the study.
            to_begin: Number of trials that the study has still to begin. 0 at the end of the
                search.
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
        if is_last:  # Pruning at the end of the training would save nothing.
            return Verdict.GO_ON
        if self._is_beaten(curves, number):
            return Verdict.PRUNE
        beginning = _beginning(curves, race)
        if number in beginning:
            return Verdict.GO_ON
        reach = self._reach(curves, race)
        if number not in reach:
            return Verdict.FREEZE
        if race.done[place] > COMMITTED * race.first_look:
            return Verdict.GO_ON
        own = reach[number] + RESTLESS * float(race.off[place])
        n_ahead = sum(value > own for other, value in reach.items() if other != number)
        is_ahead = n_ahead < _slots_to_continue(curves, beginning, to_begin=to_begin)
        return Verdict.GO_ON if is_ahead else Verdict.FREEZE

    def thaw(self, curves: Curves, *, to_begin: int) -> int | None:
        """Choose the frozen (paused) trial that should continue in a free slot. Do not thaw it.

        Args:
            curves: Learning curves of the study.
            to_begin: Number of trials that the study has still to begin.

        Returns:
            The trial's number. None if a new trial has priority, or if no frozen trial can win.
        """
        frozen = _numbers_of(curves, "frozen")
        if not frozen:
            return None
        race = Race(curves)
        beginning = _beginning(curves, race)
        judged_too_early = beginning.intersection(frozen)
        if judged_too_early:
            return min(judged_too_early)
        running = _numbers_of(curves, "running")
        n_continuing = len(set(running) - beginning)
        # `+ 1` counts the free slot. If any trial runs, at least one slot is for a judged trial. If
        # no trial runs, a new trial has priority.
        least = min(1, len(running))
        if to_begin and n_continuing >= max(least, (len(running) + 1) // SLOTS):
            return None
        reach = self._reach(curves, race)
        can_win = [number for number in reach if number in frozen]
        return max(can_win, key=reach.__getitem__, default=None)

    def order(self, curves: Curves) -> Sequence[Outlook]:
        """Return the predictions for the frozen trials, the most promising trial first.

        The order is that of the predicted scores, each improved by one standard deviation. Trials
        that cannot win come last.
        """

        def rank(outlook: Outlook) -> tuple[bool, float]:
            return not outlook.may_win, -curves.sign * outlook.likely - outlook.spread

        return sorted(self.outlooks(curves, _numbers_of(curves, "frozen")), key=rank)

    def outlooks(self, curves: Curves, numbers: Sequence[int]) -> list[Outlook]:
        """Return the predictions for trials that have not completed.

        Trials that have not reported a finite value are left out.

        Args:
            curves: Learning curves of the study.
            numbers: Numbers of the trials.
        """
        known = []
        for number in numbers:
            values = curves.by_number[number].values.values()
            if any(map(math.isfinite, values)):
                known.append(number)
        if not known:
            return []
        race = Race(curves)
        places = {number: place for place, number in enumerate(race.numbers)}
        return [self._outlook(curves, race, places[number]) for number in known]

    def _outlook(self, curves: Curves, race: Race, place: int) -> Outlook:
        number, completed = race.numbers[place], int(race.is_completed.sum())
        likely, spread = race.likely(place), float(race.off[place])
        bound = None if race.is_trusted else self._bound(curves, number)
        if bound is not None:
            likely, spread = bound.likely, bound.spread
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
        """Return by how much the final scores of trials may exceed the leader's, by trial number.

        The leader is the best completed trial, or the most promising one as long as none has
        completed (`Race.leader`). The value is the predicted difference from the leader's final
        score, plus one standard deviation. Higher scores are better. Only running and frozen trials
        that can win and are past their first judgement are included.
        """
        beginning = _beginning(curves, race)
        return {
            number: float(race.leads[place] + race.off[place])
            for place, number in enumerate(race.numbers)
            if number not in beginning
            and curves.by_number[number].state in ("running", "frozen")
            and self._may_win(curves, race, place)
        }

    def _may_win(self, curves: Curves, race: Race, place: int) -> bool:
        if race.is_completed.sum() < COMPLETED:
            return True
        if race.is_trusted:
            return bool(race.leads[place] + race.off[place] > 0)
        return not self._is_beaten(curves, race.numbers[place])

    def _is_beaten(self, curves: Curves, number: int) -> bool:
        bound = self._bound(curves, number)
        return bound is not None and bound.is_beaten

    def _bound(self, curves: Curves, number: int) -> Bound | None:
        return bound_of(
            curves,
            number,
            n_startup_trials=self._n_startup_trials,
            confidence=self._confidence,
        )


def _numbers_of(curves: Curves, state: CurveState) -> list[int]:
    return [number for number, curve in curves.by_number.items() if curve.state == state]


def _slots_to_continue(curves: Curves, beginning: set[int], *, to_begin: int) -> int:
    """Return how many trials that are past their first judgement may run at the same time.

    The other slots of the sweep are for new trials, and for trials before their first judgement.

    Args:
        curves: Learning curves of the study.
        beginning: Numbers of the trials that must not be judged yet, as `_beginning` returns them.
        to_begin: Number of trials that the study has still to begin.
    """
    running = _numbers_of(curves, "running")
    slots = len(running) - len(beginning.intersection(running))
    return min(slots, max(1, len(running) // SLOTS)) if to_begin else slots


def _beginning(curves: Curves, race: Race) -> set[int]:
    """Return the numbers of the running and frozen trials that must not be judged yet.

    These are the trials before their first judgement, also those that have not reported yet. Until
    a trial has completed, the trial with the lowest number that has reported is one of them, too,
    because it will show how long a training is.
    """
    live = {*_numbers_of(curves, "running"), *_numbers_of(curves, "frozen")}
    judged = [race.numbers[place] for place in np.flatnonzero(race.begun)]
    early = live.difference(judged)
    reported = live.intersection(race.numbers)
    if race.total is None and reported:
        early.add(min(reported))
    return early
