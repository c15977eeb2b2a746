"""Optuna at the speed of memory, with every change in the storage too.

Optuna asks its storage dozens of questions per trial, each a query of its own. One process writes a
study, so it can answer them from memory. A new trial goes to the storage as a whole, once it has
its params and its record; until then nobody else can see it, and a kill leaves nothing of it.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.storages import InMemoryStorage, RDBStorage
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy.exc import SQLAlchemyError

from ..addresses import Address, driver_missing
from ..errors import StudyError, root_of

#: How long to wait for another process's lock on an SQLite file.
_BUSY_TIMEOUT_S = 30


class MirroredStorage(InMemoryStorage):
    """One study of a storage, read once and kept in memory; changes are written through.

    Args:
        kept: the storage.
        name: of the study in it.
    """

    def __init__(self, kept: RDBStorage, name: str) -> None:
        super().__init__()
        self._kept = kept
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
        self.read_new_trials()

    def anew(self) -> MirroredStorage:
        """The same study, read again."""
        return MirroredStorage(self._kept, self.get_study_name_from_id(self._study))

    def read_new_trials(self) -> bool:
        """Take in the trials that somebody else has added to the storage.

        Returns:
            whether that was possible: where a trial that is not in the storage yet has the number
            of one that is, this mirror must be made anew.
        """
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
        kept_id = self._kept.create_new_trial(self._kept_study, trial)
        self._ids[trial_id] = kept_id
        there = self._kept.get_trial_id_from_study_id_trial_number(self._kept_study, trial.number)
        if there == kept_id:
            return True
        self._kept.set_trial_state_values(kept_id, TrialState.FAIL)
        return False

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
        if trial_id in self._ids:
            self._kept.set_trial_param(self._ids[trial_id], *told)

    def set_trial_state_values(
        self, trial_id: int, state: TrialState, values: Sequence[float] | None = None
    ) -> bool:
        """As its base, and in the storage, which is told first."""
        if trial_id in self._ids:
            self._kept.set_trial_state_values(self._ids[trial_id], state, values)
        return super().set_trial_state_values(trial_id, state, values)

    def set_trial_intermediate_value(
        self, trial_id: int, step: int, intermediate_value: float
    ) -> None:
        """As its base, and in the storage."""
        super().set_trial_intermediate_value(trial_id, step, intermediate_value)
        if trial_id in self._ids:
            self._kept.set_trial_intermediate_value(self._ids[trial_id], step, intermediate_value)

    def set_trial_user_attr(self, trial_id: int, key: str, value: Any) -> None:
        """As its base, and in the storage, which is told first."""
        if trial_id in self._ids:
            self._kept.set_trial_user_attr(self._ids[trial_id], key, value)
        super().set_trial_user_attr(trial_id, key, value)

    def set_trial_system_attr(self, trial_id: int, key: str, value: Any) -> None:
        """As its base, and in the storage."""
        super().set_trial_system_attr(trial_id, key, value)
        if trial_id in self._ids:
            self._kept.set_trial_system_attr(self._ids[trial_id], key, value)

    def set_study_user_attr(self, study_id: int, key: str, value: Any) -> None:
        """As its base, and in the storage, which is told first."""
        self._kept.set_study_user_attr(self._kept_study, key, value)
        super().set_study_user_attr(study_id, key, value)

    def set_study_system_attr(self, study_id: int, key: str, value: Any) -> None:
        """As its base, and in the storage."""
        super().set_study_system_attr(study_id, key, value)
        self._kept.set_study_system_attr(self._kept_study, key, value)


def open_storage(url: str | Address) -> RDBStorage:
    """A storage, made when there is none.

    Raises:
        StudyError: it cannot be opened.
    """
    url = Address.of(url)
    options: dict[str, Any] = {}
    if url.full.startswith("sqlite"):
        options = {"connect_args": {"timeout": _BUSY_TIMEOUT_S}}
    try:
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return RDBStorage(url.full, engine_kwargs=options)
    except (SQLAlchemyError, ImportError, ValueError, RuntimeError) as error:
        raise StudyError(f"--storage {url}: {_why_closed(url, error)}") from error


def _why_closed(url: Address, error: BaseException) -> str:
    """Why a storage cannot be opened, and what would help."""
    driver = driver_missing(error)
    if driver is not None:
        return driver
    said = f"cannot be opened: {url.scrubbed(root_of(error))}"
    if url.is_incomplete:
        return f"{said}; its password is not stored: give it in --storage, or in PGPASSWORD"
    return f"{said}; expected an SQLAlchemy URL such as sqlite:////folder/study.db"


def log_ahead(storage: RDBStorage) -> None:
    """Have SQLite write ahead: one wait for the disk a commit, and readers lock nobody out."""
    if storage.engine.name == "sqlite":
        with storage.engine.connect() as connection:
            connection.exec_driver_sql("PRAGMA journal_mode=WAL")
