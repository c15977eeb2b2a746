"""Restore a study from its remote copy, into a folder that may have another path."""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from ..errors import OutputError, StoppedError, SyncError
from ..files import beside, write_atomically
from ..notebooks.metadata import read_metadata
from ..object_storage.store import Store
from ..settings.addresses import Address
from ..study.facts import StudyFacts
from ..study.files import move_records
from ..tracking import move_artifacts, put_in_place, replace_database
from ..trials import TrialState, display_path
from .contents import STUDY, TRACKING, Contents
from .manifest import Entry, LocalMarker, Manifest
from .objects import hash_of_file

_log = logging.getLogger(__name__)

_NO_STUDY = (
    "sync: the study's database in the remote copy is missing or damaged; choose another name with "
    "--study, and other outputs with -o, to start anew"
)
_STOPPED = "sync: the sweep was stopped while its study was downloaded"
#: A warning names at most this many files (chosen, not measured).
_MOST_NAMES = 5
#: This many objects are downloaded at the same time (chosen, not measured).
_AT_ONCE = 8


def restore(
    store: Store,
    manifest: Manifest,
    contents: Contents,
    *,
    mark: LocalMarker,
    is_stopped: Callable[[], bool] = lambda: False,
) -> None:
    """Download all files of a copy.

    Each file is written under a temporary name in its folder, compared with its hash, and renamed.
    The study's database is renamed last, so that the next call starts again if this one is killed.
    A file whose object is missing or damaged is left out with a warning. If the study's database is
    missing or damaged, nothing is restored.

    Args:
        store: Store with the copy.
        manifest: Manifest of the copy.
        contents: Files of the study on this machine, with their paths.
        mark: Marker to write to the study's folder.
        is_stopped: Returns whether the sweep was stopped, which ends the download. The next call
            uses the files that have arrived.

    Raises:
        SyncError: The copy does not fit the sweep's options, or has a file that belongs to no
            study. Or the study's database is missing or damaged in the copy, or another database
            has the path to which it is to be restored.
        StoppedError: The sweep was stopped.
        OutputError: A notebook that would be overwritten was not written by this study, or states
            the end of its trial and differs from the copy.
        StoreError: The store is unavailable.
        OSError: The disk is full or cannot be written.
    """
    _refuse_other_stores(manifest, contents)
    try:
        of_mlflow = () if contents.tracking is not None else (TRACKING, "artifacts/")
        wanted = [name for name in manifest.files if not name.startswith(of_mlflow)]
        places = {name: contents.place(name) for name in wanted}
    except ValueError as error:
        raise SyncError(f"sync: {store.url}: {error}") from error
    _refuse_files_in_the_way(places, manifest, folder=contents.paths.folder)
    study = None
    if STUDY in places:
        study = _fetched(store, manifest.files[STUDY], places[STUDY], is_stopped)
        if study is None:
            raise SyncError(_NO_STUDY)
    try:
        _restore_files(store, manifest, contents, places, is_stopped)
        if study is not None:
            _move_study(study, contents, has_store=TRACKING in places)
        write_atomically(contents.paths.copied, mark.text)
        if study is not None:
            replace_database(study, places[STUDY])
    finally:
        if study is not None:
            study.unlink(missing_ok=True)


def _restore_files(
    store: Store,
    manifest: Manifest,
    contents: Contents,
    places: Mapping[str, Path],
    is_stopped: Callable[[], bool],
) -> None:
    """Download all files except the study's database. Warn of missing and damaged objects.

    Args:
        store: Store with the copy.
        manifest: Manifest of the copy.
        contents: Files of the study on this machine. Used for the new URI of the artifacts, which
            MLflow's database then states.
        places: Paths to which the files are downloaded, by their names in the copy.
        is_stopped: Returns whether the sweep was stopped, which ends the download.
    """

    def fetch(name: str) -> bool:
        entry, place = manifest.files[name], places[name]
        if _is_here(place, entry):  # An earlier call, which was interrupted, has downloaded it.
            return True
        if is_stopped():
            raise StoppedError(_STOPPED)
        beside = _fetched(store, entry, place, is_stopped)
        if beside is not None:
            os.replace(beside, place)
        return beside is not None

    files = [name for name in places if name not in (STUDY, TRACKING)]
    pool = ThreadPoolExecutor(_AT_ONCE)
    try:
        are_here = zip(files, pool.map(fetch, files), strict=True)
        lost = [name for name, is_here in are_here if not is_here]
    finally:
        pool.shutdown(cancel_futures=True)
    if TRACKING in places:
        tracking = _fetched(store, manifest.files[TRACKING], places[TRACKING], is_stopped)
        if tracking is None or not _has_moved(tracking, manifest, contents):
            lost.append(TRACKING)
        else:
            put_in_place(tracking, places[TRACKING])
        if tracking is not None:
            tracking.unlink(missing_ok=True)
    if lost:
        names = ", ".join(map(repr, lost[:_MOST_NAMES]))
        more = f" and {len(lost) - _MOST_NAMES} more" if len(lost) > _MOST_NAMES else ""
        _log.warning(
            "remote copy: files that are missing or damaged in %s were left out: %s%s",
            store.url,
            names,
            more,
        )


def _has_moved(tracking: Path, manifest: Manifest, contents: Contents) -> bool:
    """Change the artifact URIs in a downloaded database of MLflow to those of this machine.

    Args:
        tracking: The downloaded file, which is changed.
        manifest: Manifest of the copy, which states the earlier URI of the artifacts.
        contents: Files of the study on this machine.

    Returns:
        Whether the file is an intact database. Otherwise, it cannot be used.
    """
    try:
        move_artifacts(tracking, before=manifest.artifacts, now=contents.paths.artifacts.as_uri())
    except sqlite3.OperationalError:
        raise  # The disk is full or read-only.
    except sqlite3.DatabaseError:
        return False
    return True


def _move_study(study: Path, contents: Contents, *, has_store: bool) -> None:
    """Change the paths in a restored study's database to those of this machine.

    Args:
        study: The restored database.
        contents: Files of the study on this machine.
        has_store: Whether the copy has MLflow's store. If not, the study may log to a server, whose
            address stays as it is.

    Raises:
        SyncError: The study's database is damaged.
    """
    paths = contents.paths

    def corrected(facts: StudyFacts) -> StudyFacts:
        if contents.tracking is not None and has_store:
            facts = replace(facts, tracking_uri=str(Address.of_file(contents.tracking)))
        return replace(facts, template=paths.template)

    try:
        move_records(study, paths, corrected)
    except (sqlite3.DatabaseError, ValueError, RecursionError) as error:
        if isinstance(error, sqlite3.OperationalError):  # The disk is full or read-only.
            raise
        raise SyncError(_NO_STUDY) from error


def _refuse_other_stores(manifest: Manifest, contents: Contents) -> None:
    where = f"sync: the copy of the study {manifest.study!r}"
    if (STUDY in manifest.files) != (contents.storage is not None):
        raise SyncError(
            f"{where} was made with another kind of --storage (a file or a server); give that kind"
        )
    if contents.storage is None and manifest.template != contents.paths.template:
        raise SyncError(
            f"{where} is restored only to the paths that its sweep has used, because the study is "
            f"on a server; repeat -o {manifest.template}"
        )


def _refuse_files_in_the_way(
    places: Mapping[str, Path], manifest: Manifest, *, folder: Path
) -> None:
    for name, place in places.items():
        if not name.startswith("notebooks/") or not place.exists():
            continue
        metadata = read_metadata(place)
        if metadata is None or (manifest.study_id and metadata.study_id != manifest.study_id):
            raise OutputError(
                f"{display_path(place)} is in the way of the study that is to be restored, which "
                "did not write this file; move the file away, or choose another output with -o"
            )
        has_ended = metadata.state.has_ended and metadata.state is not TrialState.STOPPED
        if has_ended and not _is_here(place, manifest.files[name]):
            raise OutputError(
                f"{display_path(place)} is in the way of the study that is to be restored: its "
                "trial has ended, and the copy has another notebook of this trial; move the "
                "notebooks of this study away"
            )
    storage = places.get(STUDY)
    # A sweep that was killed at its start may have left a database in the study's own folder. Such
    # a database is replaced and not refused.
    if storage is not None and storage.exists() and storage.parent != folder:
        raise SyncError(
            f"sync: {display_path(storage)} exists, and does not have the study "
            f"{manifest.study!r}, which is to be restored; move it away, or choose another "
            "--storage"
        )


def _is_here(place: Path, entry: Entry) -> bool:
    """Return whether the file at a path exists and has the content of a manifest's entry."""
    try:
        return hash_of_file(place) == entry.hash
    except OSError:
        return False


def _fetched(
    store: Store, entry: Entry, place: Path, is_stopped: Callable[[], bool]
) -> Path | None:
    """Download a file of the copy to a temporary file in the folder of its final path.

    Args:
        store: Store with the copy.
        entry: The file's entry in the manifest, which names its object in the store.
        place: Final path of the file. Nothing is written there.
        is_stopped: Returns whether the sweep was stopped, which ends the wait for a store that is
            unavailable.

    Returns:
        The temporary file. None if the object is missing or has another hash.

    Raises:
        StoppedError: The sweep was stopped while the store was unavailable.
        StoreError: The store refuses the download, or is unavailable for a minute.
        OSError: The disk is full or cannot be written.
    """
    place.parent.mkdir(parents=True, exist_ok=True)
    part = beside(place)
    try:
        is_there = store.patiently(lambda: store.get_file(entry.object, part), is_stopped)
        if is_there and hash_of_file(part) == entry.hash:
            os.utime(part, (entry.mtime_s, entry.mtime_s))
            return part
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    part.unlink(missing_ok=True)
    return None
