"""An embedded MLflow store that lies elsewhere now, or knows more of a study than the study does.

MLflow has no call for either, so this goes to its tables; a test compares with what MLflow reads
afterwards.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Collection
from contextlib import closing
from pathlib import Path

from filelock import FileLock

_STUDY_ID = "sweeper.study_id"
_BUSY_TIMEOUT_S = 30
#: Where MLflow keeps the places of artifacts.
_PLACES = (
    ("experiments", "artifact_location"),
    ("runs", "artifact_uri"),
    ("logged_models", "artifact_location"),
)


def put_in_place(file: Path, place: Path) -> bool:
    """Put a store where there is none.

    Returns:
        whether there was none; one that another study has made is left as it is.
    """
    with FileLock(f"{place}.lock"):  # as whoever makes a new one
        if place.exists():
            return False
        for ending in ("-wal", "-shm"):  # of one that is no more: SQLite would play it into this
            place.with_name(place.name + ending).unlink(missing_ok=True)
        os.replace(file, place)
        return True


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
