"""Optuna's percentile and median pruners for studies of thousands of trials."""

from __future__ import annotations

import math

import numpy as np
import optuna
from optuna.pruners import PercentilePruner
from optuna.pruners._percentile import (
    _get_best_intermediate_result_over_steps,
    _is_first_in_interval_step,
)
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from ..unseen import UnseenTrials


class SteadyPercentile(PercentilePruner):
    """Optuna's percentile pruner, which looks at each completed trial once.

    Optuna's own goes through all of them for each report.
    """

    def __init__(
        self,
        percentile: float,
        n_startup_trials: int = 5,
        n_warmup_steps: int = 0,
        interval_steps: int = 1,
        *,
        n_min_trials: int = 1,
    ) -> None:
        super().__init__(
            percentile, n_startup_trials, n_warmup_steps, interval_steps, n_min_trials=n_min_trials
        )
        self._percentile = percentile
        self._n_startup_trials = n_startup_trials
        self._n_warmup_steps = n_warmup_steps
        self._interval_steps = interval_steps
        self._n_min_trials = n_min_trials
        self._unseen = UnseenTrials()
        #: What completed trials have reported, by step.
        self._reported: dict[int, list[float]] = {}

    def prune(self, study: optuna.Study, trial: FrozenTrial) -> bool:
        """Whether a trial should be pruned, as the base class decides."""
        completed = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        step = trial.last_step
        if not completed or len(completed) < self._n_startup_trials or step is None:
            return False
        if step < self._n_warmup_steps or not _is_first_in_interval_step(
            step, trial.intermediate_values.keys(), self._n_warmup_steps, self._interval_steps
        ):
            return False
        best = _get_best_intermediate_result_over_steps(trial, study.direction)
        if math.isnan(best):
            return True
        self._learn(completed)
        reported = self._reported.get(step, [])
        if len(reported) < self._n_min_trials:
            return False
        is_maximized = study.direction is StudyDirection.MAXIMIZE
        percentile = 100 - self._percentile if is_maximized else self._percentile
        limit = float(np.nanpercentile(np.array(reported, dtype=float), percentile))
        return bool(best < limit if is_maximized else best > limit)

    def _learn(self, completed: list[FrozenTrial]) -> None:
        for trial in self._unseen.of(completed):
            for step, value in trial.intermediate_values.items():
                self._reported.setdefault(step, []).append(value)


class SteadyMedian(SteadyPercentile):
    """Optuna's median pruner, likewise."""

    def __init__(
        self,
        n_startup_trials: int = 5,
        n_warmup_steps: int = 0,
        interval_steps: int = 1,
        *,
        n_min_trials: int = 1,
    ) -> None:
        super().__init__(
            50.0, n_startup_trials, n_warmup_steps, interval_steps, n_min_trials=n_min_trials
        )
