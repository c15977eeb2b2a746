"""What the next trial should try: what somebody has asked for, else what the sampler says."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

import optuna
from optuna.trial import FrozenTrial, TrialState

from ..settings.messages import as_yaml
from ..settings.space import SearchSpace, from_scalar
from ..trials import run_id_of
from .samplers import SamplerFactory, suggest
from .storage import MirroredStorage
from .trial_codec import RECORD

#: The attribute of a trial that was queued by hand, beside those that the study plans itself.
BY_HAND = "sweeper.by_hand"
#: Its attribute with seed and first number of the trial that it tries again.
RETRY = "sweeper.retry"
#: Optuna's, with what a trial was queued with.
_QUEUED = "fixed_params"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A trial that Optuna has begun, and nobody has been told of yet."""

    number: int
    params: dict[str, Any]


def propose(
    storage: MirroredStorage, space: SearchSpace, samplers: SamplerFactory, *, again: int | None
) -> Proposal:
    """Number and params of a new trial.

    Args:
        again: the number of a trial that was killed before it had any params; it gets some now.
    """
    name = storage.get_all_studies()[0].study_name
    trials = waiting(storage)
    # A waiting trial keeps the number that it was given when it was put in the queue.
    number = trials[0].number if trials else storage.get_n_trials(_only(storage))
    sampler = samplers.make(number if again is None else again)
    study = optuna.load_study(study_name=name, storage=storage, sampler=sampler)
    if again is not None:
        trial = optuna.Trial(study, study.get_trials(deepcopy=False)[again]._trial_id)
    elif trials:
        _drop_lost_values(storage, trials[0], space)
        storage.set_trial_state_values(trials[0]._trial_id, TrialState.RUNNING)
        trial = optuna.Trial(study, trials[0]._trial_id)
    else:
        trial = study.ask()
    return Proposal(number=trial.number, params=suggest(trial, space))


def _drop_lost_values(storage: MirroredStorage, trial: FrozenTrial, space: SearchSpace) -> None:
    """Of a queued trial keep what the space still allows; it may have changed since."""
    queued = trial.system_attrs.get(_QUEUED, {})
    values = {name: from_scalar(value) for name, value in queued.items() if name in space}
    lost = {name: value for name, value in values.items() if not space[name].allows(value)}
    if lost:
        kept = {name: value for name, value in queued.items() if name not in lost}
        storage.set_trial_system_attr(trial._trial_id, _QUEUED, kept)
        _log.warning(
            "trial %s was queued with %s, which the space does not hold any more: the sampler "
            "chooses instead",
            run_id_of(trial.number),
            as_yaml(lost),
        )


def waiting(storage: MirroredStorage) -> list[FrozenTrial]:
    """Trials in the queue, those first that were put there by hand."""
    states = (TrialState.WAITING,)
    queued = storage.get_all_trials(_only(storage), deepcopy=False, states=states)
    return sorted(queued, key=lambda trial: (not trial.user_attrs.get(BY_HAND), trial.number))


def _only(storage: MirroredStorage) -> int:
    """The id of the one study that is mirrored."""
    return storage.get_all_studies()[0]._study_id


def is_planned(trial: FrozenTrial) -> bool:
    """Whether a trial has begun, and counts towards those that the study should have."""
    return RECORD in trial.user_attrs and not trial.user_attrs.get(BY_HAND)
