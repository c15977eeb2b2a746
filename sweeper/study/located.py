"""A study with the places of its files, and what runs on fresh seeds say of its trials.

The search `digits` and the study `digits-confirm`, which runs its best trials again, are in one
storage, or each in its own file beside its outputs.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import StudyError
from ..settings.addresses import Address
from ..trials import Confirmation, StudyPaths, TrialRecord
from .files import is_storage
from .study import Study


@dataclass(frozen=True, slots=True, kw_only=True)
class LocatedStudy:
    """A study in its storage, with the paths of its files."""

    study: Study
    storage_url: Address
    paths: StudyPaths

    def confirmation(self) -> Confirmation | None:
        """What runs of its best trials on fresh seeds have come to; None without any.

        A search that repeats its proposals has its own means as long as it is not confirmed.
        """
        own = self.study.confirmation
        if own is not None and own.repeats is None:
            return own
        after, url = self.paths.following("confirm"), self.storage_url
        if is_storage(after.storage):
            url = Address.of_file(after.storage)
        elif url.file == self.paths.storage:  # which has no other study
            return own
        try:
            is_known = url.file is not None
            return Study.load(url, after.study, is_known=is_known).confirmation
        except StudyError:
            return own

    def best(self, confirmation: Confirmation | None) -> list[TrialRecord]:
        """Its best trials: by the runs on fresh seeds where they have decided, else by score.

        Args:
            confirmation: as the method of this name has read it.
        """
        if confirmation is None:
            return self.study.best_by_score()
        if confirmation.study == self.study.name:
            return confirmation.own_best if confirmation.decides else self.study.best_by_score()
        return confirmation.best_of(self.study.records(), self.study.best())

    def record(self, run_id: str) -> TrialRecord:
        """The record of one trial.

        Raises:
            StudyError: the study has no such trial.
        """
        records = {record.run_id: record for record in self.study.records()}
        if run_id not in records:
            known = f"it has {min(records)} to {max(records)}" if records else "it has none yet"
            raise StudyError(f"the study {self.study.name!r} has no trial {run_id}; {known}")
        return records[run_id]
