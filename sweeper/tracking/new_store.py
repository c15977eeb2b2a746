"""Puts an MLflow store where there is none: a file that is complete as soon as it is there.

MLflow creates its tables in some 80 migrations, which take seconds, and can never open a file in
which a kill or a full disk interrupted them. So a store is made beside its place and renamed, and
an empty one of each version of MLflow is kept in the user's cache, to be copied from then on.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from filelock import FileLock

from ..study_folder.empty_databases import EmptyDatabase


def make_store(place: Path) -> None:
    """Create an empty store where there is none, in one atomic step.

    Raises:
        OSError: the file cannot be written.
    """
    place.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{place}.lock"):  # two processes that create it at once would break it, too
        if place.exists():
            return
        beside = place.with_name(f".{place.name}.part")
        _clear(beside)
        try:
            empty = EmptyDatabase("mlflow")
            if empty.is_kept():
                shutil.copyfile(empty.file, beside)
            else:
                _migrate(beside)
                empty.keep(beside)
            _replace(beside, place)
        except BaseException:
            _clear(beside)
            raise


def put_in_place(file: Path, place: Path) -> bool:
    """Move a store's file to a place where there is none.

    Returns:
        False if the place has a store already, which stays as it is: another study has created it.
    """
    with FileLock(f"{place}.lock"):  # the lock that `make_store` takes
        if place.exists():
            return False
        _replace(file, place)
        return True


def has_tables_of_installed(file: Path) -> bool:
    """Whether a store has the tables of the installed MLflow; False also where it is unknown."""
    return EmptyDatabase("mlflow").has_same_tables(file)


def _migrate(file: Path) -> None:
    from mlflow.store.tracking import DEFAULT_LOCAL_FILE_AND_ARTIFACT_PATH as ARTIFACTS
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    store: Any = SqlAlchemyStore(f"sqlite:///{file}", ARTIFACTS)  # type: ignore[no-untyped-call]
    store.engine.dispose()
    with closing(sqlite3.connect(file)) as connection, connection:
        # MLflow makes its default experiment again on opening, in the folder it is opened in.
        connection.execute("DELETE FROM experiments")


def _replace(file: Path, place: Path) -> None:
    _clear(place)  # including the log of a removed file: SQLite would replay it into this one
    os.replace(file, place)


def _clear(file: Path) -> None:
    for ending in ("", "-journal", "-wal", "-shm"):
        file.with_name(file.name + ending).unlink(missing_ok=True)
