"""Puts an MLflow store where there is none: a file that is complete as soon as it is there.

MLflow creates its tables in some 80 migrations, and can never open a file in which a kill or a full
disk interrupted them. So a store is made beside its place and renamed. An empty one of the
installed version is kept in the user's cache, to be copied from then on: that spares the 0.8 s of
the migrations, and 1.5 s of importing MLflow where a file is only compared with it.
"""

from __future__ import annotations

import logging
import os
import shutil
import sqlite3
from contextlib import closing
from importlib.metadata import version
from pathlib import Path
from typing import Any

from filelock import FileLock
from platformdirs import user_cache_path

_log = logging.getLogger(__name__)


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
            kept = _kept()
            if _revision(kept, is_checked=True) is not None:
                shutil.copyfile(kept, beside)
            else:
                _migrate(beside)
                _keep(beside, kept)
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
    ours = _revision(_kept(), is_checked=True)
    return ours is not None and _revision(file) == ours


def _kept() -> Path:
    """Where the installed version's empty store is kept; relative for a user without a home."""
    return user_cache_path("notebook-hpo") / f"mlflow-{version('mlflow')}.db"


def _keep(made: Path, kept: Path) -> None:
    """Keep a copy of a store that was just made, where the user's cache can be written."""
    if not kept.is_absolute():
        return
    beside = kept.with_name(f".{kept.name}.{os.getpid()}.part")
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(made, beside)
        os.replace(beside, kept)
    except OSError as error:
        beside.unlink(missing_ok=True)
        _log.info("%s is not kept for the next study: %s", kept.name, error)


def _revision(file: Path, *, is_checked: bool = False) -> Any:
    """The revision of a store's tables; None where there is none, or another process writes.

    Args:
        is_checked: whether all pages are checked for damage first.
    """
    uri = f"{file.absolute().as_uri()}?mode=ro"
    try:
        with closing(sqlite3.connect(uri, uri=True, timeout=0)) as connection:
            if is_checked and connection.execute("PRAGMA quick_check").fetchall() != [("ok",)]:
                return None
            return connection.execute("SELECT version_num FROM alembic_version").fetchone()
    except sqlite3.Error:
        return None


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
