"""Puts an MLflow store where there is none: a file that is complete as soon as it is there.

MLflow creates its tables in some 80 migrations, and can never open a file in which a kill or a full
disk interrupted them. So a store is made beside its place and renamed. An empty one of the
installed version is kept in the user's cache, to be copied from then on, which spares 0.8 s.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import closing, suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

from filelock import FileLock
from platformdirs import user_cache_path

from ..files import PRIVATE, copy_atomically


def make_store(place: Path) -> None:
    """Create an empty store where there is none, in one atomic step.

    Raises:
        OSError: the file cannot be written.
    """
    place.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(
        f"{place}.lock", mode=PRIVATE
    ):  # two processes that create it at once would break it, too
        if place.exists():
            return
        beside, kept = place.with_name(f".{place.name}.part"), _kept()
        _clear(beside)
        try:
            if kept.exists():
                shutil.copyfile(kept, beside)
            else:
                _migrate(beside)
                with suppress(OSError):  # where the user's cache cannot be written
                    if kept.is_absolute():  # not for a user without a home
                        kept.parent.mkdir(parents=True, exist_ok=True)
                        copy_atomically(beside, kept)
            _replace(beside, place)
        except BaseException:
            _clear(beside)
            raise


def put_in_place(file: Path, place: Path) -> None:
    """Move a store's file to a place, unless another study has created a store there."""
    with FileLock(f"{place}.lock", mode=PRIVATE):  # the lock that `make_store` takes
        if not place.exists():
            _replace(file, place)


def _kept() -> Path:
    """Where the installed version's empty store is kept."""
    return user_cache_path("notebook-hpo") / f"mlflow-{version('mlflow')}.db"


def _migrate(file: Path) -> None:
    from mlflow.store.tracking import DEFAULT_LOCAL_FILE_AND_ARTIFACT_PATH as ARTIFACTS
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    store: Any = SqlAlchemyStore(f"sqlite:///{file}", ARTIFACTS)  # type: ignore[no-untyped-call]
    store.engine.dispose()
    with closing(sqlite3.connect(file)) as connection, connection:
        # MLflow makes its default experiment again on opening, in the folder it is opened in.
        connection.execute("DELETE FROM experiments")


def _replace(file: Path, place: Path) -> None:
    file.chmod(PRIVATE)
    _clear(place)  # including the log of a removed file: SQLite would replay it into this one
    os.replace(file, place)


def _clear(file: Path) -> None:
    for ending in ("", "-journal", "-wal", "-shm"):
        file.with_name(file.name + ending).unlink(missing_ok=True)
