"""Optuna at the speed of memory, with every change in the storage too.

Optuna asks its storage dozens of questions per trial, each a query of its own. One process writes a
study, so it can answer them from memory. A new trial goes to the storage as a whole, once it has
its params and its record; until then nobody else can see it, and a kill leaves nothing of it.

A storage that is away for a while is waited for. A change whose answer was lost may have been made:
before it is made again, the storage is asked.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from typing import Any

from optuna.distributions import BaseDistribution
from optuna.storages import InMemoryStorage, RDBStorage
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy.engine import URL

from ..study_folder.patience import Patience


class MirroredStorage(InMemoryStorage):
    """One study of a storage, read once and kept in memory; changes are written through.

    Args:
        kept: the storage.
        name: of the study in it.
        patience: waits for the storage.
    """

    def __init__(self, kept: RDBStorage, name: str, patience: Patience) -> None:
        super().__init__()
        self._kept = kept
        self.patience = patience
        self._kept_study = kept.get_study_id_from_name(name)
        #: From a trial's id here to its id in the storage; one that is not in it yet has none.
        self._ids: dict[int, int] = {}
        self._study = super().create_new_study(
            kept.get_study_directions(self._kept_study), study_name=name
        )
        for key, value in kept.get_study_user_attrs(self._kept_study).items():
            super().set_study_user_attr(self._study, key, value)
        for key, value in kept.get_study_system_attrs(self._kept_study).items():
            super().set_study_system_attr(self._study, key, value)
        self._read_new_trials()

    @property
    def url(self) -> URL:
        """Of the storage, as SQLAlchemy has it."""
        return self._kept.engine.url

    def close(self) -> None:
        """End all connections to the storage."""
        self._kept.remove_session()
        self._kept.engine.dispose()

    def anew(self) -> MirroredStorage:
        """The same study, read again."""
        name = self.get_study_name_from_id(self._study)
        return self.patience.insist(lambda: MirroredStorage(self._kept, name, self.patience))

    def read_new_trials(self) -> bool:
        """Take in the trials that somebody else has added to the storage.

        Returns:
            whether that was possible: where a trial that is not in the storage yet has the number
            of one that is, this mirror must be made anew.
        """
        return self.patience.insist(self._read_new_trials)

    def _read_new_trials(self) -> bool:
        known = len(self._ids)
        try:
            self._kept.get_trial_id_from_study_id_trial_number(self._kept_study, known)
        except KeyError:
            return True
        if self.get_n_trials(self._study) > known:
            return False
        trials = self._kept.get_all_trials(self._kept_study, deepcopy=False)
        for trial in sorted(trials, key=lambda trial: trial.number)[known:]:
            self._ids[super().create_new_trial(self._study, trial)] = trial._trial_id
        return True

    def keep(self, trial_id: int) -> bool:
        """Write a new trial to the storage; nothing happens to one that is there.

        Returns:
            whether it has the same number there. When somebody else was faster it has not; then
            it is a failed one there, and this mirror must be made anew.
        """
        if trial_id in self._ids:
            return True
        trial = self.get_trial(trial_id)

        def create() -> int:
            return self._kept.create_new_trial(self._kept_study, trial)

        def create_unless_there() -> int:
            there = self._find(trial)
            return create() if there is None else there

        kept_id = self.patience.insist(create, create_unless_there)
        self._ids[trial_id] = kept_id
        is_ours = self.patience.insist(lambda: self._id_of(trial.number) == kept_id)
        if not is_ours:
            self._change(
                trial_id,
                lambda it: self._kept.set_trial_state_values(it, TrialState.FAIL),
                lambda there: there.state is TrialState.FAIL,
            )
        return is_ours

    def _find(self, trial: FrozenTrial) -> int | None:
        """The id in the storage of a trial that may have got there; None when it has not.

        It can have a later number, if somebody else was faster.
        """
        number = trial.number
        while (there := self._id_of(number)) is not None:
            kept = self._kept.get_trial(there)
            is_it = kept.user_attrs == _as_stored(trial.user_attrs) and kept.params == trial.params
            if is_it and kept.system_attrs == _as_stored(trial.system_attrs):
                return there
            number += 1
        return None

    def _id_of(self, number: int) -> int | None:
        try:
            return self._kept.get_trial_id_from_study_id_trial_number(self._kept_study, number)
        except KeyError:
            return None

    def _change(
        self,
        trial_id: int,
        change: Callable[[int], object],
        is_made: Callable[[FrozenTrial], bool],
    ) -> None:
        """Change a trial in the storage; one that is not there yet will go there as a whole.

        Args:
            change: given the trial's id there.
            is_made: whether the trial as it is there has been changed so.
        """
        kept_id = self._ids.get(trial_id)
        if kept_id is None:
            return

        def unless_made() -> None:
            if not is_made(self._kept.get_trial(kept_id)):
                change(kept_id)

        self.patience.insist(lambda: _discard(change(kept_id)), unless_made)

    # --- what is written through --------------------------------------------------------------

    def create_new_trial(self, study_id: int, template_trial: FrozenTrial | None = None) -> int:
        """A running trial stays here until it is kept; one made by somebody else is complete."""
        trial_id = super().create_new_trial(study_id, template_trial)
        if template_trial is not None:
            self.keep(trial_id)
        return trial_id

    def set_trial_param(
        self, trial_id: int, param_name: str, param_value_internal: float, distribution: Any
    ) -> None:
        """As its base, and in the storage."""
        told: tuple[str, float, BaseDistribution] = (param_name, param_value_internal, distribution)
        super().set_trial_param(trial_id, *told)
        self._change(
            trial_id,
            lambda it: self._kept.set_trial_param(it, *told),
            lambda there: param_name in there.params,
        )

    def set_trial_state_values(
        self, trial_id: int, state: TrialState, values: Sequence[float] | None = None
    ) -> bool:
        """As its base, and in the storage, which is told first."""
        self._change(
            trial_id,
            lambda it: self._kept.set_trial_state_values(it, state, values),
            lambda there: there.state is state and (values is None or there.values == list(values)),
        )
        return super().set_trial_state_values(trial_id, state, values)

    def set_trial_intermediate_value(
        self, trial_id: int, step: int, intermediate_value: float
    ) -> None:
        """As its base, and in the storage."""
        super().set_trial_intermediate_value(trial_id, step, intermediate_value)
        self._change(
            trial_id,
            lambda it: self._kept.set_trial_intermediate_value(it, step, intermediate_value),
            lambda there: _equal(there.intermediate_values.get(step), intermediate_value),
        )

    def set_trial_user_attr(self, trial_id: int, key: str, value: Any) -> None:
        """As its base, and in the storage, which is told first."""
        self._change(
            trial_id,
            lambda it: self._kept.set_trial_user_attr(it, key, value),
            lambda there: there.user_attrs.get(key) == _as_stored(value),
        )
        super().set_trial_user_attr(trial_id, key, value)

    def set_trial_system_attr(self, trial_id: int, key: str, value: Any) -> None:
        """As its base, and in the storage."""
        super().set_trial_system_attr(trial_id, key, value)
        self._change(
            trial_id,
            lambda it: self._kept.set_trial_system_attr(it, key, value),
            lambda there: there.system_attrs.get(key) == _as_stored(value),
        )

    def set_study_user_attr(self, study_id: int, key: str, value: Any) -> None:
        """As its base, and in the storage, which is told first."""

        def change() -> None:
            self._kept.set_study_user_attr(self._kept_study, key, value)

        def unless_made() -> None:
            if self._kept.get_study_user_attrs(self._kept_study).get(key) != _as_stored(value):
                change()

        self.patience.insist(change, unless_made)
        super().set_study_user_attr(study_id, key, value)

    def set_study_system_attr(self, study_id: int, key: str, value: Any) -> None:
        """As its base, and in the storage."""
        super().set_study_system_attr(study_id, key, value)

        def change() -> None:
            self._kept.set_study_system_attr(self._kept_study, key, value)

        def unless_made() -> None:
            if self._kept.get_study_system_attrs(self._kept_study).get(key) != _as_stored(value):
                change()

        self.patience.insist(change, unless_made)


def _as_stored(value: Any) -> Any:
    """An attribute as it is read again: JSON knows no tuples."""
    return json.loads(json.dumps(value))


def _equal(there: float | None, value: float) -> bool:
    return there is not None and (there == value or (math.isnan(there) and math.isnan(value)))


def _discard(_: object) -> None:
    """Of some changes Optuna has something to tell that nobody needs."""
