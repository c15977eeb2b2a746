"""Another study whose trials have saved what this one uses: its best trials, and their files."""

from __future__ import annotations

import os
from pathlib import Path

from ...errors import SettingsError
from ...notebooks.metadata import BLANK, read_metadata
from ...settings.addresses import Address
from ...settings.messages import nearest
from ...study.files import is_storage
from ...study.located import LocatedStudy
from ...study.study import Study
from ...study_folder.saved import is_intact
from ...trials import (
    InputFile,
    StudyPaths,
    TrialRecord,
    TrialState,
    display_path,
    run_id_of,
)


class Upstream(LocatedStudy):
    """A study whose trials this one goes on from."""

    def only_best(self) -> TrialRecord:
        """Its best trial; where fresh seeds have decided, their winner.

        Raises:
            SettingsError: none has completed, or several objectives have no single best one.
        """
        best = self.best(self.confirmation())
        if not best:
            raise SettingsError(
                f"the study {self.study.name!r} has no completed trial; sweep it first"
            )
        if len(best) > 1:
            run_ids = ", ".join(record.run_id for record in best)
            raise SettingsError(
                f"the study {self.study.name!r} has several objectives and no single best trial; "
                f"take one of those that no other is better than: {run_ids}"
            )
        return best[0]

    def trial(self, run_id: str) -> TrialRecord:
        """A trial that has completed.

        Raises:
            SettingsError: the one with this run id has not.
            StudyError: there is none.
        """
        record = self.record(run_id)
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
        saved = (read_metadata(record.notebook) or BLANK).artifacts
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
        content = saved[artifact]
        if not is_intact(path, content.sha256):
            raise SettingsError(
                f"{display_path(path)} is gone or was changed after {whose} had saved it; put back "
                "what it was, or take another trial"
            )
        return InputFile(
            study=self.study.name,
            study_id=self.study.study_id,
            run_id=record.run_id,
            artifact=artifact,
            sha256=content.sha256,
            size_bytes=content.size_bytes,
            path=path,
        )


def find_upstream(wanted: str, *, paths: StudyPaths, storage_url: Address) -> Upstream:
    """Find a study by its name beside this one, or by the path of its folder.

    Args:
        paths: of this study.
        storage_url: of this study; on a server, or in a file for several studies, it may have the
            other one, too.

    Raises:
        SettingsError: there is no such study, or it is this one.
        StudyError: its storage cannot be opened.
    """
    stated = Path(wanted).expanduser()
    folder = paths.root / wanted if stated.name == wanted else stated
    if os.path.realpath(folder) == os.path.realpath(paths.folder):
        raise SettingsError(
            f"{wanted!r} is this study itself; an input comes from another study, whose "
            "trials have ended before"
        )
    file = (folder / paths.storage.name).absolute()
    url = Address.of_file(file) if is_storage(file) else storage_url
    studies = Study.all_in(url) if url.file is None or is_storage(url.file) else []
    for study in studies:
        if study.name == folder.name and study.facts.settings:
            theirs = StudyPaths.parse(study.facts.template, study=study.name)
            return Upstream(study=study, paths=theirs, storage_url=url)
    beside = [file.parent.name for file in paths.root.glob(f"*/{paths.storage.name}")]
    names = sorted({*beside, *(study.name for study in studies)} - {paths.study})
    hint = f"; {nearest(wanted, names)}" if names else ""
    raise SettingsError(
        f"there is no study {wanted!r} in {display_path(paths.root)}; name one that was swept "
        f"there, or the path of another study's folder{hint}"
    )
