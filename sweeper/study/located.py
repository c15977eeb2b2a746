"""Find a study together with its files, and with the study that runs its best trials again.

The search `digits` and the study `digits-confirm`, which runs the best trials on fresh seeds, are
in one storage, or each is in a file of its own next to its outputs.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import NoStudyError, StudyError
from ..settings.addresses import Address
from ..trials import Confirmation, StudyPaths, TrialRecord
from .files import is_storage
from .study import Study


@dataclass(frozen=True, slots=True, kw_only=True)
class LocatedStudy:
    """A study with its storage and the paths of its files.

    Attributes:
        study: The study.
        storage_url: URL of its storage.
        paths: Paths of its files.
    """

    study: Study
    storage_url: Address
    paths: StudyPaths

    def confirmation(self) -> Confirmation | None:
        """Return the ranking of trials by their mean scores over several runs.

        A study that runs trials of a search again has such a ranking itself. For a search, it is
        the ranking of the study that runs its best trials on fresh seeds. Without such a study, it
        is the ranking of the search's proposals if `repeat` runs each of them several times.
        Otherwise, it is None.
        """
        own = self.study.confirmation
        if own is not None and own.repeats is None:
            return own
        confirming = self.following("confirm")
        return own if confirming is None else confirming.study.confirmation

    def cost(self) -> float | None:
        """Return the cost of the study plus that of the study that runs its best trials again.

        Return None if no price is known.
        """
        cost = self.study.facts.cost
        confirming = None if cost is None else self.following("confirm")
        if cost is None or confirming is None:
            return cost
        return cost + (confirming.study.facts.cost or 0.0)

    def following(self, kind: str) -> LocatedStudy | None:
        """Return the study that runs trials of this one again.

        None if there is none, or if it cannot be read.

        Args:
            kind: `confirm` for runs of the best trials on fresh seeds, `ablate` for runs of the
                best trial with one param changed at a time.
        """
        try:
            return self.readable_following(kind)
        except StudyError:
            return None

    def readable_following(self, kind: str) -> LocatedStudy | None:
        """Return the study that runs trials of this one again. None if there is none.

        Args:
            kind: `confirm` for runs of the best trials on fresh seeds, `ablate` for runs of the
                best trial with one param changed at a time.

        Raises:
            StudyError: The study cannot be read now.
        """
        if self.study.facts.confirms is not None:
            return None
        after, url = self.paths.following(kind), self.storage_url
        if is_storage(after.storage):
            url = Address.of_file(after.storage)
        elif url.file == self.paths.storage:  # The default file contains only this study.
            return None
        try:
            study = Study.load(url, after.study, is_known=url.file is not None)
        except NoStudyError:
            return None
        # An earlier search of this name, which was removed, may have left the confirming study.
        is_of_this = study.repeats_trials_of(self.study.study_id)
        return LocatedStudy(study=study, storage_url=url, paths=after) if is_of_this else None

    def ablated(self) -> str | None:
        """Return the run id of the trial whose params `ablate` changes one at a time.

        Return None if there is no ablation. The ablation may still be running.
        """
        ablation = self.following("ablate")
        if ablation is None:
            return None
        plan = ablation.study.facts.confirms
        return None if plan is None else plan.ablated

    def best(self, confirmation: Confirmation | None) -> list[TrialRecord]:
        """Return the best trials: the winner of `confirmation`, else what `Study.best` returns.

        As soon as the runs on fresh seeds have a winner, they decide, and not the scores of the
        search. The winner's record in the search is returned.

        Args:
            confirmation: Ranking that the method `confirmation` has returned. None if there is
                none.
        """
        if confirmation is None or confirmation.study == self.study.name:
            return self.study.best()
        return confirmation.best_of(self.study.records(), self.study.best())

    def record(self, run_id: str) -> TrialRecord:
        """Return the record of a trial by its run id.

        Raises:
            StudyError: The study has no such trial.
        """
        records = {record.run_id: record for record in self.study.records()}
        if run_id not in records:
            known = f"it has {min(records)} to {max(records)}" if records else "it has none yet"
            raise StudyError(f"the study {self.study.name!r} has no trial {run_id}; {known}")
        return records[run_id]
