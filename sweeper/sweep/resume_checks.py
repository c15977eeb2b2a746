"""Refuse to resume a study with other code, settings or paths, or if its files would be lost."""

from __future__ import annotations

import logging
import os
import shlex
from pathlib import Path

from ..errors import OutputError, StudyError
from ..notebooks.fingerprint import Fingerprint, changes, made_files, version, without_made_files
from ..notebooks.metadata import read_metadata
from ..settings.addresses import Address, study_words
from ..study.access import LostFileError
from ..study.endings import unknown_end
from ..study.files import why_lost
from ..study.study import Study
from ..trials import StudyPaths, TrialState, display_path, run_id_of
from .inputs.resolving import stored_study
from .planning.plan import SweepPlan

_log = logging.getLogger(__name__)


def check_resumed(plan: SweepPlan, study: Study, *, is_restored: bool) -> None:
    """Compare a study with the plan of its next sweep, before the sweep writes anything.

    Args:
        plan: Plan of the sweep.
        study: The study that the sweep would resume.
        is_restored: Whether the study was restored from its remote copy. Its notebook was then on
            another machine, or in another copy of the project.

    Raises:
        StudyError: The plan differs from the study's trials: in output paths, MLflow store, folder
            of the notebook, code, settings, or in the search that is run again. Or the storage is
            an old copy.
        OutputError: The executed notebook of another study would be overwritten.
    """
    refuse_other_outputs(study, plan.paths)
    if plan.tracks_by_default:
        refuse_leaving_the_store(study, plan.paths)
    if plan.confirming is not None:
        refuse_another_search(study, plan)
    if plan.allow_changes:
        _log_changes(study, plan)
    else:
        if not is_restored:
            refuse_another_folder(study, plan.notebook.path, plan.paths)
        sources = f"{plan.notebook.display_name} and {plan.settings.file or 'the settings'}"
        refuse_changes(study, plan.fingerprint, sources=sources, paths=plan.paths)
    _log_made_files(study, plan.fingerprint)
    refuse_files_in_the_way(study, plan.paths, trials=plan.settings.study.trials)
    refuse_older_copy(study, plan.paths, plan.storage_url)


def refuse_other_outputs(study: Study, paths: StudyPaths) -> None:
    """Refuse outputs at other paths than those of the study's trials.

    Otherwise, no command would find the notebooks and checkpoints of these trials.

    Args:
        study: The study to resume.
        paths: Paths of the sweep.

    Raises:
        StudyError: The template of the sweep's outputs (-o) leads to other files than the template
            that the study has stored.
    """
    template = study.facts.template
    if not template or not study.records():
        return
    before, first = StudyPaths.parse(template, study=study.name), run_id_of(0)
    if not (
        _are_same(before.folder, paths.folder)
        and _are_same(before.notebook(first), paths.notebook(first))
    ):
        remedy = "give the -o with which it began"
        if not before.folder.exists():
            remedy = "nothing is there, so move its outputs back there and give that -o"
        raise StudyError(
            f"-o {paths.displayed_template}: the study {study.name!r} has its trials in "
            f"{before.displayed_template}; {remedy}, or begin another study with "
            f"{paths.options_of_another}"
        )


def _are_same(path: Path, other: Path) -> bool:
    """Return whether two paths lead to the same file or folder, which may not exist."""
    return os.path.realpath(path) == os.path.realpath(other)


def refuse_leaving_the_store(study: Study, paths: StudyPaths) -> None:
    """Refuse the default MLflow store if the study's runs are in another one.

    If the other store is a file that this machine lacks, it was left behind on another machine.
    Then the default store is used.

    Args:
        study: The study to resume.
        paths: Paths of the sweep.

    Raises:
        StudyError: The runs are in another store.
    """
    known = study.facts.tracking_uri
    file = Address.of(known).file
    if file is not None:
        is_elsewhere = os.path.exists(file) and not _are_same(file, paths.tracking)
    else:
        is_elsewhere = bool(known)
    if is_elsewhere and study.records():
        raise StudyError(
            f"the study {study.name!r} logs its runs to {known}, and neither --tracking-uri nor "
            "MLFLOW_TRACKING_URI is set; give that address, or give --tracking-uri "
            f"{Address.of_file(paths.tracking)} to log all its runs there"
        )


def refuse_another_folder(study: Study, notebook: Path, paths: StudyPaths) -> None:
    """Refuse a notebook in another folder than the one of the study's trials.

    The other folder may have other data. If the earlier notebook no longer exists, it was moved,
    so the call is not refused.

    Args:
        study: The study to resume.
        notebook: The research notebook of the sweep.
        paths: Paths of the sweep, for the message.

    Raises:
        StudyError: The earlier notebook still exists, and is in another folder.
    """
    before = Path(study.facts.notebook)
    if not study.facts.notebook or not study.records() or not os.path.exists(before):
        return
    if not before.parent.samefile(notebook.parent):
        raise StudyError(
            f"the study {study.name!r} ran its trials in the folder of {display_path(before)}, "
            f"and this is {display_path(notebook)}, which may read other files; begin another "
            f"study with {paths.options_of_another}, or add --allow-changes to continue this one"
        )


def refuse_run_for_nothing(plan: SweepPlan, parameters: Path) -> None:
    """Refuse to run a notebook to draft its parameters file, if its study has trials already.

    The run would be for nothing, because the sweep after it would be refused: its settings differ
    from those of the trials. If all trials have failed, the call is not refused, because the study
    then begins anew.

    Args:
        plan: Plan of the run. Its paths are those of the study.
        parameters: Path where the drafted parameters file would be written.

    Raises:
        StudyError: The study has trials that have not all failed, or its storage cannot be opened.
    """
    study = stored_study(plan)
    records = [] if study is None else study.records()
    if any(record.state is not TrialState.FAILED for record in records):
        name, words = plan.paths.study, study_words(plan.paths.study, plan.storage_url)
        raise StudyError(
            f"the study {name!r} has {len(records)} trial(s) already, and there is no "
            f"{parameters}; put the file back (`notebook_hpo.py export {shlex.join(words)} --code "
            f"{records[0].run_id}` writes the file of a trial, to be copied to {parameters}), or "
            f"begin another study with {plan.paths.options_of_another}"
        )


def changes_since(study: Study, made_of: Fingerprint) -> list[str]:
    """Return in words how code and settings differ from those of the study's last sweep.

    Empty if they do not differ. Empty also if a change was undone before a trial ran with it: no
    trial ran with the code and settings of the last sweep, and the newest one ran with the present
    code and settings.

    Args:
        study: The study to resume.
        made_of: Fingerprint of new trials.
    """
    before, records = study.facts.made_of, study.records()
    now = without_made_files(before, made_of)
    found = changes(before, now) if before and records else []
    if found:
        metadata = [read_metadata(record.notebook) for record in records]
        ran = [known.code for known in metadata if known is not None]
        if ran and ran[-1] == version(made_of) and version(before) not in ran:
            return []
    return found


def _log_changes(study: Study, plan: SweepPlan) -> None:
    lines = changes_since(study, plan.fingerprint)
    if lines:
        _log.warning("the study %r continues with changes: %s", study.name, "; ".join(lines))


def _log_made_files(study: Study, made_of: Fingerprint) -> None:
    files = made_files(study.facts.made_of, made_of) if study.records() else []
    if files:
        _log.warning(
            "modules next to the notebook have changed since the trials of the study %r: %s; if "
            "the notebook does not make these files itself, for example by a download, the results "
            "of new trials may differ",
            study.name,
            ", ".join(
                f"{path} is {'new' if path in made_of['files'] else 'gone'}" for path in files
            ),
        )


def refuse_changes(study: Study, made_of: Fingerprint, *, sources: str, paths: StudyPaths) -> None:
    """Refuse new trials whose fingerprint differs from the fingerprint of the study's trials.

    If the cells are unchanged, a local module that has appeared or disappeared does not count as a
    difference: a trial may have downloaded or removed it.

    Args:
        study: The study to resume.
        made_of: Fingerprint of new trials: their code, parameters and kernel.
        sources: Files that the fingerprint was made of, for the message.
        paths: Paths of the study, for the message.

    Raises:
        StudyError: The fingerprints differ. The message lists the changes.
    """
    lines = changes_since(study, made_of)
    if lines:
        raise StudyError(
            f"the study {study.name!r} ran its {len(study.records())} trial(s) with other code or "
            f"settings than those of {sources}:\n"
            + "".join(f"  {line}\n" for line in lines)
            + f"undo the change, begin another study with {paths.options_of_another}, or add "
            "--allow-changes to continue this one (to tell new trials from earlier ones, group the "
            "runs in MLflow by the tag sweeper.code)"
        )


def refuse_another_search(study: Study, plan: SweepPlan) -> None:
    """Refuse to resume NAME-confirm or NAME-ablate if it belongs to an earlier study NAME.

    That happens if the study NAME was removed and swept anew, but NAME-confirm was not removed.

    Args:
        study: NAME-confirm or NAME-ablate, which runs trials of a search again.
        plan: Plan of this study, with the id of the present search NAME.

    Raises:
        StudyError: The study has run trials of another search than the present one.
    """
    assert plan.confirming is not None, "the study runs trials again"
    if study.facts.confirms is None or study.repeats_trials_of(plan.confirming.of):
        return
    paths, places = plan.paths, list[str]()
    if plan.storage_url.file != paths.storage:
        places.append(f"the study {study.name!r} in {plan.storage_url}")
    if plan.remote is not None:  # The next sweep would restore the study from there.
        places.append(f"its copy in {plan.remote.display_url}")
    files = f"{display_path(paths.folder)} and {display_path(paths.notebook('*'))}"
    raise StudyError(
        f"the study {study.name!r} belongs to an earlier search with the name of the present one; "
        f"that search was removed; remove {', '.join([*places, files])}, too"
    )


def is_worth_nothing(study: Study, made_of: Fingerprint) -> bool:
    """Return whether all trials have failed and the notebook or the settings have changed since.

    Such a study begins anew: its failures say nothing about the corrected notebook. Return False,
    so that the study is kept, if a trial that a user has queued by hand waits to run, or if the
    study runs trials of a search again, as NAME-confirm does.

    Args:
        study: The study to resume.
        made_of: Fingerprint of new trials.
    """
    return (
        all(record.state is TrialState.FAILED for record in study.records())
        and bool(changes_since(study, made_of))
        and study.facts.confirms is None
        and not study.has_trial_by_hand
    )


def refuse_lost_database(paths: StudyPaths) -> None:
    """Refuse a folder that has executed notebooks of a study but not the study's database.

    Otherwise, a new study would begin in that folder, and would replace the file study.json, from
    which the command `rebuild` restores the database.

    Raises:
        LostFileError: The database is missing, empty, or belongs to another study.
    """
    if paths.facts.exists() and paths.written_run_ids() and (why := why_lost(paths.storage)):
        raise LostFileError(paths.storage, why)


def refuse_older_copy(study: Study, paths: StudyPaths, storage: Address) -> None:
    """Refuse a storage that lacks the end of a trial, although its executed notebook states it.

    Otherwise, the trial would be run again and overwrite that notebook.

    Raises:
        StudyError: The storage lacks the end of at least one trial.
    """
    notebook = unknown_end(study.records(), study.facts, paths)
    if notebook is None:
        return
    why = f"it is an old copy, which lacks the end of the trial of {display_path(notebook)}"
    if storage.file == paths.storage:
        raise LostFileError(paths.storage, why)
    raise StudyError(
        f"--storage {storage}: {why}; put the newer storage back, or move that notebook away "
        "to run its trial again"
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
