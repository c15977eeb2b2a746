"""Empty databases of libraries whose tables take long to make, kept in the user's cache."""

from __future__ import annotations

import logging
import os
import shutil
import sqlite3
from contextlib import closing
from importlib.metadata import version
from pathlib import Path
from typing import Any

from platformdirs import user_cache_path

_log = logging.getLogger(__name__)

_CACHE = "notebook-hpo"


class EmptyDatabase:
    """The SQLite file with which the installed version of a library begins.

    Args:
        library: the name of its distribution; it manages its tables with Alembic.
    """

    def __init__(self, library: str) -> None:
        self.file = user_cache_path(_CACHE) / f"{library}-{version(library)}.db"

    def is_kept(self) -> bool:
        """Whether there is a sound one, with the last thing that is written while it is made."""
        if not self.file.is_file():
            return False
        try:
            with closing(sqlite3.connect(f"{self.file.as_uri()}?mode=ro", uri=True)) as connection:
                is_whole = connection.execute("PRAGMA quick_check").fetchall() == [("ok",)]
                return is_whole and bool(revisions(connection))
        except sqlite3.Error:
            return False

    def keep(self, made: Path) -> None:
        """Keep a copy of a database that was just made, where the user's cache can be written."""
        if not self.file.is_absolute():  # this user has no home
            return
        beside = self.file.with_name(f".{self.file.name}.{os.getpid()}.part")
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(made, beside)
            os.replace(beside, self.file)
        except OSError as error:
            beside.unlink(missing_ok=True)
            _log.info("%s is not kept for the next study: %s", self.file.name, error)

    def has_same_tables(self, file: Path) -> bool:
        """Whether a database is of the same revision; False also where that is unknown."""
        if not self.is_kept():
            return False
        try:
            found, ours = (_revisions_in(one) for one in (file, self.file))
        except sqlite3.Error:
            return False
        return found == ours


def revisions(connection: sqlite3.Connection) -> list[Any]:
    """The revisions of a database's tables."""
    return connection.execute("SELECT * FROM alembic_version").fetchall()


def _revisions_in(file: Path) -> list[Any]:
    uri = f"{file.absolute().as_uri()}?mode=ro"
    with closing(sqlite3.connect(uri, uri=True, timeout=0)) as connection:
        return revisions(connection)
