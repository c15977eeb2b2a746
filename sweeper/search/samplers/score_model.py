"""Model a study's scores in its whole space by the Gaussian process of `sampler: gp`.

The module `effects` measures with this model how much each param matters, and `surfaces` predicts
scores.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from typing import Any

import numpy as np
import optuna
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from ...settings.space import SearchSpace
from .padded_gp import on_one_thread
from .padding import Array, Padding
from .views import with_expected_scores

#: The process is fitted to at most this number of trials, so that the fit takes seconds (chosen).
_MOST_TRIALS = 200
#: Scores are cut off at this many interquartile ranges beyond the quartiles (Tukey's fence for
#: values that are far out). Otherwise, a loss that has exploded would make all others look equal.
_REACH = 3.0
#: The Gaussian process predicts each score from all others. The scores count as noise if this
#: explains no more of their variance than a limit: the first number, plus the second number divided
#: by the number of trials (chosen). In seven studies with a learning sampler and scores that were
#: only noise, it explained up to 0.62 of the variance with 12 trials, 0.40 with 20, 0.18 with 30,
#: 0.23 with 60 and 0.02 with 120.
_LEAST_PREDICTED, _BY_LUCK = 0.08, 10


def can_predict() -> bool:
    """Return whether torch is installed, which the models of scores need."""
    return find_spec("torch") is not None


@dataclass(frozen=True)
class ScoreModel:
    """A Gaussian process that is fitted to the trials' scores of one objective.

    Attributes:
        padding: Converts trials to points of the unit cube, to which all ranges are scaled.
        points: The trials as points of the cube, shape (trials, dimensions), the best trial first.
        scores: Scores of these trials, shifted and scaled to mean 0 and variance 1.
        middle: Mean of the scores before they were shifted.
        scale: Standard deviation of the scores before they were scaled.
        process: Optuna's Gaussian process of the scaled scores.
    """

    padding: Padding
    points: Array
    scores: Array
    middle: float
    scale: float
    process: Any

    @property
    def names(self) -> list[str]:
        """Names of the params, in the order of the columns of `points`."""
        return list(self.padding.distributions)

    @cached_property
    def predicts_better_than_luck(self) -> bool:
        """Whether the Gaussian process predicts each score from all others better than by luck.

        These predictions must explain a larger share of the scores' variance than they may explain
        by chance if the scores do not depend on the params.
        """
        noise = float(self.process.noise_var) * np.eye(len(self.scores))
        inverse = np.linalg.inv(self.process.kernel().numpy() + noise)
        errors = inverse @ self.scores / np.diag(inverse)
        predicted = 1 - np.mean(errors**2)
        return bool(predicted > _LEAST_PREDICTED + _BY_LUCK / len(self.scores))

    @property
    def noise(self) -> float:
        """Standard deviation of the score between runs of the same params.

        If the process predicts no better than noise, this is the standard deviation of all scores.
        The noise that the process states would then be too small, because the process fits a part
        of the noise: 0.7 to 0.8 of the true value in two studies of 60 trials.
        """
        share = float(self.process.noise_var) if self.predicts_better_than_luck else 1.0
        return self.scale * math.sqrt(share)

    def predict(self, places: Array) -> tuple[Array, Array]:
        """Return the predicted scores and their standard deviations at points of the unit cube.

        Args:
            places: Points of the cube, as in the attribute `points`, shape (…, dimensions).
        """
        import torch

        padded = self.padding.padded(torch.from_numpy(places))
        with torch.no_grad():
            mean, variance = self.process.posterior(padded)
        means = self.middle + self.scale * mean.numpy()
        return means, self.scale * variance.numpy() ** 0.5


class ScoreModels:
    """The models of a study's scores. Each is fitted once, when it is first asked for.

    Pruned and frozen (paused) trials count with their predicted scores (see
    `with_expected_scores`), because otherwise the models would know mostly good trials. Failed
    trials do not count, so the models are unsure in regions where trials fail.

    Args:
        study: Optuna's study.
        space: Search space of the study.
        objectives: Names of the objectives, in Optuna's order.
    """

    def __init__(self, study: optuna.Study, space: SearchSpace, objectives: Sequence[str]) -> None:
        self.objectives = objectives
        self._directions = study.directions
        self._padding = Padding(space)
        seen = self._padding.seen(with_expected_scores(study))
        states = [trial.state for trial in study.get_trials(deepcopy=False)]
        self._completed: list[FrozenTrial] = []
        self._pruned: list[FrozenTrial] = []
        for trial in seen.get_trials(deepcopy=False, states=(TrialState.COMPLETE,)):
            if states[trial.number] is TrialState.COMPLETE:
                self._completed.append(trial)
            elif states[trial.number] is not TrialState.FAIL:
                self._pruned.append(trial)
        self._fitted: dict[str, ScoreModel | None] = {}

    @property
    def names(self) -> list[str]:
        """Names of the params that are inputs of the models."""
        return list(self._padding.distributions)

    @property
    def noise(self) -> dict[str, float]:
        """Noise (`ScoreModel.noise`) of the objectives whose models have been fitted, by objective.

        Empty if the models use predicted scores of pruned or frozen (paused) trials, because
        predicted scores have no noise.
        """
        if self._pruned:
            return {}
        return {name: model.noise for name, model in self._fitted.items() if model is not None}

    @property
    def n_completed(self) -> int:
        """Number of completed trials whose scores the models can use."""
        return len(self._completed)

    def of(
        self, objective: str, *, before_step: Callable[[], None] = lambda: None
    ) -> ScoreModel | None:
        """Return the model of an objective. None if it has no scores, or if all are equal.

        Args:
            objective: Name of the objective.
            before_step: Called before the model is fitted. An exception that it raises ends the
                computation.
        """
        if objective not in self._fitted:
            before_step()
            self._fitted[objective] = self._fit(self.objectives.index(objective))
        return self._fitted[objective]

    def _fit(self, index: int) -> ScoreModel | None:
        from optuna._gp import gp, prior

        if not self._completed:
            return None
        is_minimized = self._directions[index] == StudyDirection.MINIMIZE
        sign = 1 if is_minimized else -1
        best = min(self._completed, key=lambda trial: sign * trial.values[index])
        others = [trial for trial in self._completed + self._pruned if trial is not best]
        n_others = min(len(others), _MOST_TRIALS - 1)
        used = [best, *random.Random(0).sample(others, n_others)]
        scores = _clipped(np.array([trial.values[index] for trial in used]))
        if np.ptp(scores) == 0:
            return None
        points = self._padding.points(used)
        middle, scale = float(scores.mean()), float(scores.std())
        scores = (scores - middle) / scale
        with on_one_thread():
            process = gp.fit_kernel_params(
                X=points,
                Y=scores,
                is_categorical=self._padding.is_choice,
                log_prior=prior.default_log_prior,
                minimum_noise=prior.DEFAULT_MINIMUM_NOISE_VAR,
                deterministic_objective=False,
            )
        return ScoreModel(self._padding, points, scores, middle, scale, process)


def _clipped(scores: Array) -> Array:
    """Return scores, in which outliers are moved to a limit.

    The limits are `_REACH` interquartile ranges below the lower quartile and above the upper one.
    If both quartiles are equal, return the scores unchanged.
    """
    low, high = np.quantile(scores, [0.25, 0.75])
    reach = _REACH * (high - low) or np.inf
    return np.clip(scores, low - reach, high + reach)
