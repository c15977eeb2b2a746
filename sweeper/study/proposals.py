"""The params of the next trial: those queued by hand first, else a proposal of the sampler."""

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

#: The attribute of a trial that was queued by hand and does not count towards `study.trials`.
BY_HAND = "sweeper.by_hand"
#: The attribute of a retry, with the seed and the first number of the trial that it tries again.
RETRY = "sweeper.retry"
#: Optuna's attribute with the params of a queued trial.
_QUEUED = "fixed_params"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """The number and params of a trial that Optuna has begun and no slot runs yet."""

    number: int
    params: dict[str, Any]


def propose(
    storage: MirroredStorage, space: SearchSpace, samplers: SamplerFactory, *, again: int | None
) -> Proposal:
    """Choose number and params of a trial.

    Args:
        again: the number of a trial that was killed before it had params, and is to get them now;
            None for a new trial.
    """
    name = storage.get_all_studies()[0].study_name
    trials = waiting(storage)
    # Optuna numbers a trial when the trial is queued.
    number = trials[0].number if trials else storage.get_n_trials(_study_id(storage))
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
    """Drop those values of a queued trial that the search space no longer allows."""
    queued = trial.system_attrs.get(_QUEUED, {})
    values = {name: from_scalar(value) for name, value in queued.items() if name in space}
    lost = {name: value for name, value in values.items() if not space[name].allows(value)}
    if lost:
        kept = {name: value for name, value in queued.items() if name not in lost}
        storage.set_trial_system_attr(trial._trial_id, _QUEUED, kept)
        _log.warning(
            "trial %s was queued with %s, which the space does not hold any more: the sampler "
            "chooses other values",
            run_id_of(trial.number),
            as_yaml(lost),
        )


def waiting(storage: MirroredStorage) -> list[FrozenTrial]:
    """The queued trials; those queued by hand come first."""
    states = (TrialState.WAITING,)
    queued = storage.get_all_trials(_study_id(storage), deepcopy=False, states=states)
    return sorted(queued, key=lambda trial: (not trial.user_attrs.get(BY_HAND), trial.number))


def _study_id(storage: MirroredStorage) -> int:
    """The id of the only study in a mirrored storage."""
    return storage.get_all_studies()[0]._study_id


def is_planned(trial: FrozenTrial) -> bool:
    """Whether a trial has begun and counts towards `study.trials`."""
    return RECORD in trial.user_attrs and not trial.user_attrs.get(BY_HAND)
