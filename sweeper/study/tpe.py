"""Optuna's TPE at a cost that hardly grows with the study."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.search_space import IntersectionSearchSpace
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

#: Up to this many finished trials TPE weighs each of them.
WEIGHED = 2000
#: The best ones, which stay whatever else does: as many as TPE takes for such.
_BEST = 25


class SteadyTPE(optuna.samplers.TPESampler):
    """Optuna's sampler, for studies of thousands of trials too.

    TPE models the density of the best few trials and that of all others (Bergstra et al., 2011,
    "Algorithms for Hyper-Parameter Optimization"), and every one of those others costs time in
    every proposal. Of very many, some in equal distances give the same density.

    Args:
        seen: remembers which dimensions all trials have, which Optuna looks up in every trial each
            time that the sampler is new; None where they are to be taken in groups.
        **options: of Optuna's sampler.
    """

    def __init__(self, seen: IntersectionSearchSpace | None, **options: Any) -> None:
        super().__init__(**options)
        self._seen = seen
        self._weighed = max(WEIGHED, 2 * int(options.get("n_startup_trials", 0)))

    def infer_relative_search_space(
        self, study: optuna.Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """As its base."""
        if self._seen is None:
            return super().infer_relative_search_space(study, trial)
        common = self._seen.calculate(study)
        return {name: d for name, d in common.items() if not d.single()}

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """As its base."""
        return super().sample_relative(self._thinned(study), trial, search_space)

    def sample_independent(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """As its base."""
        return super().sample_independent(
            self._thinned(study), trial, param_name, param_distribution
        )

    def _thinned(self, study: optuna.Study) -> Any:
        # With several objectives the best are no short list; all of them count then.
        return study if len(study.directions) > 1 else _Thinned(study, self._weighed)


class _Thinned:
    """A study as TPE sees it: with some of its trials, where they are very many."""

    def __init__(self, study: optuna.Study, weighed: int) -> None:
        self._study = study
        self._weighed = weighed

    def __getattr__(self, name: str) -> Any:
        return getattr(self._study, name)

    def _get_trials(self, **options: Any) -> list[FrozenTrial]:
        trials = self._study._get_trials(**options)
        is_maximized = self._study.direction is StudyDirection.MAXIMIZE
        return _some(trials, self._weighed, sign=-1 if is_maximized else 1)


def _some(trials: list[FrozenTrial], weighed: int, *, sign: int) -> list[FrozenTrial]:
    """The best trials, those that run, and of the others as many as are weighed, or all."""
    finished = [trial for trial in trials if trial.state.is_finished()]
    if len(finished) <= weighed:
        return trials
    completed = [trial for trial in finished if trial.state is TrialState.COMPLETE]
    if len(completed) < _BEST:
        return trials  # then the best of those that were pruned count among the best
    kept = {t.number for t in heapq.nsmallest(_BEST, completed, key=lambda t: sign * _value(t))}
    every = math.ceil(len(finished) / weighed)
    return [t for t in trials if not t.number % every or t.number in kept or _runs(t)]


def _value(trial: FrozenTrial) -> float:
    values: Sequence[float] = trial.values
    return values[0]


def _runs(trial: FrozenTrial) -> bool:
    return not trial.state.is_finished()
