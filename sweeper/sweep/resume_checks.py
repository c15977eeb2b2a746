"""Refuse to resume a study with other code or settings, or if its files would be lost."""

from __future__ import annotations

from ..errors import OutputError, StudyError
from ..notebooks.fingerprint import Fingerprint, changes, without_made_files
from ..notebooks.metadata import read_metadata
from ..settings.addresses import Address
from ..study.access import LostFileError
from ..study.endings import unknown_end
from ..study.files import why_lost
from ..study.study import Study
from ..trials import StudyPaths, TrialState, display_path
from .planning.plan import SweepPlan


def refuse_changes(study: Study, made_of: Fingerprint, *, sources: str, paths: StudyPaths) -> None:
    """Refuse new trials whose fingerprint differs from the fingerprint of the study's trials.

    A module that the trials have made themselves is no difference.

    Args:
        study: The study to resume.
        made_of: Fingerprint of new trials: their code, parameters and kernel.
        sources: Files that the fingerprint was made of, for the message.
        paths: Paths of the study, for the message.

    Raises:
        StudyError: The fingerprints differ. The message lists the changes.
    """
    before = study.facts.made_of
    n_trials = len(study.records())
    lines = changes(before, without_made_files(before, made_of)) if before and n_trials else []
    if lines:
        raise StudyError(
            f"the study {study.name!r} ran its {n_trials} trial(s) with other code or settings "
            f"than those of {sources}:\n"
            + "".join(f"  {line}\n" for line in lines)
            + f"undo the change, begin another study with {paths.options_of_another}, or add "
            "--allow-changes to continue this one: the MLflow tag sweeper.code tells new trials "
            "from earlier ones"
        )


def refuse_another_search(study: Study, plan: SweepPlan) -> None:
    """Refuse to run trials of a search in a study that has run trials of another search.

    Args:
        study: The study that is to run trials again.
        plan: Plan of this study, with the id of the search.

    Raises:
        StudyError: The study has run trials of a search of the same name that was removed.
    """
    assert plan.confirming is not None, "the study runs trials again"
    if study.facts.confirms is None or study.repeats_trials_of(plan.confirming["of"]):
        return
    paths, places = plan.paths, list[str]()
    if plan.storage_url.file != paths.storage:
        places.append(f"the study {study.name!r} in {plan.storage_url}")
    if plan.remote is not None:  # The next sweep would restore the study from there.
        places.append(f"its copy in {plan.remote.display_url}")
    files = f"{display_path(paths.folder)} and {display_path(paths.notebook('*'))}"
    raise StudyError(
        f"the study {study.name!r} has runs of an earlier study of the same name, which was "
        f"removed; remove {', '.join([*places, files])}, too"
    )


def is_worth_nothing(study: Study, made_of: Fingerprint) -> bool:
    """Return whether all trials have failed and the notebook or the settings have changed since.

    Such a study begins anew: its failures say nothing about the corrected notebook. It is kept if a
    trial that was queued by hand waits.

    Args:
        study: The study to resume.
        made_of: Fingerprint of new trials.
    """
    records, before = study.records(), study.facts.made_of
    return (
        bool(records and before and changes(before, made_of))
        and all(record.state is TrialState.FAILED for record in records)
        and study.facts.confirms is None
        and not study.has_trial_by_hand
    )


def refuse_lost_database(paths: StudyPaths) -> None:
    """Refuse a folder that has executed notebooks of a study but not the study's database.

    Otherwise, a new study would begin in that folder and replace the stored facts.

    Raises:
        LostFileError: The database is missing, empty, or belongs to another study.
    """
    if paths.facts.exists() and paths.written_run_ids() and (why := why_lost(paths.storage)):
        raise LostFileError(paths.storage, why)


def refuse_older_copy(study: Study, paths: StudyPaths, storage: Address) -> None:
    """Refuse a storage that lacks the end of a trial whose executed notebook has ended.

    Otherwise, the trial would be run again and overwrite that notebook.

    Raises:
        StudyError: There is such a notebook.
    """
    notebook = unknown_end(study.records(), study.facts, paths)
    if notebook is None:
        return
    why = f"it is older than {display_path(notebook)}, whose trial has ended"
    if storage.file == paths.storage:
        raise LostFileError(paths.storage, why)
    raise StudyError(
        f"--storage {storage}: {why}; put the newer one back, or move that notebook away to run "
        "its trial again"
    )


def refuse_files_in_the_way(study: Study, paths: StudyPaths, *, trials: int) -> None:
    """Refuse to overwrite an executed notebook that this study did not write.

    Args:
        study: The study to resume.
        paths: Paths of the study.
        trials: Number of trials that the study is to have.

    Raises:
        OutputError: Another study's notebook, or another file, has the path of a trial's notebook.
    """
    ended = {record.run_id for record in study.records() if record.is_final}
    for run_id, path in paths.written_run_ids().items():
        if int(run_id) >= trials:
            continue
        metadata = read_metadata(path)
        if metadata is None and run_id in ended:
            continue  # The file is damaged, but its trial has ended and will not write there again.
        if metadata is None or metadata.study_id != study.study_id:
            other = "" if metadata is None else metadata.study
            whose = f"study {other!r}" if other else "something else"
            raise OutputError(
                f"{display_path(path)} is in the way: {whose} wrote it, not this study; move it "
                "away, or choose another output with -o"
            )
