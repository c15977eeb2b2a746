"""Restores a study from its copy, into a folder that may have another path."""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ..errors import OutputError, SyncError
from ..files import write_atomically
from ..notebooks.metadata import read_metadata
from ..study.files import move_records
from ..tracking import move_artifacts, put_in_place, replace_database
from ..trials import display_path, run_id_of
from .contents import STUDY, TRACKING, Contents
from .manifest import Entry, LocalMarker, Manifest
from .objects import hash_of_file
from .store import Store

#: How many objects are downloaded at the same time.
_AT_ONCE = 8


def restore(store: Store, manifest: Manifest, contents: Contents, *, mark: LocalMarker) -> None:
    """Download all files of a copy.

    Each file is written beside its place, compared with its hash and renamed. The study's database
    comes last, so that the next call starts again if this one is killed.

    Args:
        mark: the marker that is written to the study's folder.

    Raises:
        SyncError: the copy does not fit this call, or is damaged.
        OutputError: a file of another origin is in the way.
        StoreError: the store is away.
    """
    _refuse_other_stores(manifest, contents)
    try:
        of_mlflow = () if contents.tracking is not None else (TRACKING, "artifacts/")
        wanted = [name for name in manifest.files if not name.startswith(of_mlflow)]
        places = {name: contents.place(name) for name in wanted}
    except ValueError as error:
        raise SyncError(f"sync: {store.url}: {error}") from error
    _refuse_files_in_the_way(places, manifest, folder=contents.paths.folder)
    files = [name for name in places if name not in (STUDY, TRACKING)]

    def fetch(name: str) -> None:
        os.replace(_fetched(store, manifest.files[name], places[name]), places[name])

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        list(pool.map(fetch, files))
    paths = contents.paths
    study = None
    if STUDY in places:
        study = _fetched(store, manifest.files[STUDY], places[STUDY])
        facts = {"template": paths.template}
        if contents.tracking is not None:
            facts["tracking_uri"] = f"sqlite:///{contents.tracking}"
        move_records(
            study, paths.study, notebook_of=lambda n: paths.notebook(run_id_of(n)), **facts
        )
    if TRACKING in places:
        tracking = _fetched(store, manifest.files[TRACKING], places[TRACKING])
        move_artifacts(tracking, before=manifest.artifacts, now=paths.artifacts.as_uri())
        put_in_place(tracking, places[TRACKING])
        tracking.unlink(missing_ok=True)
    write_atomically(paths.copied, mark.text)
    if study is not None:
        replace_database(study, places[STUDY])


def _refuse_other_stores(manifest: Manifest, contents: Contents) -> None:
    where = f"sync: the copy of the study {manifest.study!r}"
    if (STUDY in manifest.files) != (contents.storage is not None):
        raise SyncError(f"{where} was made with another kind of --storage; give the same here")
    if contents.storage is None and manifest.template != contents.paths.template:
        raise SyncError(
            f"{where} has its notebooks where its storage says, in {manifest.template}; give that "
            "output with -o"
        )


def _refuse_files_in_the_way(
    places: Mapping[str, Path], manifest: Manifest, *, folder: Path
) -> None:
    for name, place in places.items():
        if not name.startswith("notebooks/") or not place.exists():
            continue
        metadata = read_metadata(place)
        if metadata is None or (
            manifest.study_id and metadata.get("study_id") != manifest.study_id
        ):
            raise OutputError(
                f"{display_path(place)} is in the way of what is to be brought back: it was "
                "written by something else; move it away, or choose another output with -o"
            )
    storage = places.get(STUDY)
    # In the study's own folder the file was left by a sweep that was killed at its start.
    if storage is not None and storage.exists() and storage.parent != folder:
        raise SyncError(
            f"sync: {display_path(storage)} is there, and does not have the study "
            f"{manifest.study!r} that "
            "is to be brought back; move it away, or choose another --storage"
        )


def _fetched(store: Store, entry: Entry, place: Path) -> Path:
    """Download an object beside its place, and compare it with its hash."""
    place.parent.mkdir(parents=True, exist_ok=True)
    beside = place.with_name(f".{place.name}.{os.getpid()}.part")
    try:
        store.get_file(entry.object, beside)
        if hash_of_file(beside) != entry.hash:
            raise SyncError(
                f"sync: {store.url}/{entry.object} is damaged, so nothing was "
                "begun; choose another name with --study to start anew"
            )
        os.utime(beside, (entry.mtime_s, entry.mtime_s))
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    return beside
