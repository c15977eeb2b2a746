"""An MLflow store that is an SQLite file: how it is made, its log, its move.

MLflow creates its tables in some 80 migrations, and can never open a file in which a kill or a full
disk interrupted them. So a store is made beside its place and renamed. An empty one of the
installed version is kept in the user's cache, to be copied from then on, which spares 0.8 s. MLflow
has no call that moves artifacts, so `move_artifacts` works on its tables; a test compares the
result with what MLflow reads afterwards.
"""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
from contextlib import closing, suppress
from dataclasses import dataclass
from enum import StrEnum
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from filelock import FileLock
from platformdirs import user_cache_path

from ..files import PRIVATE, copy_atomically
from ..settings.addresses import Address

_BUSY_TIMEOUT_S = 30
#: The folder of MLflow's migrations in its package, and what names a revision in one of its files.
_MIGRATIONS = ("store", "db_migrations", "versions")
_REVISION = re.compile(r"^(revision|down_revision) = [\"'](\w+)[\"']", re.MULTILINE)
#: The tables and columns in which MLflow stores URIs of artifacts.
_URI_COLUMNS = (
    ("experiments", "artifact_location"),
    ("runs", "artifact_uri"),
    ("logged_models", "artifact_location"),
)


def forget_connections(uri: str) -> None:
    """Close MLflow's connections to a store, which it keeps for the life of the process."""
    engine = _engine_of(uri)
    if engine is not None:
        engine.dispose()


def wait_for_disk_once(uri: str) -> None:
    """Let this process's commits to a store not wait for the disk, until `settle` does.

    A trial has six commits or more. SQLite stays whole when the machine dies. The file may lack
    the last trials then, which the study's next sweep writes again.
    """
    from sqlalchemy import event

    engine = _engine_of(uri)
    if engine is not None:
        less = "PRAGMA synchronous=NORMAL"
        event.listen(engine, "connect", lambda connection, _: connection.execute(less))
        engine.dispose()  # of connections that wait


def settle(file: Path) -> None:
    """Wait until the disk has all that was committed to a store."""
    with closing(sqlite3.connect(file, timeout=_BUSY_TIMEOUT_S)) as connection:
        connection.execute("PRAGMA wal_checkpoint")


def _engine_of(uri: str) -> Any:
    """What MLflow connects to a store with; None where its version keeps it elsewhere."""
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    return getattr(SqlAlchemyStore, "_engine_map", {}).get(uri)


def log_ahead(file: Path) -> None:
    """Set SQLite's write-ahead log: a commit waits once for the disk, and readers do not block."""
    with closing(sqlite3.connect(file, timeout=_BUSY_TIMEOUT_S)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")


class Schema(StrEnum):
    """How the tables of a store fit the installed MLflow."""

    FITS = "fits"
    OLDER = "older"
    NEWER = "newer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a store in a file has, as far as it says without MLflow.

    Attributes:
        deleted_id: the id of the study's experiment, where that was deleted in MLflow.
    """

    schema: Schema = Schema.FITS
    deleted_id: str | None = None


def look_into(file: Path, experiment: str) -> Found:
    """Look into a store without importing MLflow, which takes seconds.

    A file that is missing, locked or no store has nothing to object to: opening it shows more.
    """
    try:
        with closing(
            sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)
        ) as connection:
            (revision,) = connection.execute("SELECT version_num FROM alembic_version").fetchone()
            row = connection.execute(
                "SELECT experiment_id, lifecycle_stage FROM experiments WHERE name = ?",
                (experiment,),
            ).fetchone()
    except (sqlite3.Error, TypeError):
        return Found()
    is_deleted = row is not None and row[1] == "deleted"
    return Found(schema=_schema(revision), deleted_id=str(row[0]) if is_deleted else None)


def _schema(revision: str) -> Schema:
    """How a revision compares with those that the installed MLflow migrates through."""
    spec = find_spec("mlflow")
    folders = [] if spec is None else [*(spec.submodule_search_locations or ())]
    files = [file for folder in folders for file in Path(folder, *_MIGRATIONS).glob("*.py")]
    known = [match for file in files for match in _REVISION.findall(file.read_text("utf-8"))]
    earlier = {name for kind, name in known if kind == "down_revision"}
    revisions = {name for kind, name in known if kind == "revision"}
    if not revisions:
        return Schema.FITS
    if revision not in revisions:
        return Schema.NEWER
    return Schema.OLDER if revision in earlier else Schema.FITS


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
