"""Keep a study in memory, and write each change through to its storage.

Optuna reads its storage dozens of times per trial, each time with a query. Only one process writes
a study, so that process can answer from memory. A new trial is written to the storage as a whole,
when it has its params and its record. Until then no other process sees it, and a kill leaves no
trace of it.

Changes wait while the storage is unavailable. If the answer to a change was lost, the change may
have been made. A change that must not be made twice is repeated only if the storage lacks it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from optuna.storages import InMemoryStorage, RDBStorage
from optuna.trial import FrozenTrial, TrialState

from ..study_folder.patience import Patience
from .access import close_storage


class MirroredStorage(InMemoryStorage):
    """A study in memory whose changes are also written to the storage.

    Args:
        stored: The storage, which is usually a database.
        name: Name of the study.
        patience: Repeats calls while the storage is unavailable.

    Attributes:
        study_id: Optuna's id of the study in memory. It is kept here, because a search in Optuna's
            list of studies would copy all their attributes.
    """

    def __init__(self, stored: RDBStorage, name: str, patience: Patience) -> None:
        super().__init__()
        self._stored = stored
        self.patience = patience
        self._stored_study = stored.get_study_id_from_name(name)
        #: Id of each trial in the storage by its id in memory, for trials that are in both.
        self._ids: dict[int, int] = {}
        self.study_id = super().create_new_study(
            stored.get_study_directions(self._stored_study), study_name=name
        )
        for key, value in stored.get_study_user_attrs(self._stored_study).items():
            super().set_study_user_attr(self.study_id, key, value)
        for key, value in stored.get_study_system_attrs(self._stored_study).items():
            super().set_study_system_attr(self.study_id, key, value)
        self._read_new_trials()

    def trials(self, *states: TrialState) -> list[FrozenTrial]:
        """Return the trials of the study in any of these states.

        Return all trials if none is given.
        """
        return self.get_all_trials(self.study_id, deepcopy=False, states=states or None)

    def remove(self) -> None:
        """Remove the study from the storage."""
        self._stored.delete_study(self._stored_study)

    def close(self) -> None:
        """Close all connections to the storage."""
        close_storage(self._stored)

    def reread(self) -> MirroredStorage:
        """Return the same study, read again from the storage."""
        name = self.get_study_name_from_id(self.study_id)
        return self.patience.insist(lambda: MirroredStorage(self._stored, name, self.patience))

    def read_new_trials(self) -> bool:
        """Read the trials that other processes have added to the storage.

        Returns:
            Whether this succeeded. False if a trial that is only in memory has the number of a
            new trial. Then the study must be read again with `reread`.
        """
        return self.patience.insist(self._read_new_trials)

    def _read_new_trials(self) -> bool:
        known = len(self._ids)
        try:
            self._stored.get_trial_id_from_study_id_trial_number(self._stored_study, known)
        except KeyError:
            return True
        if self.get_n_trials(self.study_id) > known:
            return False
        trials = self._stored.get_all_trials(self._stored_study, deepcopy=False)
        for trial in sorted(trials, key=lambda trial: trial.number)[known:]:
            self._ids[self._keep(trial)] = trial._trial_id
        return True

    def _keep(self, trial: FrozenTrial | None) -> int:
        """Create a trial in memory only. Return its id there.

        Args:
            trial: Trial to copy. None to create a running trial without params.
        """
        return super().create_new_trial(self.study_id, trial)

    def store_trial(self, trial_id: int) -> bool:
        """Write a new trial to the storage. Do nothing if it is there already.

        Returns:
            Whether the trial has the same number in the storage. If another process used that
            number first, the trial is marked as failed in the storage, and the study must be read
            again with `reread`.
        """
        if trial_id in self._ids:
            return True
        trial = self.get_trial(trial_id)

        def create() -> int:
            return self._stored.create_new_trial(self._stored_study, trial)

        def create_unless_there() -> int:
            found = self._find(trial)
            return create() if found is None else found

        stored_id = self.patience.insist(create, create_unless_there)
        self._ids[trial_id] = stored_id
        is_ours = self.patience.insist(lambda: self._id_of(trial.number) == stored_id)
        if not is_ours:
            self.set_trial_state_values(trial_id, TrialState.FAIL)
        return is_ours

    def _find(self, trial: FrozenTrial) -> int | None:
        """Return the id of a trial in the storage. Return None if the storage lacks the trial.

        The number in the storage is higher if another process used the trial's number first.
        """
        number = trial.number
        while (found_id := self._id_of(number)) is not None:
            found = self._stored.get_trial(found_id)
            is_same = (
                found.user_attrs == _as_stored(trial.user_attrs) and found.params == trial.params
            )
            if is_same and found.system_attrs == _as_stored(trial.system_attrs):
                return found_id
            number += 1
        return None

    def _id_of(self, number: int) -> int | None:
        try:
            return self._stored.get_trial_id_from_study_id_trial_number(self._stored_study, number)
        except KeyError:
            return None

    def get_best_trial(self, study_id: int) -> FrozenTrial:
        """Return the best trial. Of several best trials, return the one with the lowest number."""
        values = super().get_best_trial(study_id).values
        completed = self.get_all_trials(study_id, deepcopy=False, states=(TrialState.COMPLETE,))
        return next(trial for trial in completed if trial.values == values)

    # --- changes in memory, and in the storage if it has the trial -------------------------------

    def create_new_trial(self, study_id: int, template_trial: FrozenTrial | None = None) -> int:
        """Create a trial, and return its id in memory.

        Without a template, the trial is only in memory until `store_trial` writes it.
        """
        trial_id = self._keep(template_trial)
        if template_trial is not None:
            self.store_trial(trial_id)
        return trial_id

    def _change(
        self,
        change: str,
        trial_id: int,
        *args: Any,
        is_made: Callable[[FrozenTrial], bool] = lambda _: False,
    ) -> Any:
        """Change a trial in the storage and in memory. Return what the call in memory returns.

        If the storage does not have the trial yet, change it only in memory.

        Args:
            change: Name of the method that makes the change, the same in both storages.
            trial_id: Id of the trial in memory.
            *args: Further arguments of the method.
            is_made: Returns whether the stored trial already has a change that must not be made
                twice.
        """
        stored_id: Any = self._ids.get(trial_id)

        def write() -> None:
            getattr(self._stored, change)(stored_id, *args)

        def unless_made() -> None:
            if not is_made(self._stored.get_trial(stored_id)):
                write()

        if stored_id is not None:
            self.patience.insist(write, unless_made)
        return getattr(super(), change)(trial_id, *args)

    def set_trial_param(
        self, trial_id: int, param_name: str, param_value_internal: float, distribution: Any
    ) -> None:
        """Set a param of a trial."""
        args = (param_name, param_value_internal, distribution)
        self._change(
            "set_trial_param", trial_id, *args, is_made=lambda trial: param_name in trial.params
        )

    def set_trial_state_values(
        self, trial_id: int, state: TrialState, values: Sequence[float] | None = None
    ) -> bool:
        """Set the state and the scores of a trial."""

        def is_made(found: FrozenTrial) -> bool:
            return found.state is state and (values is None or found.values == list(values))

        args = (state, values)
        return bool(self._change("set_trial_state_values", trial_id, *args, is_made=is_made))

    def set_trial_intermediate_value(
        self, trial_id: int, step: int, intermediate_value: float
    ) -> None:
        """Set a value that a trial has reported."""
        self._change("set_trial_intermediate_value", trial_id, step, intermediate_value)

    def set_trial_user_attr(self, trial_id: int, key: str, value: Any) -> None:
        """Set a user attribute of a trial."""
        self._change("set_trial_user_attr", trial_id, key, value)

    def set_trial_system_attr(self, trial_id: int, key: str, value: Any) -> None:
        """Set a system attribute of a trial."""
        self._change("set_trial_system_attr", trial_id, key, value)

    def set_study_user_attr(self, study_id: int, key: str, value: Any) -> None:
        """Set a user attribute of the study in the storage first, then in memory."""
        self.patience.insist(
            lambda: self._stored.set_study_user_attr(self._stored_study, key, value)
        )
        super().set_study_user_attr(study_id, key, value)

    def set_study_system_attr(self, study_id: int, key: str, value: Any) -> None:
        """Set a system attribute of the study in the storage first, then in memory."""
        self.patience.insist(
            lambda: self._stored.set_study_system_attr(self._stored_study, key, value)
        )
        super().set_study_system_attr(study_id, key, value)


def _as_stored(value: Any) -> Any:
    """Return an attribute as the storage returns it: JSON turns tuples into lists."""
    return json.loads(json.dumps(value))
