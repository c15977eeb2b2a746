"""Optuna's TPE sampler for studies of thousands of trials."""

from __future__ import annotations

import bisect
import math
from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.search_space import IntersectionSearchSpace
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

#: Of up to this many finished trials TPE weighs every one; of more, a sample.
WEIGHED = 2000
#: The sample always has the best trials: as many as TPE's density of good trials uses at most.
_BEST = 25


class SamplerMemory:
    """Results that all proposals for one study share, so that none computes them again.

    Attributes:
        seen: computes which dimensions all trials have; None where TPE takes dimensions in groups.
    """

    def __init__(self, *, is_joint: bool) -> None:
        self.seen = IntersectionSearchSpace(include_pruned=True) if is_joint else None
        self._known: set[int] = set()
        self._best: list[tuple[float, int]] = []

    def best(self, finished: list[FrozenTrial], *, sign: int) -> list[int]:
        """The numbers of the best completed trials, at most `_BEST`.

        Args:
            finished: all finished trials of the study, by number.
            sign: -1 where a larger value is better, else 1.
        """
        unknown = len(finished) - len(self._known)
        for trial in reversed(finished):  # new trials are among the last
            if not unknown:
                break
            if trial.number not in self._known:
                unknown -= 1
                self._known.add(trial.number)
                if trial.state is TrialState.COMPLETE:
                    bisect.insort(self._best, (sign * trial.values[0], trial.number))
                    del self._best[_BEST:]
        return [number for _, number in self._best]


class SteadyTPE(optuna.samplers.TPESampler):
    """Optuna's TPE, which weighs a sample of the trials where there are thousands.

    TPE models the density of the best few trials and that of all others (Bergstra et al., 2011,
    "Algorithms for Hyper-Parameter Optimization"), and each of the others costs time in every
    proposal. Every n-th of thousands of trials gives nearly the same density.

    Args:
        memory: shared by all samplers of the study.
        **options: of Optuna's sampler.
    """

    def __init__(self, *, memory: SamplerMemory, **options: Any) -> None:
        super().__init__(**options)
        self._memory = memory
        self._weighed = max(WEIGHED, 2 * int(options.get("n_startup_trials", 0)))

    def infer_relative_search_space(
        self, study: optuna.Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """The dimensions that are sampled together, as the base class has them."""
        if self._memory.seen is None:
            return super().infer_relative_search_space(study, trial)
        common = self._memory.seen.calculate(study)
        return {name: d for name, d in common.items() if not d.single()}

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Propose values for `search_space`, as the base class does."""
        return super().sample_relative(self._thinned(study), trial, search_space)

    def sample_independent(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """Propose a value of one parameter, as the base class does."""
        return super().sample_independent(
            self._thinned(study), trial, param_name, param_distribution
        )

    def _thinned(self, study: optuna.Study) -> Any:
        # With several objectives any number of trials may be the best, so all are weighed.
        if len(study.directions) > 1:
            return study
        return _Thinned(study, self._memory, self._weighed)


class _Thinned:
    """Stands in for a study in one proposal of TPE; has a sample of the study's trials."""

    def __init__(self, study: optuna.Study, memory: SamplerMemory, weighed: int) -> None:
        self._study = study
        self._memory = memory
        self._weighed = weighed
        self._finished: list[FrozenTrial] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._study, name)

    def _get_trials(
        self, deepcopy: bool, states: tuple[TrialState, ...], **options: Any
    ) -> list[FrozenTrial]:
        if self._finished is None:
            self._finished = self._some_finished(deepcopy=deepcopy, **options)
        if TrialState.RUNNING not in states:
            return self._finished
        running = (TrialState.RUNNING,)
        return self._finished + self._study._get_trials(deepcopy, states=running, **options)

    def _some_finished(self, **options: Any) -> list[FrozenTrial]:
        """The best finished trials and at most `weighed` others; all where there are no more."""
        states = (TrialState.COMPLETE, TrialState.PRUNED)
        finished = self._study._get_trials(states=states, **options)
        if len(finished) <= self._weighed:
            return finished
        is_maximized = self._study.direction is StudyDirection.MAXIMIZE
        best = self._memory.best(finished, sign=-1 if is_maximized else 1)
        if len(best) < _BEST:
            return finished  # TPE then counts pruned trials among the best
        some = finished[:: math.ceil(len(finished) / self._weighed)]
        numbers = {trial.number for trial in some}
        missed = set(best) - numbers
        return some + [trial for trial in finished if trial.number in missed] if missed else some
