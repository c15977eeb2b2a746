"""Has a sampler see the study at a fixed point, whatever trials have ended since.

With several trials at once, which of them have ended when the next one is proposed is a matter of
time, and two runs of one study propose different trials. A sampler that sees the ends of the same
trials each time proposes the same.
"""

from __future__ import annotations

import copy
from typing import Any

from optuna.storages import InMemoryStorage
from optuna.trial import FrozenTrial, TrialState

from .infeasible import CONSTRAINT
from .view import StorageView

#: The attribute of a trial with what its sampler has noted about the study.
_NOTED = "sweeper.noted"


class InOrder(StorageView):
    """Stands in for a study's storage while one trial is proposed.

    The sampler sees the ends of the trials up to `number - lag`. Trials after these run, as far as
    it can see, and none after `number` exists.

    Some samplers note a count or a list about the study as a whole. Such notes are kept with the
    trial and read in the order of trials: those of a proposal that a kill has lost are lost with
    it, and the proposal is the same when it is made again.

    Args:
        storage: of the study.
        number: of the trial that is proposed.
        lag: how many numbers before it the last trial is whose end counts; at least 1.
    """

    def __init__(self, storage: InMemoryStorage, *, number: int, lag: int) -> None:
        super().__init__(storage)
        self._number = number
        self._last = number - lag
        self._noted: dict[str, Any] = {}

    def _seen(self, trials: list[FrozenTrial]) -> list[FrozenTrial]:
        return [
            _as_running(trial) if self._is_hidden(trial) else trial
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

    def _is_hidden(self, trial: FrozenTrial) -> bool:
        """Whether a trial has ended too late for the sampler to know."""
        return trial.number > self._last and trial.state.is_finished()


def _as_running(trial: FrozenTrial) -> FrozenTrial:
    seen = copy.copy(trial)
    seen.state, seen.values, seen.datetime_complete = TrialState.RUNNING, None, None
    seen.intermediate_values = {}
    seen.system_attrs = {k: v for k, v in trial.system_attrs.items() if k != CONSTRAINT}
    return seen
