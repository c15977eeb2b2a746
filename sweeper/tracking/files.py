"""Create, check and move an MLflow store that is an SQLite file.

MLflow creates its tables in about 80 migrations. If a kill or a full disk interrupts them, MLflow
can never open the file. So a store is made under a temporary name and then renamed.

An empty store of the installed version is kept in the user's cache and copied from then on, which
saves 0.8 s. MLflow has no call that moves artifacts, so `move_artifacts` changes its tables. A test
compares the result with what MLflow reads afterwards.
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

from ..files import PRIVATE, copy_atomically, remove_database
from ..settings.addresses import Address

_BUSY_TIMEOUT_S = 30
#: Path of the folder of database migrations in the package `mlflow`. Pattern of two lines in each
#: migration's file: the id of its revision, and the id of the revision before it.
_MIGRATIONS = ("store", "db_migrations", "versions")
_REVISION = re.compile(r"^(revision|down_revision) = [\"'](\w+)[\"']", re.MULTILINE)
#: Tables and columns in which MLflow stores URIs of artifacts.
_URI_COLUMNS = (
    ("experiments", "artifact_location"),
    ("runs", "artifact_uri"),
    ("logged_models", "artifact_location"),
)


def forget_connections(uri: str) -> None:
    """Close MLflow's connections to a store, which it otherwise keeps until the process ends."""
    engine = _engine_of(uri)
    if engine is not None:
        engine.dispose()


def wait_for_disk_once(uri: str) -> None:
    """Let MLflow's commits in this process return before they are on the disk.

    Writing a trial takes six commits or more, each of which would wait for the disk. This function
    itself does not wait: call `settle` after the last commit. If the machine crashes before, the
    SQLite file stays valid. It may lack the last trials, which the study's next sweep writes again.
    """
    from sqlalchemy import event

    engine = _engine_of(uri)
    if engine is not None:
        less = "PRAGMA synchronous=NORMAL"
        event.listen(engine, "connect", lambda connection, _: connection.execute(less))
        engine.dispose()  # Close open connections, which lack this setting.


def settle(file: Path) -> None:
    """Wait until all commits to a store are on the disk."""
    with closing(sqlite3.connect(file, timeout=_BUSY_TIMEOUT_S)) as connection:
        connection.execute("PRAGMA wal_checkpoint")


def _engine_of(uri: str) -> Any:
    """Return the SQLAlchemy engine with which MLflow has opened a store in this process.

    Returns:
        None if MLflow has not opened the store, or if its version keeps engines elsewhere.
    """
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    return getattr(SqlAlchemyStore, "_engine_map", {}).get(uri)


def log_ahead(file: Path) -> None:
    """Turn on SQLite's write-ahead log.

    Then a commit waits for the disk only once, and readers and writers do not block each other.
    """
    with closing(sqlite3.connect(file, timeout=_BUSY_TIMEOUT_S)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")


class Schema(StrEnum):
    """How the tables of a store compare with those of the installed MLflow."""

    FITS = "fits"
    OLDER = "older"
    NEWER = "newer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The state of a store in a file, read without MLflow.

    Attributes:
        schema: Whether its tables fit the installed MLflow.
        deleted_id: MLflow's id of the study's experiment, if it was deleted in MLflow. Otherwise
            None.
    """

    schema: Schema = Schema.FITS
    deleted_id: str | None = None


def look_into(file: Path, experiment: str) -> Found:
    """Return the state of a store in a file, without MLflow, whose import takes seconds.

    For a file that is missing, locked or not a store, the state is that of a usable store: MLflow
    finds the problem when it opens the file.

    Args:
        file: File of the store.
        experiment: Name of the study's experiment.
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
    """Return how a store compares with the migrations of the installed MLflow.

    If these migrations cannot be read, the store is assumed to fit.

    Args:
        revision: Id of the last migration that was applied to the store.
    """
    spec = find_spec("mlflow")
    if spec is None or spec.origin is None:
        return Schema.FITS
    revisions: set[str] = set()
    earlier: set[str] = set()
    for file in Path(spec.origin).parent.joinpath(*_MIGRATIONS).glob("*.py"):
        for kind, name in _REVISION.findall(file.read_text("utf-8")):
            (revisions if kind == "revision" else earlier).add(name)
    if not revisions:
        return Schema.FITS
    if revision not in revisions:
        return Schema.NEWER
    return Schema.OLDER if revision in earlier else Schema.FITS


def move_artifacts(file: Path, *, before: str, now: str) -> None:
    """Change the artifact URIs in a store after their folder was moved.

    Args:
        file: File of the store.
        before: URI of the old folder.
        now: URI of the new folder.
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
    """Create an empty store in one atomic step, unless the file exists.

    Args:
        place: Path of the store's SQLite file.

    Raises:
        OSError: The file cannot be written.
    """
    place.parent.mkdir(parents=True, exist_ok=True)
    # Two processes that create the store at the same time would damage it.
    with FileLock(f"{place}.lock", mode=PRIVATE):
        if place.exists():
            return
        beside, kept = place.with_name(f".{place.name}.part"), _kept()
        remove_database(beside)
        try:
            if kept.exists():
                shutil.copyfile(kept, beside)
            else:
                _migrate(beside)
                with suppress(OSError):  # The user's cache may be read-only.
                    # Without a home folder, the path is relative, and no store is kept.
                    if kept.is_absolute():
                        kept.parent.mkdir(parents=True, exist_ok=True)
                        copy_atomically(beside, kept)
            replace_database(beside, place)
        except BaseException:
            remove_database(beside)
            raise


def put_in_place(file: Path, place: Path) -> None:
    """Move a store's file to its final path. Do nothing if another study has a store there.

    Args:
        file: The store's SQLite file.
        place: Its final path.
    """
    with FileLock(f"{place}.lock", mode=PRIVATE):  # `make_store` holds the same lock.
        if not place.exists():
            replace_database(file, place)


def _kept() -> Path:
    """Return the path in the user's cache of the empty store that `make_store` copies."""
    return user_cache_path("notebook-hpo") / f"mlflow-{version('mlflow')}.db"


def _migrate(file: Path) -> None:
    from mlflow.store.tracking import DEFAULT_LOCAL_FILE_AND_ARTIFACT_PATH as ARTIFACTS
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    store: Any = SqlAlchemyStore(Address.of_file(file).full, ARTIFACTS)  # type: ignore[no-untyped-call]
    store.engine.dispose()
    with closing(sqlite3.connect(file)) as connection, connection:
        # MLflow has created its default experiment, whose artifacts belong in the current folder.
        # Remove this experiment, because the store is copied to other folders.
        connection.execute("DELETE FROM experiments")


def replace_database(file: Path, place: Path) -> None:
    """Move an SQLite file to a path, and replace the database there, if any.

    Only this user can read and write the moved file.
    """
    file.chmod(PRIVATE)
    remove_database(place)
    os.replace(file, place)
