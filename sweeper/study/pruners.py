"""Makes the pruner that a parameters file names."""

from __future__ import annotations

import math
import statistics
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import optuna
from optuna.pruners import BasePruner, PercentilePruner
from optuna.pruners._percentile import (
    _get_best_intermediate_result_over_steps,
    _is_first_in_interval_step,
)
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from ..errors import SettingsError
from ..settings import Settings
from .options import check_options


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
        self._known: set[int] = set()
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
        unknown = len(completed) - len(self._known)
        for trial in reversed(completed):  # new trials are among the last
            if not unknown:
                return
            if trial.number not in self._known:
                unknown -= 1
                self._known.add(trial.number)
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


_CLASSES: Mapping[str, type[BasePruner]] = {
    "none": optuna.pruners.NopPruner,
    "median": SteadyMedian,
    "percentile": SteadyPercentile,
    "hyperband": optuna.pruners.HyperbandPruner,
    "asha": optuna.pruners.SuccessiveHalvingPruner,
    "patient": optuna.pruners.PatientPruner,
    "threshold": optuna.pruners.ThresholdPruner,
    "wilcoxon": optuna.pruners.WilcoxonPruner,
}
#: Our defaults for options without a default in Optuna.
_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "percentile": {"percentile": 25.0},
    "patient": {"patience": 3, "wrapped_pruner": None},
}


def make_pruner(settings: Settings) -> BasePruner:
    """Make the pruner of a study.

    Raises:
        SettingsError: an option does not exist or is invalid, or there are several objectives.
    """
    chosen = settings.study.pruner
    where = f"{settings.file or 'settings'}: study.pruner"
    if chosen.name != "none" and len(settings.objective) > 1:
        raise SettingsError(
            f"{where}: {chosen.name} needs a single objective, and there are "
            f"{len(settings.objective)}; use none"
        )
    kind = _CLASSES[chosen.name]
    check_options(
        kind, chosen.options, reserved=["wrapped_pruner"], where=f"{where}: {chosen.name}"
    )
    try:
        with warnings.catch_warnings():
            # Optuna marks some pruners as experimental; our tests cover them.
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            return kind(**{**_DEFAULTS.get(chosen.name, {}), **chosen.options})
    except (TypeError, ValueError) as error:
        raise SettingsError(f"{where}: {chosen.name}: {error}") from error


def why_pruned(finished: Iterable[FrozenTrial], step: int, value: float) -> str:
    """Why a trial was pruned, with the median of the finished trials at the same step."""
    others = [t.intermediate_values[step] for t in finished if step in t.intermediate_values]
    middle = f", median {statistics.median(others):.6g}" if others else ""
    return f"pruned at step {step} with {value:.6g}; {len(others)} finished trials{middle}"
