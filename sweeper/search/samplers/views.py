"""Show samplers changed copies of a study's trials.

For example, a sampler sees a pruned trial as completed, with its predicted score. The trials in the
study's storage stay as they are.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Container, Mapping, Sequence
from functools import partial
from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.trial import FrozenTrial, TrialState

from ...settings.space import SearchSpace
from ...trials import OF_PARAMS
from ..pruners import PredictivePruner, curves_of, floor_of
from ..trial_codec import RECORD
from .distributions import in_space

#: If the study has this many completed trials, the trials of earlier studies are no longer used
#: (chosen, not measured).
_OUTVOTED_BY = 10
#: Key of the trial attribute from which Optuna's samplers read a constraint. The constraint is that
#: the trial fits into memory. A value above 0 means that it does not fit.
_CONSTRAINT = "constraints:memory"


class StorageView:
    """A study's storage as a sampler sees it for one proposal: with changed trials.

    Args:
        storage: Storage of Optuna, or another view.
        seen: Called with all trials of the storage. Returns the trials that the sampler sees.
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
            like: Optuna's study, which gives the name, sampler and pruner of the new study.
        """
        storage: Any = self  # A view has all methods of a storage.
        return optuna.load_study(
            study_name=like.study_name, storage=storage, sampler=like.sampler, pruner=like.pruner
        )


def in_order(trials: list[FrozenTrial], *, number: int, lag: int) -> list[FrozenTrial]:
    """Return the trials as the sampler sees them in a study with `order: fixed`.

    The sampler sees the ends of the trials up to `number - lag`. It sees later trials as running,
    even if they have ended, and trials after `number` not at all. So it proposes the same params
    whenever the study runs.

    Args:
        trials: All trials of the study.
        number: Number of the trial that is proposed.
        lag: Distance from `number` to the last trial whose end the sampler sees, at least 1.
    """
    seen = []
    for trial in trials[: number + 1]:
        is_hidden = trial.number > number - lag and trial.state.is_finished()
        seen.append(_as_running(trial) if is_hidden else trial)
    return seen


def _as_running(trial: FrozenTrial) -> FrozenTrial:
    seen = copy.copy(trial)
    seen.state, seen.values, seen.datetime_complete = TrialState.RUNNING, None, None
    seen.intermediate_values = {}
    return seen


def with_constraints(trials: list[FrozenTrial]) -> list[FrozenTrial]:
    """Return the trials with a constraint, which trials that do not fit into memory violate.

    Trials that do not fit into memory have failed, and Optuna's samplers ignore failed trials. So
    the sampler sees them as completed, with the mean score of all other trials, so that their
    params seem neither better nor worse. If there are no such trials, or if no trial has completed,
    return the trials unchanged.
    """
    values = [trial.values for trial in trials if trial.state is TrialState.COMPLETE]
    if not values or not any(map(_is_infeasible, trials)):
        return trials
    means = [sum(column) / len(column) for column in zip(*values, strict=True)]
    seen = []
    for trial in trials:
        is_infeasible = _is_infeasible(trial)
        if is_infeasible:
            trial = _completed(trial, means)
        if trial.state.is_finished():
            trial = copy.copy(trial)
            violation = 1.0 if is_infeasible else -1.0
            trial.system_attrs = {**trial.system_attrs, _CONSTRAINT: violation}
        seen.append(trial)
    return seen


def with_learned(
    trials: list[FrozenTrial], *, studies: Sequence[Sequence[FrozenTrial]]
) -> list[FrozenTrial]:
    """Return the trials of this study together with those of earlier studies.

    If ten trials of this study have completed, earlier studies are no longer used. If this study
    has run an earlier study's best params, these params have a score in each of the two studies.
    Then all scores of the earlier study are shifted by the difference between these scores. So
    another data set or a longer training does not make one study look better than the other.

    Args:
        trials: Trials of this study.
        studies: Trials of each earlier study, the best first.
    """
    own = [trial for trial in trials if trial.state is TrialState.COMPLETE]
    if len(own) >= _OUTVOTED_BY:
        return trials
    seen = list(trials)
    for earlier in studies:
        best = earlier[0]
        again = [trial for trial in own if trial.params == best.params]
        shift = _score(again[0]) - _score(best) if again else 0.0
        seen += [_completed(trial, [_score(trial) + shift]) for trial in earlier]
    return seen


def _score(trial: FrozenTrial) -> float:
    return float(trial.value or 0.0)


def with_expected_scores(study: optuna.Study, *, is_clipped: bool = False) -> optuna.Study:
    """Return a view of a study in which trials without a score have an expected score.

    Pruned and frozen (paused) trials have predicted scores. The prediction uses the learning curves
    of all trials up to the trial's last step. Without these scores, a study in which most trials
    are pruned would never have enough scores for a model. And the model would know neither where
    bad trials are, nor which of the unfinished trials are better than others.

    Trials that have diverged, or have failed for a reason that may lie in their params, have the
    worst score of all other trials, or the limit of `floor_of` if that is better. Otherwise, a
    model would know nothing of a region where all trials fail, and so would propose it again and
    again. A failure does not count if a trial with the same params has completed, as after `retry`.
    Studies with several objectives are not changed.

    Args:
        study: Optuna's study, or a view of it.
        is_clipped: Whether scores of completed trials that are far worse than most are raised to
            the worst score that an unfinished trial can have. Otherwise, a single exploded loss
            would hide all other differences from a model that divides scores by their standard
            deviation.
    """
    # Read all trials once, because trials may end meanwhile.
    trials = study.get_trials(deepcopy=False)
    study = StorageView(study._storage, lambda _: trials).study(study)
    completed = [trial for trial in trials if trial.state is TrialState.COMPLETE]
    if not completed or len(study.directions) > 1:
        return study
    curves = curves_of(study)
    unfinished = [trial.number for trial in trials if _is_unfinished(trial)]
    outlooks = PredictivePruner().outlooks(curves, unfinished)
    likely = {outlook.number: curves.sign * outlook.likely for outlook in outlooks}
    scores = [curves.sign * _score(trial) for trial in completed]
    known = [*scores, *likely.values()]
    floor = max(min(known), floor_of(known))
    proven = [trial.params for trial in completed]
    shown = []
    for trial in trials:
        expected = None
        if trial.number in unfinished:
            expected = floor if _has_diverged(trial) else max(likely[trial.number], floor)
        elif _has_failed_by_params(trial) and trial.params not in proven:
            expected = floor
        elif is_clipped and trial.state is TrialState.COMPLETE:
            expected = max(curves.sign * _score(trial), floor)
        if expected is not None:
            trial = _completed(trial, [curves.sign * expected])
        shown.append(trial)
    return StorageView(study._storage, lambda _: shown).study(study)


def _is_unfinished(trial: FrozenTrial) -> bool:
    """Return whether a trial has reported, and was then pruned or is now frozen (paused)."""
    is_frozen = trial.state is TrialState.RUNNING and _record(trial).get("state") == "frozen"
    return trial.last_step is not None and (is_frozen or trial.state is TrialState.PRUNED)


def _has_diverged(trial: FrozenTrial) -> bool:
    return not math.isfinite(trial.intermediate_values[trial.last_step or 0])


def _has_failed_by_params(trial: FrozenTrial) -> bool:
    return trial.state is TrialState.FAIL and _record(trial).get("reason") in OF_PARAMS


def _is_infeasible(trial: FrozenTrial) -> bool:
    return trial.state is TrialState.FAIL and bool(_record(trial).get("is_infeasible"))


def _record(trial: FrozenTrial) -> Mapping[str, Any]:
    """Return what the sweep has stored about a trial: its `TrialRecord` as JSON.

    Empty if nothing is stored.
    """
    record: Mapping[str, Any] = trial.user_attrs.get(RECORD, {})
    return record


def _completed(trial: FrozenTrial, values: list[float]) -> FrozenTrial:
    """Return a trial as if it had completed with these scores."""
    seen = copy.copy(trial)
    seen.state, seen.values = TrialState.COMPLETE, values
    return seen


class ExpectingTPE(optuna.samplers.TPESampler):
    """Optuna's TPE, which sees pruned, frozen and failed trials with their expected scores.

    The function `with_expected_scores` says which scores these are.

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
