"""What a study in its folder does not go on with, said before any kernel starts."""

from __future__ import annotations

from ..errors import OutputError, StudyError
from ..notebooks import read_metadata
from ..notebooks.fingerprint import Fingerprint, changes
from ..study import Study
from ..trials import StudyPaths, display_path


def refuse_changes(study: Study, made_of: Fingerprint, *, told_by: str) -> None:
    """Trials of one study are made of the same.

    Args:
        made_of: what new trials would be made of.
        told_by: the files that say so.

    Raises:
        StudyError: the study's trials were made of something else; the text says what changed.
    """
    before = study.facts.get("made_of")
    n_trials = len(study.records())
    said = changes(before, made_of) if before is not None and n_trials else []
    if said:
        raise StudyError(
            f"the study {study.name!r} has {n_trials} trial(s) that were made of something else "
            f"than {told_by} now:\n"
            + "".join(f"  {line}\n" for line in said)
            + "undo the change, begin another study with --study NAME, or add --allow-changes to "
            "go on in this one: the MLflow tag sweeper.code tells new trials from earlier ones"
        )


def refuse_files_in_the_way(study: Study, paths: StudyPaths, *, trials: int) -> None:
    """An executed notebook of somebody else is never overwritten.

    Args:
        trials: how many the study should have.

    Raises:
        OutputError: there is one at the place of a trial's notebook.
    """
    over = {record.run_id for record in study.records() if record.is_final}
    for run_id, path in paths.written_run_ids().items():
        if int(run_id) >= trials:
            continue
        metadata = read_metadata(path)
        if metadata is None and run_id in over:
            continue  # it cannot be read any more, and nobody writes there again
        if metadata is None or metadata.get("study_id") != study.study_id:
            whose = f"study {metadata['study']!r}" if metadata else "something else"
            raise OutputError(
                f"{display_path(path)} is in the way: it was written by {whose}, not by this "
                "study; "
                "move it away, or choose another output with -o"
            )
