"""An MLflow store that is a file: made, brought back, moved, or newer than a study in it.

MLflow has no call for the last two, so this goes to its tables; a test compares with what MLflow
reads afterwards.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Collection
from contextlib import closing
from pathlib import Path
from typing import Any

from filelock import FileLock

_STUDY_ID = "sweeper.study_id"
_BUSY_TIMEOUT_S = 30
#: Where MLflow keeps the places of artifacts.
_PLACES = (
    ("experiments", "artifact_location"),
    ("runs", "artifact_uri"),
    ("logged_models", "artifact_location"),
)


def sqlite_file(url: str) -> Path | None:
    """The file of an SQLite URL; None for another."""
    if not url.startswith("sqlite"):
        return None
    path = url.partition(":///")[2].partition("?")[0]
    return Path(path).absolute() if path and path != ":memory:" else None


def make_store(place: Path) -> None:
    """Make an empty store where there is none: complete, or not at all.

    MLflow makes its tables in dozens of steps, and never again opens a file in which a kill or a
    full disk has come between two of them.
    """
    from mlflow.store.tracking import DEFAULT_LOCAL_FILE_AND_ARTIFACT_PATH as ARTIFACTS
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    place.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{place}.lock"):  # two that make it at once would leave it broken as well
        if place.exists():
            return
        beside = place.with_name(f".{place.name}.part")
        _clear(beside)
        try:
            store: Any = SqlAlchemyStore(f"sqlite:///{beside}", ARTIFACTS)  # type: ignore[no-untyped-call]
            store.engine.dispose()
            _replace(beside, place)
        except BaseException:
            _clear(beside)
            raise


def forget_connections(uri: str) -> None:
    """Have MLflow open a store anew.

    It keeps connections for the life of the process, also to a file that was removed meanwhile.
    """
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    kept = getattr(SqlAlchemyStore, "_engine_map", {}).get(uri)
    if kept is not None:
        kept.dispose()


def log_ahead(file: Path) -> None:
    """Have SQLite write ahead, for good: one wait for the disk a commit, and no reader locks."""
    with closing(sqlite3.connect(file, timeout=_BUSY_TIMEOUT_S)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")


def put_in_place(file: Path, place: Path) -> bool:
    """Put a store where there is none.

    Returns:
        whether there was none; one that another study has made is left as it is.
    """
    with FileLock(f"{place}.lock"):  # as whoever makes a new one
        if place.exists():
            return False
        _replace(file, place)
        return True


def _replace(file: Path, place: Path) -> None:
    _clear(place)  # the log of one that is no more, too: SQLite would play it into this
    os.replace(file, place)


def _clear(file: Path) -> None:
    for ending in ("", "-journal", "-wal", "-shm"):
        file.with_name(file.name + ending).unlink(missing_ok=True)


def move_artifacts(file: Path, *, before: str, now: str) -> None:
    """Have the artifacts below one URI be found below another."""
    with closing(sqlite3.connect(file)) as connection, connection:
        tables = {n for (n,) in connection.execute("SELECT name FROM sqlite_master")}
        for table, column in _PLACES:
            if table in tables:
                connection.execute(
                    f"UPDATE {table} SET {column} = ? || substr({column}, ?) "
                    f"WHERE substr({column}, 1, ?) = ?",
                    (f"{now}/", len(before) + 2, len(before) + 1, f"{before}/"),
                )


def drop_unknown_runs(file: Path, *, study_id: str, known: Collection[str]) -> None:
    """Take away the runs of trials that the study does not have: others will get their numbers.

    A store that several studies share may be newer than the copy that one of them is brought back
    from.
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
