"""The trials of a study as samplers are to see them.

What a sampler makes of them does not belong here.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Container, Sequence
from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.storages import InMemoryStorage
from optuna.trial import FrozenTrial, TrialState

from ..pruners import PredictivePruner, curves_of, floor_of
from ..trial_codec import RECORD

#: The attribute of a trial with what its sampler has noted about the study.
_NOTED = "sweeper.noted"
#: So many own trials outvote those of earlier studies.
_OUTVOTED_BY = 10
#: Optuna's attribute of a trial for the constraint `memory`: above 0 where it is violated.
_CONSTRAINT = "constraints:memory"


class StorageView:
    """Stands in for a study's storage in one proposal.

    Args:
        storage: of Optuna's kind, or another view.
        seen: makes of all trials those that the sampler is to see.
    """

    def __init__(
        self, storage: Any, seen: Callable[[list[FrozenTrial]], list[FrozenTrial]]
    ) -> None:
        self._storage = storage
        self._seen = seen

    def __getattr__(self, name: str) -> Any:
        return getattr(self._storage, name)

    def get_all_trials(
        self,
        study_id: int,
        deepcopy: bool = True,
        states: Container[TrialState] | None = None,
    ) -> list[FrozenTrial]:
        """The study's trials, as the sampler is to see them."""
        seen = self._seen(self._storage.get_all_trials(study_id, deepcopy=deepcopy))
        return [trial for trial in seen if states is None or trial.state in states]

    def study(self, like: optuna.Study) -> optuna.Study:
        """A study as Optuna loads it from this view."""
        storage: Any = self  # it has all of a storage's methods
        return optuna.load_study(
            study_name=like.study_name, storage=storage, sampler=like.sampler, pruner=like.pruner
        )


class InOrder(StorageView):
    """A study at a fixed point, whatever trials have ended since.

    The sampler sees the ends of the trials up to `number - lag`. Trials after these run, as far as
    it can see, and none after `number` exists. So it proposes the same in each run of the study.

    Some samplers note a count or a list about the study as a whole. Such notes are kept with the
    trial and read in the order of trials: those of a proposal that a kill has lost are lost with
    it, and the proposal is the same when it is made again.

    Args:
        storage: of the study.
        number: of the trial that is proposed.
        lag: how many numbers before it the last trial is whose end counts; at least 1.
    """

    def __init__(self, storage: InMemoryStorage, *, number: int, lag: int) -> None:
        super().__init__(storage, self._in_order)
        self._number = number
        self._last = number - lag
        self._noted: dict[str, Any] = {}

    def _in_order(self, trials: list[FrozenTrial]) -> list[FrozenTrial]:
        return [
            _as_running(trial) if trial.number > self._last and trial.state.is_finished() else trial
            for trial in trials
            if trial.number <= self._number
        ]

    def get_study_system_attrs(self, study_id: int) -> dict[str, Any]:
        """What samplers have noted about the study in the trials before this one."""
        attrs = dict(self._storage.get_study_system_attrs(study_id))
        trials = self._storage.get_all_trials(study_id, deepcopy=False)
        for trial in trials:
            if trial.number < self._number:
                attrs |= trial.system_attrs.get(_NOTED, {})
        return attrs | self._noted

    def set_study_system_attr(self, study_id: int, key: str, value: Any) -> None:
        """Note something about the study, with the trial that is proposed."""
        self._noted[key] = value
        number = self._number
        trial_id = self._storage.get_trial_id_from_study_id_trial_number(study_id, number)
        self._storage.set_trial_system_attr(trial_id, _NOTED, dict(self._noted))


def _as_running(trial: FrozenTrial) -> FrozenTrial:
    seen = copy.copy(trial)
    seen.state, seen.values, seen.datetime_complete = TrialState.RUNNING, None, None
    seen.intermediate_values = {}
    return seen


def with_constraints(trials: list[FrozenTrial]) -> list[FrozenTrial]:
    """The trials, with those that did not fit into memory as ones that violate a constraint.

    They have failed, and Optuna's samplers ignore failed trials. Here they have completed with the
    mean of the values of all others, which makes their params neither better nor worse than others.
    A study without such trials stays as it is, so its proposals are the same.
    """
    values = [trial.values for trial in trials if trial.state is TrialState.COMPLETE]
    if not values or not any(map(_is_infeasible, trials)):
        return trials
    means = [sum(column) / len(column) for column in zip(*values, strict=True)]
    seen = []
    for trial in trials:
        is_infeasible = _is_infeasible(trial)
        changed = copy.copy(trial)
        if is_infeasible:
            changed.state, changed.values = TrialState.COMPLETE, means
        if changed.state.is_finished():
            held = {_CONSTRAINT: 1.0 if is_infeasible else -1.0}
            changed.system_attrs = {**trial.system_attrs, **held}
        seen.append(changed)
    return seen


def with_learned(
    trials: list[FrozenTrial], *, studies: Sequence[Sequence[FrozenTrial]]
) -> list[FrozenTrial]:
    """The trials, with those of earlier studies until ten of the study's own have completed.

    Earlier scores are shifted by what the earlier best params have gained or lost here, so that
    another data set or a longer training does not make one study look better than the other.

    Args:
        studies: the trials of each earlier study, the best first.
    """
    own = [trial for trial in trials if trial.state is TrialState.COMPLETE]
    if len(own) >= _OUTVOTED_BY:
        return trials
    seen = list(trials)
    for earlier in studies:
        again = (trial for trial in own if trial.params == earlier[0].params)
        shift = next(
            (float(trial.value or 0) - float(earlier[0].value or 0) for trial in again), 0.0
        )
        for trial in earlier:
            shifted = copy.copy(trial)
            shifted.value = float(trial.value or 0) + shift
            seen.append(shifted)
    return seen


def _is_infeasible(trial: FrozenTrial) -> bool:
    is_infeasible = trial.user_attrs.get(RECORD, {}).get("is_infeasible", False)
    return trial.state is TrialState.FAIL and bool(is_infeasible)


def with_pruned(study: optuna.Study) -> optuna.Study:
    """A study of one objective whose pruned and frozen trials have the value to be expected.

    It is what all curves let expect of the trial at its last step. Without it, a study whose pruner
    ends most trials would never have enough for a model, and the model would know neither where the
    bad ones are nor which of the others go best. A trial that has diverged counts as the worst.
    """
    completed = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    if not completed or len(study.directions) > 1:
        return study
    expected = {}
    for trial in study.get_trials(deepcopy=False, states=(TrialState.PRUNED, TrialState.RUNNING)):
        is_frozen = trial.user_attrs.get(RECORD, {}).get("state") == "frozen"
        if trial.last_step is not None and (is_frozen or trial.state is TrialState.PRUNED):
            expected[trial.number] = copy.copy(trial)
    curves = curves_of(study)
    outlooks = PredictivePruner().outlooks(curves, list(expected))
    likely = {outlook.number: curves.sign * outlook.likely for outlook in outlooks}
    known = [*(curves.sign * float(trial.value or 0.0) for trial in completed), *likely.values()]
    floor = max(min(known), floor_of(known))
    for number, seen in expected.items():
        has_diverged = not math.isfinite(seen.intermediate_values[seen.last_step or 0])
        value = floor if has_diverged else max(likely[number], floor)
        seen.state, seen.value = TrialState.COMPLETE, curves.sign * value
    view = StorageView(
        study._storage, lambda all_: [expected.get(trial.number, trial) for trial in all_]
    )
    return view.study(study)


class ExpectingTPE(optuna.samplers.TPESampler):
    """Optuna's TPE, for which pruned and frozen trials have the values that `with_pruned` gives."""

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Propose values of the dimensions that all trials of a branch have."""
        return super().sample_relative(with_pruned(study), trial, search_space)
