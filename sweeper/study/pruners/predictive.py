"""Prunes trials that will hardly become the best, as the completed ones predict it."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np
import optuna
from optuna.pruners import BasePruner
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

#: Scores further below the median than this many times the way from the median to the best count as
#: if they were there: a loss of a million would hide what the others have in common.
_FURTHEST = 4.0


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """What a trial will have in the end.

    Attributes:
        likely: the score that is expected.
        bound: the trial will have a better score with the probability `1 - confidence`.
        best: the best score of the completed trials.
        completed: the number of trials from which this follows.
        is_beaten: whether the best score is better than the bound, and the prediction would not
            have said the same of the trial that has it.
    """

    likely: float
    bound: float
    best: float
    completed: int
    is_beaten: bool


class PredictivePruner(BasePruner):
    """Prunes a trial when the best score so far is beyond what the trial can be expected to reach.

    At each step the final scores of completed trials are regressed on the best that these had
    reported up to that step, linearly by least squares, and the bound is that of the prediction of
    one more value (Draper and Smith, 1998, "Applied Regression Analysis", section 3.1). Where early
    scores say little about late ones, as in the first half of a one-cycle schedule, the bound is
    wide and hardly a trial is pruned. The idea is that of Domhan et al. (2015), "Speeding Up
    Automatic Hyperparameter Optimization of Deep Neural Networks by Extrapolation of Learning
    Curves", with the study's own curves in place of families of functions.

    A trial that reports NaN is pruned, as its training has diverged.

    Args:
        confidence: of the bound, above 0.5 and below 1. A trial is judged at each of its steps, and
            the later winner is often a lucky one of several that are alike, so 0.95 prunes it in
            one of four studies.
        n_startup_trials: so many trials complete before one is pruned; at least 3.
        n_warmup_steps: no trial is pruned at an earlier step.

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
        sign = 1.0 if study.direction is StudyDirection.MAXIMIZE else -1.0
        self._learn(study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,)), sign)
        step = trial.last_step
        pairs = self._curves.get(step, []) if step is not None else []
        if len(pairs) < self._n_startup_trials:
            return None
        reported, final = np.array(pairs).T
        floor = _floor(reported)
        reported, final = np.maximum(reported, floor), np.maximum(final, _floor(final))
        *_, (_, so_far) = _best_by_step(trial, sign)
        at = np.array([max(so_far, floor), reported[final.argmax()]])
        fit = _Fit.to(reported, final)
        if fit is None or not math.isfinite(at[0]):
            return None
        likely, spread = fit.predict(at)
        bounds = likely + _quantile(self._confidence, fit.degrees) * spread
        return Prediction(
            likely=sign * float(likely[0]),
            bound=sign * float(bounds[0]),
            best=sign * self._best,
            completed=len(pairs),
            is_beaten=bool(bounds[0] < self._best <= bounds[1]),
        )

    def _learn(self, completed: list[FrozenTrial], sign: float) -> None:
        for trial in completed:
            if trial.number in self._learned:
                continue
            self._learned.add(trial.number)
            final = sign * float(trial.values[0])
            self._best = max(self._best, final)
            for step, so_far in _best_by_step(trial, sign):
                if math.isfinite(so_far):
                    self._curves.setdefault(step, []).append((so_far, final))


def _best_by_step(trial: FrozenTrial, sign: float) -> Iterator[tuple[int, float]]:
    """The steps of a trial with the best that it had reported by then, higher ones being better."""
    best = -math.inf
    for step, value in sorted(trial.intermediate_values.items()):
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
