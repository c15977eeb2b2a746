"""An MLflow store that is an SQLite file: its path, its log, its move.

MLflow has no call that moves artifacts, so `move_artifacts` works on MLflow's tables; a test
compares the result with what MLflow reads afterwards.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

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
