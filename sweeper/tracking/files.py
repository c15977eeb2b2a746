"""An MLflow store that is an SQLite file: how it is made, its log, its move.

MLflow creates its tables in some 80 migrations, and can never open a file in which a kill or a full
disk interrupted them. So a store is made beside its place and renamed. An empty one of the
installed version is kept in the user's cache, to be copied from then on, which spares 0.8 s. MLflow
has no call that moves artifacts, so `move_artifacts` works on its tables; a test compares the
result with what MLflow reads afterwards.
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
from ..settings.addresses import Address

_BUSY_TIMEOUT_S = 30
#: The tables and columns in which MLflow stores URIs of artifacts.
_URI_COLUMNS = (
    ("experiments", "artifact_location"),
    ("runs", "artifact_uri"),
    ("logged_models", "artifact_location"),
)


def forget_connections(uri: str) -> None:
    """Close MLflow's connections to a store, which it keeps for the life of the process."""
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    cached = getattr(SqlAlchemyStore, "_engine_map", {}).get(uri)
    if cached is not None:
        cached.dispose()


def log_ahead(file: Path) -> None:
    """Set SQLite's write-ahead log: a commit waits once for the disk, and readers do not block."""
    with closing(sqlite3.connect(file, timeout=_BUSY_TIMEOUT_S)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")


def move_artifacts(file: Path, *, before: str, now: str) -> None:
    """Change the artifact URIs of a store after a folder was moved.

    Args:
        before: the URI of the old folder.
        now: the URI of the new folder.
    """
    with closing(sqlite3.connect(file)) as connection, connection:
        tables = {n for (n,) in connection.execute("SELECT name FROM sqlite_master")}
        for table, column in _URI_COLUMNS:
            if table in tables:
                connection.execute(
                    f"UPDATE {table} SET {column} = ? || substr({column}, ?) "
                    f"WHERE substr({column}, 1, ?) = ?",
                    (f"{now}/", len(before) + 2, len(before) + 1, f"{before}/"),
                )


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
            replace_database(beside, place)
        except BaseException:
            _clear(beside)
            raise


def put_in_place(file: Path, place: Path) -> None:
    """Move a store's file to a place, unless another study has created a store there."""
    with FileLock(f"{place}.lock", mode=PRIVATE):  # the lock that `make_store` takes
        if not place.exists():
            replace_database(file, place)


def _kept() -> Path:
    """Where the installed version's empty store is kept."""
    return user_cache_path("notebook-hpo") / f"mlflow-{version('mlflow')}.db"


def _migrate(file: Path) -> None:
    from mlflow.store.tracking import DEFAULT_LOCAL_FILE_AND_ARTIFACT_PATH as ARTIFACTS
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    store: Any = SqlAlchemyStore(Address.of_file(file).full, ARTIFACTS)  # type: ignore[no-untyped-call]
    store.engine.dispose()
    with closing(sqlite3.connect(file)) as connection, connection:
        # MLflow makes its default experiment again on opening, in the folder it is opened in.
        connection.execute("DELETE FROM experiments")


def replace_database(file: Path, place: Path) -> None:
    """Move an SQLite file to a place, in which others of this machine cannot lock it."""
    file.chmod(PRIVATE)
    _clear(place)  # including the log of a removed file: SQLite would replay it into this one
    os.replace(file, place)


def _clear(file: Path) -> None:
    for ending in ("", "-journal", "-wal", "-shm"):
        file.with_name(file.name + ending).unlink(missing_ok=True)
