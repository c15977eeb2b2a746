"""Another study whose trials have saved what this one uses: its best trials, and their files."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import SettingsError
from ...notebooks import read_metadata
from ...settings.addresses import Address
from ...settings.messages import nearest
from ...study import Study, confirmation_of, is_storage
from ...study_folder.saved import is_intact
from ...tracking import sqlite_file
from ...trials import (
    InputFile,
    StudyPaths,
    TrialRecord,
    TrialState,
    display_path,
    run_id_of,
)

_STORAGE_NAME = "study.db"


@dataclass(frozen=True, slots=True, kw_only=True)
class Upstream:
    """A study whose trials this one goes on from."""

    study: Study
    paths: StudyPaths
    storage_url: Address

    def best(self, count: int) -> list[TrialRecord]:
        """Its best trials, the best first; at most `count`.

        Where runs on fresh seeds decide, those with the best means come first.

        Raises:
            SettingsError: none has completed, or it has several objectives and no single best one.
        """
        settings: Mapping[str, Any] = self.study.facts["settings"]
        goals: Mapping[str, Any] = settings["objective"]
        records = self.study.records()
        best = self.study.best()
        confirmation = confirmation_of(self.study, paths=self.paths, storage_url=self.storage_url)
        if confirmation is not None:
            best = confirmation.best_of(records, best)
        if not best:
            raise SettingsError(
                f"the study {self.study.name!r} has no completed trial yet; sweep it first"
            )
        if len(goals) > 1 and (count > 1 or len(best) > 1):
            run_ids = ", ".join(record.run_id for record in best)
            raise SettingsError(
                f"the study {self.study.name!r} has {len(goals)} objectives and no single best "
                f"trial; take one of those that no other is better than: {run_ids}"
            )
        if count == 1:
            return best[:1]
        name, goal = next(iter(goals.items()))
        sign = -1 if goal["direction"] == "maximize" else 1
        search = [record for record in records if record.state is TrialState.COMPLETED]
        search.sort(key=lambda record: (sign * record.scores[name], record.number))
        if confirmation is not None and confirmation.winner is not None:
            by_run_id = {record.run_id: record for record in records}
            best = [by_run_id[one.run_id] for one in confirmation.ranking if one.is_complete]
        chosen = {record.number: record for record in [*best, *search]}
        return list(chosen.values())[:count]

    def trial(self, run_id: str) -> TrialRecord:
        """A trial that has completed.

        Raises:
            SettingsError: there is none with this run id.
        """
        records = {record.run_id: record for record in self.study.records()}
        if run_id not in records:
            known = f"it has {min(records)} to {max(records)}" if records else "it has none yet"
            raise SettingsError(f"the study {self.study.name!r} has no trial {run_id}; {known}")
        record = records[run_id]
        if record.state is not TrialState.COMPLETED:
            raise SettingsError(
                f"trial {run_id} of the study {self.study.name!r} is {record.state}, and what it "
                "has saved may be of half a run; take a trial that has completed"
            )
        return record

    def file(self, record: TrialRecord, artifact: str) -> InputFile:
        """What a trial has saved under a name, as it saved it.

        Raises:
            SettingsError: it has saved nothing of that name, or that is gone or was changed since.
        """
        metadata = read_metadata(record.notebook) or {}
        saved: Mapping[str, Mapping[str, Any]] = metadata.get("artifacts", {})
        whose = f"trial {record.run_id} of the study {self.study.name!r}"
        if not saved:
            raise SettingsError(
                f"{whose} has saved nothing; its notebook saves a file for other studies by "
                f"sweeper.save_artifact({artifact!r})"
            )
        if artifact not in saved:
            raise SettingsError(
                f"{whose} has saved no {artifact!r} but {', '.join(saved)}; "
                f"{nearest(artifact, list(saved))}"
            )
        path = self.paths.saved(run_id_of(record.first_number)) / artifact
        entry = saved[artifact]
        if not path.exists():
            raise SettingsError(
                f"{display_path(path)}, which {whose} has saved, is gone; put it back, or take "
                "another trial"
            )
        if not is_intact(path, entry):
            raise SettingsError(
                f"{display_path(path)} was changed after {whose} had saved it; put back what it "
                "was, or take another trial"
            )
        return InputFile(
            study=self.study.name,
            study_id=self.study.study_id,
            run_id=record.run_id,
            artifact=artifact,
            sha256=entry["sha256"],
            size_bytes=entry["size_bytes"],
            path=path,
        )


def find_upstream(wanted: str, *, paths: StudyPaths, storage_url: Address) -> Upstream:
    """Find a study by its name beside this one, or by the path of its folder or storage.

    Args:
        paths: of this study.
        storage_url: of this study; on a server, or in a file for several studies, it may have the
            other one, too.

    Raises:
        SettingsError: there is no such study, or it is this one.
        StudyError: its storage cannot be opened.
    """
    if _is_own(wanted, paths):
        raise SettingsError(
            f"{wanted!r} is this study itself; an input comes from another study, whose "
            "trials have ended before"
        )
    known: list[str] = []
    for url, file, name in _places(wanted, paths, storage_url):
        if file is not None and not is_storage(file):
            continue
        studies = Study.all_in(url)
        found = [study for study in studies if name in (None, study.name)]
        known += [study.name for study in studies if study.name != paths.study]
        if len(found) == 1 and found[0].facts.get("settings") is not None:
            study = found[0]
            template = study.facts["template"]
            paths = StudyPaths.parse(template, study=study.name)
            return Upstream(study=study, paths=paths, storage_url=url)
    known += [file.parent.name for file in sorted(paths.root.glob(f"*/{_STORAGE_NAME}"))]
    names = sorted({name for name in known if name != paths.study})
    beside = display_path(paths.root)
    hint = f"; {nearest(wanted, names)}" if names else ""
    raise SettingsError(
        f"there is no study {wanted!r} in {beside}; name one that was swept there, or the path of "
        f"another study's folder{hint}"
    )


def _is_own(wanted: str, paths: StudyPaths) -> bool:
    return wanted == paths.study or os.path.realpath(wanted) == os.path.realpath(paths.folder)


def _places(
    wanted: str, paths: StudyPaths, storage_url: Address
) -> Sequence[tuple[Address, Path | None, str | None]]:
    """Where a study may be: storages, their files, and its name there; None for the only one."""
    stated = Path(wanted).expanduser()
    folders = [paths.root / wanted] if stated.name == wanted else []
    files = [*(folder / _STORAGE_NAME for folder in folders), stated / _STORAGE_NAME, stated]
    places: list[tuple[Address, Path | None, str | None]] = [
        (Address.of(f"sqlite:///{file.absolute()}"), file.absolute(), None)
        for file in files
        if file.is_file()
    ]
    own = sqlite_file(storage_url.full)
    if own != paths.storage:
        places.append((storage_url, own, wanted))
    return places
