"""Restores and moves an MLflow store that is an SQLite file.

MLflow has no call that moves artifacts or drops runs for good, so this module works on MLflow's
tables; a test compares the result with what MLflow reads afterwards.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection
from contextlib import closing
from pathlib import Path

_STUDY_ID = "sweeper.study_id"
_BUSY_TIMEOUT_S = 30
#: The tables and columns in which MLflow stores URIs of artifacts.
_URI_COLUMNS = (
    ("experiments", "artifact_location"),
    ("runs", "artifact_uri"),
    ("logged_models", "artifact_location"),
)


def sqlite_file(url: str) -> Path | None:
    """The file of an SQLite URL; None for any other URL."""
    if not url.startswith("sqlite"):
        return None
    path = url.partition(":///")[2].partition("?")[0]
    return Path(path).absolute() if path and path != ":memory:" else None


def forget_connections(uri: str) -> None:
    """Close MLflow's cached connections to a store.

    MLflow keeps connections for the life of the process, even to a file that was removed.
    """
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    cached = getattr(SqlAlchemyStore, "_engine_map", {}).get(uri)
    if cached is not None:
        cached.dispose()


def is_deleted(file: Path, experiment: str) -> bool:
    """Whether a store has an experiment of this name that was deleted in MLflow."""
    with closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True)) as connection:
        found = connection.execute(
            "SELECT 1 FROM experiments WHERE name = ? AND lifecycle_stage = 'deleted'",
            (experiment,),
        )
        return found.fetchone() is not None


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


def drop_unknown_runs(file: Path, *, study_id: str, known: Collection[str]) -> None:
    """Mark the runs of trials as deleted that a restored study does not have.

    A store that several studies share may be newer than the copy from which one of them is
    restored. Other trials will get the numbers of the unknown ones.

    Args:
        known: the run ids of the study's trials.
    """
    with closing(sqlite3.connect(file, timeout=_BUSY_TIMEOUT_S)) as connection, connection:
        runs = connection.execute(
            "SELECT runs.run_uuid, runs.name FROM runs JOIN tags ON tags.run_uuid = runs.run_uuid "
            "WHERE tags.key = ? AND tags.value = ?",
            (_STUDY_ID, study_id),
        ).fetchall()
        unknown = [(run,) for run, name in runs if name not in known]
        connection.executemany(
            "UPDATE runs SET lifecycle_stage = 'deleted' WHERE run_uuid = ?", unknown
        )
