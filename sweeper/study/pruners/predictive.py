"""Freezes trials that will hardly win now, and prunes those that will hardly win at all."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Self

import numpy as np
import optuna
from optuna.pruners import BasePruner
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from .curves import Curves, Race

#: Scores further below the median than this many times the way from the median to the best count as
#: if they were there: a loss of a million would hide what the others have in common.
_FURTHEST = 4.0
#: No frozen trial is given up before so many have completed.
_COMPLETED = 2
#: Of the slots, while trials are left to begin, one in so many goes on with a trial.
_SLOTS = 4
#: A trial that runs is frozen for another one that can reach more by this share of the doubt.
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
        chance: of ending better than the best completed trial; 1.0 while there is none.
        may_win: False where it may be given up.
        best: the best score of the completed trials; None while there is none.
        completed: the number of completed trials from which this follows.
    """

    number: int
    step: int
    likely: float
    spread: float
    chance: float
    may_win: bool
    best: float | None
    completed: int


def why_given_up(outlook: Outlook) -> str:
    """Why a frozen trial is pruned, with what it was expected to have."""
    begins = f"pruned at step {outlook.step}, where it was frozen"
    if outlook.best is None:
        return f"{begins}; no trial has completed"
    return (
        f"{begins}; it was expected to end with {outlook.likely:.4g}, give or take "
        f"{outlook.spread:.2g}, and the best of {outlook.completed} finished trials has "
        f"{outlook.best:.6g}"
    )


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """What a trial will have in the end.

    Attributes:
        likely: the score that is expected.
        spread: how far off that is: of Student's t distribution.
        bound: the trial will have a better score with the probability `1 - confidence`.
        best: the best score of the completed trials.
        completed: the number of trials from which this follows.
        is_beaten: whether the best score is better than the bound, and the prediction would not
            have said the same of the trial that has it.
    """

    likely: float
    spread: float
    bound: float
    best: float
    completed: int
    is_beaten: bool


class PredictivePruner(BasePruner):
    """Freezes trials that will hardly win now, and prunes those that will hardly win at all.

    Where trials can be frozen (`judge`, `thaw`, `order`), each is judged after a ninth of its
    training. While trials are left to begin, one slot in four goes on with what can reach most, and
    the others begin new ones; then all slots go on, until no frozen trial is expected within a
    standard deviation of the best. What a trial can reach is foretold by the `Race`, as long as
    completed trials have ended about where that had them; else, by the bound below.

    Where none can be frozen (`prune`), a trial is pruned when the best score so far is beyond that
    bound. At each step the final scores of completed trials are regressed on the best that these
    had reported up to that step, linearly by least squares, and the bound is that of the prediction
    of one more value (Draper and Smith, 1998, "Applied Regression Analysis", section 3.1). Where
    early scores say little about late ones, as in the first half of a one-cycle schedule, the bound
    is wide and hardly a trial is pruned. The idea is that of Domhan et al. (2015), "Speeding Up
    Automatic Hyperparameter Optimization of Deep Neural Networks by Extrapolation of Learning
    Curves", with the study's own curves in place of families of functions.

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
        #: The numbers of the completed trials that `_curves` holds.
        self._learned: set[int] = set()
        #: Of completed trials, by step: the best that they had reported, and their final scores;
        #: higher ones are better.
        self._curves: dict[int, list[tuple[float, float]]] = {}
        #: By step: the line through these, the lowest that counts, and what the best had reported.
        self._fits: dict[int, tuple[_Fit | None, float, float]] = {}
        self._best = -math.inf

    def prune(self, study: optuna.Study, trial: FrozenTrial) -> bool:
        """Whether a trial should be pruned at its last step."""
        step = trial.last_step
        if step is None or step < self._n_warmup_steps:
            return False
        if math.isnan(trial.intermediate_values[step]):
            return True
        prediction = self.prediction(study, trial)
        return prediction is not None and prediction.is_beaten

    def prediction(self, study: optuna.Study, trial: FrozenTrial) -> Prediction | None:
        """What a trial will have in the end, judged at its last step.

        Returns:
            None where too few completed trials have reported at that step.
        """
        completed = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        sign = 1.0 if study.direction is StudyDirection.MAXIMIZE else -1.0
        self._learn(
            ((it.number, it.intermediate_values, float(it.values[0])) for it in completed), sign
        )
        return self._predict(trial.intermediate_values, sign)

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
        if race.done[place] == race.total:  # no training is left to save
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
            places = min(places, len(running) // _SLOTS)
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
        if to_begin and going_on >= (len(running) + 1) // _SLOTS:
            return None
        frozen = [number for number in reach if states[number] == "frozen"]
        return max(frozen, key=reach.__getitem__, default=None)

    def order(self, curves: Curves) -> Sequence[Outlook]:
        """The frozen trials, the most promising first; those that cannot win are last."""
        frozen = [n for n, curve in curves.by_number.items() if curve.state == "frozen"]
        if not frozen:
            return []
        race = Race(curves)
        found = [it for n in frozen if (it := self._outlook(curves, race, n)) is not None]
        sign = curves.sign
        return sorted(found, key=lambda it: (not it.may_win, -sign * it.likely - it.spread))

    def outlook(self, curves: Curves, number: int) -> Outlook | None:
        """Of a trial that has not completed; None where it has reported no number."""
        has_values = any(math.isfinite(v) for v in curves.by_number[number].values.values())
        return self._outlook(curves, Race(curves), number) if has_values else None

    def _outlook(self, curves: Curves, race: Race, number: int) -> Outlook | None:
        if number not in race.numbers:
            return None
        place = race.numbers.index(number)
        likely, spread = race.likely(place), float(race.off[place])
        if not race.is_trusted and (sure := self._predicted(curves, number)) is not None:
            likely, spread = curves.sign * sure.likely, sure.spread
        completed = int(race.is_completed.sum())
        away = (likely - race.best) / max(spread, 1e-300) if completed else math.inf
        return Outlook(
            number=number,
            step=max(curves.by_number[number].values),
            likely=curves.sign * likely,
            spread=spread,
            chance=0.5 * math.erfc(-away / math.sqrt(2)),
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
        prediction = self._predicted(curves, number)
        return prediction is not None and prediction.is_beaten

    def _predicted(self, curves: Curves, number: int) -> Prediction | None:
        completed = ((n, it.values, it.final) for n, it in curves.by_number.items())
        self._learn(((n, v, final) for n, v, final in completed if final is not None), curves.sign)
        return self._predict(curves.by_number[number].values, curves.sign)

    def _predict(self, values: Mapping[int, float], sign: float) -> Prediction | None:
        step = max(values, default=-1)
        if len(self._curves.get(step, [])) < self._n_startup_trials:
            return None
        if step not in self._fits:
            reported, final = np.array(self._curves[step]).T
            floor = _floor(reported)
            reported, final = np.maximum(reported, floor), np.maximum(final, _floor(final))
            fit = _Fit.to(reported, final)
            self._fits[step] = fit, floor, float(reported[final.argmax()])
        fit, floor, of_best = self._fits[step]
        *_, (_, so_far) = _best_by_step(values, sign)
        if fit is None or not math.isfinite(max(so_far, floor)):
            return None
        at = np.array([max(so_far, floor), of_best])
        likely, spread = fit.predict(at)
        bounds = likely + _quantile(self._confidence, fit.degrees) * spread
        return Prediction(
            likely=sign * float(likely[0]),
            spread=float(spread[0]),
            bound=sign * float(bounds[0]),
            best=sign * self._best,
            completed=fit.number,
            is_beaten=bool(bounds[0] < self._best <= bounds[1]),
        )

    def _learn(
        self, completed: Iterable[tuple[int, Mapping[int, float], float]], sign: float
    ) -> None:
        for number, values, score in completed:
            if number in self._learned:
                continue
            self._learned.add(number)
            self._fits.clear()
            final = sign * score
            self._best = max(self._best, final)
            for step, so_far in _best_by_step(values, sign):
                if math.isfinite(so_far):
                    self._curves.setdefault(step, []).append((so_far, final))


def _beginning(curves: Curves, race: Race) -> set[int]:
    """The trials that go on whatever the others do: up to the first look, and the very first."""
    live = [
        (number, bool(race.begun[place]))
        for place, number in enumerate(race.numbers)
        if curves.by_number[number].state in ("running", "frozen")
    ]
    early = {number for number, is_begun in live if not is_begun}
    return early if race.total is not None or not live else {min(live)[0], *early}


def _best_by_step(values: Mapping[int, float], sign: float) -> Iterator[tuple[int, float]]:
    """Steps with the best that a trial had reported by then, higher ones being better."""
    best = -math.inf
    for step, value in sorted(values.items()):
        best = max(best, sign * value)  # NaN is never more
        yield step, best


def _floor(values: np.ndarray) -> float:
    """The lowest value that counts as it is."""
    middle = float(np.median(values))
    return middle - _FURTHEST * (float(np.max(values)) - middle)


@dataclass(frozen=True, kw_only=True)
class _Fit:
    """A straight line through final scores over reported ones.

    Attributes:
        squares: the sum of the squared deviations of what was reported.
        variance: of final scores around the line.
    """

    number: int
    reported_mean: float
    final_mean: float
    slope: float
    squares: float
    variance: float

    @classmethod
    def to(cls, reported: np.ndarray, final: np.ndarray) -> Self | None:
        """The line for completed trials, arrays of shape (trials); None where all are alike."""
        deviations = reported - reported.mean()
        squares = float(deviations @ deviations)
        if squares <= 0:
            return None
        # A higher score early on is no sign of a lower one in the end.
        slope = max(float(deviations @ final) / squares, 0.0)
        residuals = final - final.mean() - slope * deviations
        return cls(
            number=len(reported),
            reported_mean=float(reported.mean()),
            final_mean=float(final.mean()),
            slope=slope,
            squares=squares,
            variance=float(residuals @ residuals) / (len(reported) - 2),
        )

    @property
    def degrees(self) -> int:
        """The degrees of freedom of the variance."""
        return self.number - 2

    def predict(self, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The expected final scores of trials that have reported `at`, and how far off they are.

        A final score minus the expected one, over the second number, has Student's t distribution.
        """
        away = at - self.reported_mean
        spread = np.sqrt(self.variance * (1 + 1 / self.number + away**2 / self.squares))
        return self.final_mean + self.slope * away, spread


@functools.lru_cache(maxsize=16)
def _quantile(confidence: float, degrees: int) -> float:
    """Of Student's t distribution."""
    from scipy.special import stdtrit

    return float(stdtrit(degrees, confidence))
