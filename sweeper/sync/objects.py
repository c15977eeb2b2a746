"""Sends the contents of files as objects, each content once."""

from __future__ import annotations

import hashlib
import shutil
import sqlite3
from collections.abc import Callable, Collection, Set
from contextlib import closing
from pathlib import Path

from ..files import make_private_folder
from .manifest import Entry
from .store import Store


class Objects:
    """Sends contents that the store does not have yet, as objects named by their hash.

    Args:
        passing: a folder that is made while a database is sent, for its state.
    """

    def __init__(self, store: Store, *, passing: Path) -> None:
        self._store, self._passing = store, passing
        self._sent: dict[str, tuple[object, Entry]] = {}
        self._there: set[str] = set()
        self._is_tidy = False

    def know(self, names: Collection[str]) -> None:
        """Note objects that a manifest names, and that therefore exist in the store."""
        self._there.update(names)

    def keep(self, names: Set[str], *, check: Callable[[], None]) -> None:
        """Remove all objects but these.

        Args:
            check: called before each removal; raises when another process holds the copy by now,
                because that process may have sent objects for its next manifest.
        """
        if not self._is_tidy:  # a killed sweep may have sent objects that no manifest names
            self._there.update(self._store.names("objects"))
            self._is_tidy = True
        for name in self._there - names:
            check()
            self._store.remove(name)
            self._there.discard(name)

    def of_database(self, database: Path, look: Callable[[Path], None]) -> Entry:
        """Send the current state of an SQLite database.

        Args:
            look: called with a file that has the state which is sent.

        Raises:
            sqlite3.Error: the database cannot be read now.
            StoreError: the store is away.
        """
        shutil.rmtree(self._passing, ignore_errors=True)  # of a sweep that was killed
        make_private_folder(self._passing)
        try:
            file = self._passing / database.name
            snapshot(database, file)
            look(file)
            entry = Entry(hash=hash_of_file(file), mtime_s=database.stat().st_mtime)
            self._send(entry, file, _stamp(file))
        finally:
            shutil.rmtree(self._passing, ignore_errors=True)
        return entry

    def of_file(self, name: str, file: Path) -> Entry | None:
        """Send the current content of a file; None where it changes meanwhile or cannot be read.

        Args:
            name: in the copy.

        Raises:
            StoreError: the store is away.
        """
        try:
            with open(file, "rb") as opened:  # another file may take its name meanwhile
                held = Path(f"/dev/fd/{opened.fileno()}")
                now = _stamp(held)
                if (known := self._sent.get(name)) is not None and known[0] == now:
                    return known[1]
                entry = Entry(hash=hash_of_file(held), mtime_s=held.stat().st_mtime)
                if not self._send(entry, held, now):
                    return None
        except OSError:
            return None
        self._sent[name] = now, entry
        return entry

    def _send(self, entry: Entry, file: Path, as_read: object) -> bool:
        """Make sure that there is an object for a hashed file; False if the file has changed."""
        if _stamp(file) != as_read:
            return False
        if entry.object in self._there:
            return True
        self._store.put_file(entry.object, file)
        if _stamp(file) != as_read:
            self._store.remove(entry.object)
            return False
        self._there.add(entry.object)
        return True


def snapshot(database: Path, target: Path) -> None:
    """Write a consistent state of a database that is in use to another file.

    Raises:
        sqlite3.Error: the database cannot be read now.
    """
    uri = f"{database.absolute().as_uri()}?mode=ro"
    with (
        closing(sqlite3.connect(uri, uri=True, timeout=30)) as source,
        closing(sqlite3.connect(target)) as copy,
    ):
        source.backup(copy)


def hash_of_file(file: Path) -> str:
    """The hash that names the object with a file's content."""
    with open(file, "rb") as opened:
        return hashlib.file_digest(opened, "blake2b").hexdigest()


def _stamp(file: Path) -> tuple[int, ...]:
    """A value that changes whenever the file changes."""
    status = file.stat()
    return status.st_ino, status.st_size, status.st_mtime_ns
