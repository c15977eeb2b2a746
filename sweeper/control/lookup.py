"""Find existing studies by name or folder, and clean up after sweeps that were killed."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import OutputError, StudyError, TrackingError
from ..execution.runtime import clear_up
from ..settings import Settings
from ..settings.addresses import Address
from ..study.access import LostFileError
from ..study.files import is_storage, why_lost
from ..study.located import LocatedStudy
from ..study.moves import moves_in
from ..study.session_lock import Holder, holder_in
from ..study.study import Study
from ..study_folder.ownership import is_held, may_be_elsewhere, owner_of, while_unswept
from ..trials import StudyPaths, TrialState, display_path, facts_beside

# MLflow takes 2 s to import, and reading a study does not need it. So the functions that need the
# tracker import it themselves.
if TYPE_CHECKING:
    from ..tracking import RunWriter

_log = logging.getLogger(__name__)

STORAGE_NAME = "study.db"
#: The folder of a study is found up to this many folders below a given folder (chosen, not
#: measured): `results/exp1/STUDY` is three below a project.
_LEVELS = 3
#: Folders that are not searched, because they may have many thousand files: Python environments,
#: which contain a file or folder with a name in `_ENVIRONMENTS`, and folders with a name in
#: `_NO_STUDIES`.
_ENVIRONMENTS = {"pyvenv.cfg", "conda-meta"}
_NO_STUDIES = {"mlflow-artifacts", "node_modules", "__pycache__"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExistingStudy(LocatedStudy):
    """A study that was found, opened for reading. `opened` opens it for changes.

    Attributes:
        tracking: Address of the study's MLflow store, without the password if that is not known.
    """

    tracking: Address

    def swept_by(self) -> str | None:
        """Return in words which process sweeps the study now, on any machine. None if none does.

        Raises:
            StorageAwayError: The storage is a server that does not answer.
        """
        if is_held(self.paths):
            return owner_of(self.paths)
        holder = self.holder()
        return None if holder is None else holder.process

    def at_work(self) -> tuple[ExistingStudy, str | None]:
        """Return which study the sweep of this study works on now, and the process of the sweep.

        During the search, the sweep works on this study. After the search, it may run the best
        trials again, in the study NAME-confirm.

        Returns:
            This study or NAME-confirm, and the process in words, as `swept_by` returns it. If no
            sweep works on either, this study and None.
        """
        if (process := self.swept_by()) is not None:
            return self, process
        # If NAME-confirm is too long for a name, no such study exists.
        with suppress(OutputError):
            # Check the folder's lock even if NAME-confirm does not exist yet: the sweep locks the
            # folder before it makes the study.
            after = replace(self, paths=self.paths.following("confirm"))
            if (made := self.following("confirm")) is not None:
                after = replace(after, study=made.study, storage_url=made.storage_url)
            if (process := after.swept_by()) is not None:
                return after, process
        return self, None

    def opened(self) -> Study:
        """Open the study for changes. Check that this version of Optuna can write to its storage.

        Raises:
            StudyError: The storage cannot be opened, or no longer has the study.
        """
        return Study.load(self.storage_url, self.study.name)

    @property
    def settings(self) -> Settings:
        """The settings of the study's last sweep.

        Raises:
            StudyError: The study has stored no settings.
        """
        stored = self.study.facts.settings
        if not stored:
            raise StudyError(
                f"the study {self.study.name!r} has no stored settings; its next sweep stores them"
            )
        return Settings.from_mapping(stored)

    def runs(self) -> RunWriter:
        """Open the study's MLflow store, to change runs that it has already.

        Raises:
            TrackingError: MLflow is unavailable.
        """
        from ..tracking import RunWriter, Store, check_reachable

        name, study_id = self.study.name, self.study.study_id
        store = Store(address=self.tracking, study=name, study_id=study_id, paths=self.paths)
        check_reachable(store)
        return RunWriter.open(store)

    def holder(self) -> Holder | None:
        """Return the database session that holds the study's lock.

        Returns:
            None if no session holds it, or if the study's storage is not a PostgreSQL server.

        Raises:
            StorageAwayError: The server does not answer.
        """
        if not self.storage_url.is_postgres:
            return None
        return holder_in(self.storage_url, self.study.name)


def find_studies(
    wanted: str | None, *, storage: str | None, tracking_uri: str | None = None
) -> list[ExistingStudy]:
    """Return all studies with a given name, or in a given folder and the folders below it.

    A warning is logged for each study that cannot be read.

    Args:
        wanted: Name of a study, its folder, or a folder above it. None for the working folder.
        storage: URL of an Optuna storage. If it is given, `wanted` is looked up only there.
        tracking_uri: Address of the MLflow store with its password. Default: the address that the
            study has stored, with the password from the environment variable MLFLOW_TRACKING_URI if
            this variable has the same address.

    Raises:
        StudyError: No study was found, or none that can be read.
    """
    studies, unusable = _found(wanted, storage, tracking_uri)
    for error in unusable:  # One unusable study must not hide the others.
        _log.warning("a study is left out: %s", error)
    return studies


def find_study(
    wanted: str | None, *, storage: str | None, tracking_uri: str | None = None
) -> ExistingStudy:
    """Return the only study that `find_studies` finds with the same arguments.

    If `wanted` is None and exactly one of several studies is being swept, return that one.

    Raises:
        StudyError: No study was found, or none that can be read. Or several were found; those that
            cannot be read count, too.
    """
    studies, unusable = _found(wanted, storage, tracking_uri)
    if len(studies) + len(unusable) > 1:
        swept = [study for study in studies if wanted is None and study.swept_by()]
        if len(swept) == 1:
            return swept[0]
        folders = ", ".join(display_path(study.paths.folder) for study in swept or studies)
        unread = "".join(f"; another one cannot be read: {error}" for error in unusable)
        raise StudyError(f"there are several studies; name one of them: {folders}{unread}")
    return studies[0]


def _found(
    wanted: str | None, storage: str | None, tracking_uri: str | None
) -> tuple[list[ExistingStudy], list[StudyError]]:
    """Look up studies as `find_studies` does.

    Returns:
        The studies that can be read, and an error for each study that cannot be read.

    Raises:
        StudyError: No study was found, or none that can be read.
    """
    if storage is not None:
        found = _in_storage(Address.of(storage), wanted, tracking_uri)
    else:
        found = _in_folders([*_folders(Path(wanted or ""))], tracking_uri)
        if not found and wanted and os.path.basename(wanted) == wanted:
            named = [folder for folder in _folders(Path()) if folder.name == wanted]
            found = _in_folders(named, tracking_uri)
    studies = [study for study in found if isinstance(study, ExistingStudy)]
    unusable = [error for error in found if isinstance(error, StudyError)]
    if unusable and not studies:
        raise unusable[0]
    if not studies and storage is not None:
        which = "no study in it has" if wanted is None else f"the study {wanted!r} in it has not"
        raise StudyError(f"{Address.of(storage)}: {which} begun a trial; run its sweep first")
    if not studies:
        where = "this folder" if wanted is None else repr(wanted)
        raise StudyError(
            f"there is no study in {where} that has begun a trial, nor up to {_LEVELS} folders "
            "deeper; give a study's name, the folder of its outputs, or its name and --storage"
        )
    return studies, unusable


def _in_storage(
    url: Address, wanted: str | None, tracking_uri: str | None
) -> list[ExistingStudy | StudyError]:
    """Return the study with a name in a storage, or all its studies if no name is given.

    A study that cannot be read is returned as an error, which is not raised.

    Raises:
        StudyError: The storage has no such study.
    """
    if url.file is not None and not is_storage(url.file):
        raise StudyError(f"{url}: there is no study in {display_path(url.file)}")
    studies = Study.all_in(url)
    chosen = [study for study in studies if wanted in (None, study.name)]
    if wanted is not None and not chosen:
        names = ", ".join(study.name for study in studies) or "none"
        raise StudyError(f"{url}: there is no study {wanted!r}; known: {names}")
    return [*_located(chosen, url, tracking_uri)]


def _folders(above: Path, levels: int = _LEVELS) -> Iterator[Path]:
    """Search a folder and the folders below it for studies. Yield the folder of each study.

    A study whose storage is lost is included. The search skips folders that the user may not enter,
    hidden folders, and folders that may have very many files, such as Python environments.

    Args:
        above: The first folder.
        levels: How many folders deeper a study's folder may be.
    """
    storage = above / STORAGE_NAME
    is_study = os.path.lexists(facts_beside(storage))
    if is_study or os.path.lexists(storage):
        yield above
    # List a folder only if its subfolders are to be searched, because some have a million files.
    if is_study or not levels or any(os.path.lexists(above / name) for name in _ENVIRONMENTS):
        return
    try:
        with os.scandir(above) as found:
            # `entry.is_dir()` raises an error if the user may not follow a link.
            folders = [
                entry.name
                for entry in found
                if (os.path.isdir(entry) if entry.is_symlink() else entry.is_dir())
            ]
    except OSError:
        return
    for name in sorted(folders):
        if not name.startswith(".") and name not in _NO_STUDIES:
            yield from _folders(above / name, levels - 1)


def _in_folders(
    folders: Sequence[Path], tracking_uri: str | None
) -> list[ExistingStudy | StudyError]:
    """Return the studies in folders. A study that cannot be read is returned as an error.

    A file `study.db` that is not a study's storage is ignored, unless the file `study.json` next to
    it shows that it was one.
    """
    for outputs in {folder.absolute().parent for folder in folders}:
        for move in moves_in(outputs):
            from ..sync.moving import follow_unswept  # The import takes long.

            follow_unswept(move)
    found: list[ExistingStudy | StudyError] = []
    for folder in folders:
        file = folder.absolute() / STORAGE_NAME
        url = Address.of_file(file)
        why = why_lost(file) if facts_beside(file).is_file() else None
        if why is not None:
            found.append(LostFileError(file, why))
        elif os.path.isfile(file) and is_storage(file):
            try:
                found += _located(Study.all_in(url), url, tracking_uri)
            except StudyError as error:
                found.append(error)
    return found


def _located(
    studies: Iterable[Study], url: Address, tracking_uri: str | None
) -> Iterator[ExistingStudy | StudyError]:
    """Yield each study of a storage with its paths and MLflow store.

    For a study that cannot be read, the error is yielded, and not raised. A study that has not
    stored the template of its outputs is left out: its sweep was killed before the first trial.
    """
    for study in studies:
        try:
            facts = study.facts
        except StudyError as error:  # Another version of this package has stored the study.
            yield error
            continue
        if facts.template:
            paths = StudyPaths.parse(facts.template, study=study.name)
            tracking = Address.of_tracking(tracking_uri or facts.tracking_uri)
            yield ExistingStudy(study=study, storage_url=url, paths=paths, tracking=tracking)


def clean_up_after_crash(existing: ExistingStudy) -> None:
    """End the processes of a killed sweep, and correct trials and runs that are still `running`.

    This does nothing while a sweep of the study is alive. If MLflow is unavailable, a warning is
    logged, and the next call corrects the runs.
    """
    study = existing.study
    with while_unswept(existing.paths) as is_unswept:
        if not is_unswept or existing.holder() is not None:
            return
        clear_up(existing.paths.folder)
        if study.left_by_a_crash():
            opened = existing.opened()
            # Store that MLflow must be corrected before doing it: if this process is killed in
            # between, the next command corrects MLflow.
            opened.note_facts(tracking_is_behind=True)
            _correct_trials(opened)
        file = existing.tracking.file
        # Do not open a store in a file that does not exist here: MLflow would make an empty one. Do
        # not correct runs on a server if the study's sweep may be alive on another machine.
        has_runs = not may_be_elsewhere(existing.paths) if file is None else os.path.exists(file)
        if study.facts.tracking_is_behind and has_runs:
            try:
                _correct_runs(existing)
            except TrackingError as error:
                _log.warning(
                    "MLflow still shows ended trials of the study %r as running: %s; the next "
                    "command tries again",
                    study.name,
                    error.problem,
                )
            else:
                existing.opened().note_facts(tracking_is_behind=False)


def _correct_trials(study: Study) -> None:
    """Correct the states of interrupted trials in the study and in their executed notebooks."""
    from ..notebooks.executed import mark_ended
    from ..notebooks.metadata import read_metadata

    for record in study.mark_interrupted():
        metadata = read_metadata(record.notebook)
        is_ours = metadata is not None and metadata.study_id == study.study_id
        if is_ours and not record.is_final:
            mark_ended(record.notebook, TrialState.STOPPED, record.message)


def _correct_runs(existing: ExistingStudy) -> None:
    """Correct the states of interrupted runs in MLflow.

    Raises:
        TrackingError: MLflow is unavailable.
    """
    from ..tracking import usable

    writer = existing.runs()
    existing.opened().note_facts(experiment_id=writer.experiment_id)
    with usable(existing.tracking):
        writer.kill_running()
