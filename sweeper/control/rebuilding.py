"""Rebuild damaged or lost databases of studies from the executed notebooks."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ..errors import OutputError, StudyError
from ..files import DATABASE_LOGS, remove_database
from ..notebooks.metadata import TrialMetadata, read_metadata
from ..settings.addresses import Address
from ..study.access import damage_of
from ..study.endings import unknown_end
from ..study.facts import StudyFacts
from ..study.files import why_lost
from ..study.moves import move_of
from ..study.rebuilt import write_study
from ..study.study import Study
from ..study_folder.ownership import owner_of, while_unswept
from ..sync.moving import follow_unswept
from ..trials import StudyPaths, TrialState, display_path, facts_beside
from .lookup import STORAGE_NAME


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebuilt:
    """A study whose database was rebuilt.

    Attributes:
        study: Name of the study.
        storage: The new database.
        counts: Number of trials by state. Trials that will be run again are `running`.
        unreadable: Executed notebooks that could not be read.
        damaged: Where the damaged database is now. None if there was no database.
    """

    study: str
    storage: Path
    counts: Mapping[TrialState, int]
    unreadable: Sequence[Path]
    damaged: Path | None


def rebuild(folder: Path) -> list[Rebuilt]:
    """Rebuild the damaged or lost databases of the studies in a folder.

    Args:
        folder: Folder of a study, or a folder of outputs with several studies.

    Returns:
        The studies whose databases were rebuilt.

    Raises:
        StudyError: No database is damaged or lost, or a database cannot be rebuilt. Or a sweep
            uses a damaged database.
        OutputError: A folder cannot be written.
    """
    own = facts_beside(folder / STORAGE_NAME)
    below = sorted(folder.glob(f"*/{own.name}")) if os.path.isdir(folder) else []
    files = [own] if os.path.isfile(own) else below
    if not files:
        raise StudyError(
            f"{folder}: there is no {own.name}, from which a study is rebuilt; give a study's "
            "folder (a study with --storage cannot be rebuilt)"
        )
    found = [_rebuilt(file) for file in files]
    made = [study for study in found if study is not None]
    if not made:
        where = ", ".join(display_path(file.with_name(STORAGE_NAME)) for file in files)
        raise StudyError(f"{where}: not damaged, so nothing was rebuilt")
    return made


def _rebuilt(file: Path) -> Rebuilt | None:
    """Rebuild the database of a study if it is damaged, lost, or was replaced by an older copy.

    Args:
        file: File with the facts of the study, next to its database.

    Returns:
        The rebuilt study. None if its database did not have to be rebuilt.

    Raises:
        StudyError: The study was moved, is being swept, or cannot be rebuilt.
        OutputError: Its folder cannot be written.
    """
    if (move := move_of(file.absolute())) is not None:
        follow_unswept(move)
    name, facts = StudyFacts.read(file)
    paths = StudyPaths.parse(facts.template, study=name)
    if paths.facts.resolve() != file.resolve():
        raise StudyError(
            f"{display_path(file)}: the study's folder was moved from {paths.folder} without its "
            "executed notebooks; move them, too"
        )
    folder, storage = display_path(paths.folder), paths.storage
    with while_unswept(paths) as is_unswept:
        is_sound = why_lost(storage) is None and damage_of(storage) is None
        # An undamaged database may lack ends of trials that are in executed notebooks. Then rebuild
        # it only if no sweep runs, because a sweep stores these ends itself.
        if is_sound and (not is_unswept or _has_all_ends(name, facts, paths)):
            return None
        if not os.access(paths.folder, os.W_OK):
            raise OutputError(
                f"{folder}: cannot be written, so the study {name!r} cannot be rebuilt in it; run "
                "this command as the user of the folder, or copy the outputs elsewhere"
            )
        if not is_unswept:
            raise StudyError(
                f"the study {name!r} in {folder} is being swept by {owner_of(paths)}; wait for it "
                "or stop it"
            )
        return _made(name, facts, paths)


def _has_all_ends(name: str, facts: StudyFacts, paths: StudyPaths) -> bool:
    """Return whether a database has each attempt that ended according to its executed notebook."""
    study = Study.load(Address.of_file(paths.storage), name, is_known=True)
    try:
        return unknown_end(study.records(), facts, paths) is None
    finally:
        study.close()


def _made(name: str, facts: StudyFacts, paths: StudyPaths) -> Rebuilt:
    notebooks: dict[int, tuple[Path, TrialMetadata]] = {}
    unreadable = []
    for run_id, path in paths.written_run_ids().items():
        metadata = read_metadata(path)
        if metadata is None:
            unreadable.append(path)
        elif metadata.study_id == facts.id and metadata.run_id == run_id:
            notebooks[int(run_id)] = path, metadata
    if not notebooks:
        raise StudyError(
            f"{paths.displayed_template}: there are no executed notebooks of the study {name!r}, "
            "from which its database is rebuilt; put them back"
        )
    storage = paths.storage
    new = storage.with_name(f"{storage.name}.rebuilt")
    remove_database(new)  # An earlier call that was killed may have left this file.
    try:
        records = write_study(new, name, facts, notebooks)
        damaged = _set_aside(storage)
        os.replace(new, storage)
    finally:
        remove_database(new)
    return Rebuilt(
        study=name,
        storage=storage,
        counts=Counter(record.state for record in records),
        unreadable=unreadable,
        damaged=damaged,
    )


def _set_aside(storage: Path) -> Path | None:
    """Rename a damaged database together with its logs, which would damage the new database.

    Returns:
        The new name of the database. None if there was no database.
    """
    kept = storage.with_name(f"{storage.name}.damaged")
    n_kept = 1
    while kept.exists():
        n_kept += 1
        kept = storage.with_name(f"{storage.name}.damaged{n_kept}")
    for log in DATABASE_LOGS:  # Rename the logs first, because logs without a database do no harm.
        with suppress(FileNotFoundError):
            os.replace(f"{storage}{log}", f"{kept}{log}")
    if not storage.exists():
        return None
    os.replace(storage, kept)
    return kept
