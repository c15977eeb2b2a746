"""Find another study and the files that its trials have saved for this study."""

from __future__ import annotations

import os
from pathlib import Path

from ...errors import SettingsError
from ...notebooks.metadata import read_metadata
from ...settings.addresses import Address
from ...settings.messages import nearest
from ...study.files import is_storage
from ...study.located import LocatedStudy
from ...study.moves import move_of
from ...study.study import Study
from ...study_folder.saved import is_intact
from ...trials import (
    InputFile,
    StudyPaths,
    TrialRecord,
    TrialState,
    display_path,
    facts_beside,
    run_id_of,
)


class Upstream(LocatedStudy):
    """Another study whose saved files or trials this study uses."""

    def only_best(self) -> TrialRecord:
        """Return the best trial. If the best trials ran again on fresh seeds, it is their winner.

        Raises:
            SettingsError: No trial has completed, or several objectives leave no single best trial.
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
                f"choose one of its Pareto-optimal trials: {run_ids}"
            )
        return best[0]

    def trial(self, run_id: str) -> TrialRecord:
        """Return a completed trial by its run id.

        Raises:
            SettingsError: The trial has not completed.
            StudyError: There is no such trial.
        """
        record = self.record(run_id)
        if record.state is not TrialState.COMPLETED:
            raise SettingsError(
                f"trial {run_id} of the study {self.study.name!r} is {record.state}, so its files "
                "may come from half a run; choose a trial that has completed"
            )
        return record

    def file(self, record: TrialRecord, artifact: str) -> InputFile:
        """Return a file or folder that a trial has saved under a name.

        Raises:
            SettingsError: The trial has saved nothing under that name, or the file is gone or has
                changed since.
        """
        notebook = self.paths.notebook(record.run_id)
        metadata = read_metadata(notebook)
        whose = f"trial {record.run_id} of the study {self.study.name!r}"
        if metadata is None:
            raise SettingsError(
                f"{display_path(notebook)} was removed or changed, so it does not say what "
                f"{whose} has saved; put it back, or choose another trial"
            )
        saved = metadata.artifacts
        if not saved:
            raise SettingsError(
                f"{whose} has saved no files; its notebook saves a file for other studies with "
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
                f"{display_path(path)} was removed or changed after {whose} had saved it; put the "
                "original back, or choose another trial"
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
    """Return another study by its name in the same folder of studies, or by the path of its folder.

    Args:
        wanted: Name or path of the other study.
        paths: Paths of this study.
        storage_url: Storage of this study. A server or a shared file may contain the other study,
            too.

    Raises:
        SettingsError: There is no such study, or it is this study.
        StudyError: The storage of the other study cannot be opened.
    """
    stated = Path(wanted).expanduser()
    folder = paths.root / wanted if stated.name == wanted else stated
    if os.path.realpath(folder) == os.path.realpath(paths.folder):
        raise SettingsError(
            f"{wanted!r} is this study itself; an input comes from another study, which was swept "
            "before"
        )
    file = (folder / paths.storage.name).absolute()
    url = Address.of_file(file) if is_storage(file) else storage_url
    studies = Study.all_in(url) if url.file is None or is_storage(url.file) else []
    for study in studies:
        if study.name == folder.name and study.facts.settings:
            move = move_of(facts_beside(file))
            if move is None:
                theirs = StudyPaths.parse(study.facts.template, study=study.name)
            else:  # The outputs were moved. That study's next command will store the new paths.
                theirs = move.now
            return Upstream(study=study, paths=theirs, storage_url=url)
    beside = [file.parent.name for file in paths.root.glob(f"*/{paths.storage.name}")]
    names = sorted({*beside, *(study.name for study in studies)} - {paths.study})
    hint = f"; {nearest(wanted, names)}" if names else ""
    raise SettingsError(
        f"there is no study {wanted!r} in {display_path(paths.root)}; name one that was swept "
        f"there, or the path of another study's folder{hint}"
    )
