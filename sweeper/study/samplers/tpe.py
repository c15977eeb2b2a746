"""Optuna's TPE sampler for studies of thousands of trials."""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Container
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from ..unseen import UnseenTrials
from .views.view import StudyView

#: Of up to this many finished trials TPE weighs every one; of more, a sample.
WEIGHED = 2000
#: The sample always has the best trials: as many as TPE's density of good trials uses at most.
_BEST = 25


class SamplerMemory:
    """Results that all proposals for one study share, so that none computes them again.

    Attributes:
        common: the dimensions that all trials have; None where TPE takes dimensions in groups.
    """

    def __init__(self, *, is_joint: bool) -> None:
        self.common = CommonDimensions() if is_joint else None
        self._unseen = UnseenTrials()
        self._best: list[tuple[float, int]] = []
        self._values: list[_Values] = []

    def best(self, finished: list[FrozenTrial], *, sign: int) -> list[int]:
        """The numbers of the best completed trials, at most `_BEST`.

        Args:
            finished: all finished trials of the study, by number.
            sign: -1 where a larger value is better, else 1.
        """
        for trial in self._unseen.of(finished):
            if trial.state is TrialState.COMPLETE:
                bisect.insort(self._best, (sign * trial.values[0], trial.number))
                del self._best[_BEST:]
        return [number for _, number in self._best]

    def values_in(self, space: dict[str, BaseDistribution]) -> _Values:
        """The values of trials in a search space."""
        for values in self._values:
            if values.space == space:
                return values
        self._values.append(_Values(space))
        return self._values[-1]


class CommonDimensions:
    """The dimensions that all finished trials of a study have; each trial is looked at once.

    Optuna's own looks at all trials since the oldest one that runs, for each proposal; with a
    thousand trials at once these are thousands.
    """

    def __init__(self) -> None:
        self._unseen = UnseenTrials()
        self._common: dict[str, BaseDistribution] | None = None

    def of(self, finished: list[FrozenTrial]) -> dict[str, BaseDistribution]:
        """The dimensions, sorted by their names.

        Args:
            finished: all completed and pruned trials of the study, by number.
        """
        for trial in self._unseen.of(finished):
            has = trial.distributions
            common = has if self._common is None else self._common
            self._common = {name: d for name, d in common.items() if has.get(name) == d}
        return dict(sorted((self._common or {}).items()))


class _Values:
    """The values of trials in one search space, as numbers; worked out once for each trial."""

    def __init__(self, space: dict[str, BaseDistribution]) -> None:
        self.space = space
        #: Of each trial, what its values follow from, and the values; None where it lacks one.
        self._known: dict[int, tuple[object, object, bool, tuple[float, ...] | None]] = {}

    def columns(
        self, trials: list[FrozenTrial], params_of: Callable[[FrozenTrial], dict[str, Any]]
    ) -> dict[str, np.ndarray]:
        """The values of each dimension, of the trials that have them all.

        Args:
            params_of: the params of a trial; called where a trial has changed.
        """
        rows = []
        for trial in trials:
            # Optuna's storage replaces what it changes.
            params, notes, has_ended = trial.params, trial.system_attrs, trial.state.is_finished()
            known = self._known.get(trial.number)
            if (
                known is None
                or known[0] is not params
                or known[1] is not notes
                or known[2] is not has_ended
            ):
                known = params, notes, has_ended, self._row(params_of(trial))
                self._known[trial.number] = known
            if known[3] is not None:
                rows.append(known[3])
        return {name: np.asarray([row[i] for row in rows]) for i, name in enumerate(self.space)}

    def _row(self, params: dict[str, Any]) -> tuple[float, ...] | None:
        if not self.space.keys() <= params.keys():
            return None
        return tuple(d.to_internal_repr(params[name]) for name, d in self.space.items())


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
        if self._memory.common is None:
            return super().infer_relative_search_space(study, trial)
        finished = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.PRUNED))
        common = self._memory.common.of(finished)
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

    def _get_internal_repr(
        self,
        trials: list[FrozenTrial],
        search_space: dict[str, BaseDistribution],
        study: optuna.Study,
    ) -> dict[str, np.ndarray]:
        """The values of trials as numbers, as the base class has them."""
        values = self._memory.values_in(search_space)
        return values.columns(trials, lambda trial: self._get_params(trial, study))

    def _thinned(self, study: optuna.Study) -> Any:
        # With several objectives any number of trials may be the best, so all are weighed.
        if len(study.directions) > 1:
            return study
        return _Thinned(study, self._memory, self._weighed)


class _Thinned(StudyView):
    """A study of which TPE sees a sample of the ended trials."""

    def __init__(self, study: optuna.Study, memory: SamplerMemory, weighed: int) -> None:
        super().__init__(study)
        self._memory = memory
        self._weighed = weighed
        self._finished: list[FrozenTrial] | None = None

    def _trials(self, states: Container[TrialState] | None, **reading: bool) -> list[FrozenTrial]:
        if states is None:
            return super()._trials(states, **reading)
        if self._finished is None:
            self._finished = self._some_finished()
        if TrialState.RUNNING not in states:
            return self._finished
        running = (TrialState.RUNNING,)
        return self._finished + super()._trials(running, **reading)

    def _some_finished(self) -> list[FrozenTrial]:
        """The best finished trials and at most `weighed` others; all where there are no more."""
        finished = _finished(self._study)
        if len(finished) <= self._weighed:
            return finished
        is_maximized = self._study.direction is StudyDirection.MAXIMIZE
        best = self._memory.best(finished, sign=-1 if is_maximized else 1)
        if len(best) < _BEST:
            return finished  # TPE then counts pruned trials among the best
        each = math.ceil(len(finished) / self._weighed)
        places = [bisect.bisect(finished, number - 1, key=_number) for number in sorted(best)]
        return finished[::each] + [finished[place] for place in places if place % each]


def _finished(study: optuna.Study) -> list[FrozenTrial]:
    """The completed and pruned trials, by number, straight from the storage.

    Optuna's own list of all trials would be looked through.
    """
    return study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.PRUNED))


def _number(trial: FrozenTrial) -> int:
    return int(trial.number)
