"""Show samplers a changed view of a study's trials.

The samplers themselves are in other modules.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Container, Sequence
from functools import partial
from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.storages import InMemoryStorage
from optuna.trial import FrozenTrial, TrialState

from ...settings.space import SearchSpace
from ...trials import OF_PARAMS
from ..pruners import PredictivePruner, curves_of, floor_of
from ..trial_codec import RECORD
from .distributions import in_space

#: Name of a trial attribute with everything that the trial's sampler has stored about the study.
_NOTED = "sweeper.noted"
#: If the study has this many completed trials, the trials of earlier studies are no longer used
#: (chosen, not measured).
_OUTVOTED_BY = 10
#: Optuna's trial attribute for the constraint `memory`. A value above 0 means that it is violated.
_CONSTRAINT = "constraints:memory"


class StorageView:
    """Replaces a study's storage for one proposal, and shows the sampler other trials.

    Args:
        storage: Storage of Optuna, or another view.
        seen: Returns the trials that the sampler sees, from all trials.
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
        """Return the study's trials as the sampler sees them."""
        seen = self._seen(self._storage.get_all_trials(study_id, deepcopy=deepcopy))
        return [trial for trial in seen if states is None or trial.state in states]

    def study(self, like: optuna.Study) -> optuna.Study:
        """Return a study that reads its trials from this view.

        Args:
            like: Optuna's study, of which name, sampler and pruner are used.
        """
        storage: Any = self  # A view has all methods of a storage.
        return optuna.load_study(
            study_name=like.study_name, storage=storage, sampler=like.sampler, pruner=like.pruner
        )


class InOrder(StorageView):
    """A view of a study at a fixed point, regardless of which trials have ended since.

    The sampler sees the ends of the trials up to `number - lag`. Later trials are shown as running,
    and trials after `number` do not exist for it. So it proposes the same params in each run of the
    study.

    Some samplers store a count or a list about the study. Such attributes are kept with the trial
    and read in the order of trials. If a kill has lost a proposal, its attributes are lost, too. So
    the proposal is the same when it is made again.

    Args:
        storage: Storage of the study.
        number: Number of the trial that is proposed.
        lag: Distance from `number` to the last trial whose end counts, at least 1.
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
        """Return the attributes that samplers stored about the study for trials before this one."""
        attrs = dict(self._storage.get_study_system_attrs(study_id))
        trials = self._storage.get_all_trials(study_id, deepcopy=False)
        return attrs | noted_by(trials[: self._number]) | self._noted

    def set_study_system_attr(self, study_id: int, key: str, value: Any) -> None:
        """Store an attribute about the study with the trial that is proposed."""
        self._noted[key] = value
        number = self._number
        trial_id = self._storage.get_trial_id_from_study_id_trial_number(study_id, number)
        self._storage.set_trial_system_attr(trial_id, _NOTED, dict(self._noted))


def noted_by(trials: Sequence[FrozenTrial]) -> dict[str, Any]:
    """Return what samplers have stored about the study with its trials, in their order."""
    noted: dict[str, Any] = {}
    for trial in trials:
        noted |= trial.system_attrs.get(_NOTED, {})
    return noted


def _as_running(trial: FrozenTrial) -> FrozenTrial:
    seen = copy.copy(trial)
    seen.state, seen.values, seen.datetime_complete = TrialState.RUNNING, None, None
    seen.intermediate_values = {}
    return seen


def with_constraints(trials: list[FrozenTrial]) -> list[FrozenTrial]:
    """Return the trials, with a violated constraint in those that ran out of memory.

    Trials that ran out of memory have failed, and Optuna's samplers ignore failed trials. So the
    sampler sees them as completed, with the mean score of all other trials, so that their params
    seem neither better nor worse. If there are no such trials, nothing is changed.
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
    """Return the trials together with those of earlier studies.

    If ten trials of the study have completed, earlier studies are no longer used. If this study has
    run an earlier study's best params, all scores of the earlier study are shifted by the
    difference between the two scores of these params. So another data set or a longer training does
    not make one study look better than the other.

    Args:
        trials: Trials of the study.
        studies: Trials of each earlier study, the best first.
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


def with_expected_scores(study: optuna.Study, *, is_clipped: bool = False) -> optuna.Study:
    """Return a view of a study in which trials without a score have the score to be expected.

    Pruned and frozen trials have predicted scores. The prediction uses the curves of all trials up
    to the trial's last step. Otherwise, a study in which most trials are pruned would never have
    enough scores for a model. And the model would know neither where bad trials are nor which of
    the others are best.

    Trials that have diverged, or have failed for a reason that may lie in their params, have the
    worst score. Otherwise, a model would know nothing of a region where all trials fail, and so
    would propose it again and again. A failure does not count if a trial with the same params has
    completed, as after `retry`. Studies with several objectives are not changed.

    Args:
        study: Optuna's study, or a view of it.
        is_clipped: Whether scores of completed trials that are far worse than most are raised to
            the worst score that an unfinished trial can have. Otherwise, a single exploded loss
            hides all other differences from a model that scales by the scores.
    """
    # Read all trials once, because trials may end meanwhile.
    trials = study.get_trials(deepcopy=False)
    study = StorageView(study._storage, lambda _: trials).study(study)
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
    proven = [trial.params for trial in completed]
    for trial in study.get_trials(deepcopy=False, states=(TrialState.FAIL,)):
        is_of_params = trial.user_attrs.get(RECORD, {}).get("reason") in OF_PARAMS
        if is_of_params and trial.params not in proven:
            seen = expected[trial.number] = copy.copy(trial)
            seen.state, seen.value = TrialState.COMPLETE, curves.sign * floor
    shown = [expected.get(trial.number, trial) for trial in trials]
    if is_clipped:
        shown = [_raised(trial, floor, curves.sign) for trial in shown]
    return StorageView(study._storage, lambda _: shown).study(study)


def _raised(trial: FrozenTrial, floor: float, sign: float) -> FrozenTrial:
    """Return a trial whose score is not worse than a floor. Scores times `sign` are maximized."""
    if trial.state is not TrialState.COMPLETE or sign * float(trial.value or 0.0) >= floor:
        return trial
    raised = copy.copy(trial)
    raised.value = sign * floor
    return raised


class ExpectingTPE(optuna.samplers.TPESampler):
    """Optuna's TPE, which sees trials without a score with that of `with_expected_scores`.

    Args:
        space: Present search space of the study.
        **options: Options of Optuna's sampler.
    """

    def __init__(self, *, space: SearchSpace, **options: Any) -> None:
        super().__init__(**options)
        self._space = space

    def infer_relative_search_space(
        self, study: optuna.Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """Return the dimensions that trials have had so far, with their present ranges."""
        return super().infer_relative_search_space(self._in_space(study), trial)

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Propose values for the dimensions in `search_space`."""
        seen = self._in_space(with_expected_scores(study))
        return super().sample_relative(seen, trial, search_space)

    def _in_space(self, study: optuna.Study) -> optuna.Study:
        view = StorageView(study._storage, partial(in_space, space=self._space))
        return view.study(study)
