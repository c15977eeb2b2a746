"""Send the contents of files to the store as objects. Equal contents are sent only once."""

from __future__ import annotations

import hashlib
import shutil
import sqlite3
from collections.abc import Callable, Set
from contextlib import closing, suppress
from pathlib import Path

from ..object_storage.store import Store, StoreError
from .manifest import Entry


class Objects:
    """Sends the contents of files as objects, unless the store has them.

    Objects are named by the hash of their content.

    Args:
        store: Store with the copy.
        folder: Folder for snapshots of databases, in the study's folder. It exists only while a
            snapshot is sent.
    """

    def __init__(self, store: Store, *, folder: Path) -> None:
        self._store = store
        self._folder = folder
        self._hashed: dict[str, tuple[object, Entry]] = {}
        self._there: set[str] = set()

    def look(self) -> Set[str]:
        """Return the names of the objects that the store has now.

        Raises:
            StoreError: The store is unavailable.
        """
        self._there = {*self._store.names("objects")}
        return frozenset(self._there)

    def missing(self, names: Set[str]) -> Set[str]:
        """Return the names for which the store has no object.

        The answer comes from the last `look` and the calls since then.
        """
        return names - self._there

    def keep(self, names: Set[str], *, check: Callable[[], None]) -> None:
        """Remove all objects except those with the given names.

        Args:
            names: Names of the objects to keep.
            check: Called before each removal. It raises an error if another process holds the lease
                of the copy, because that process may have sent objects for its next manifest.
        """
        for name in self._there - names:
            check()
            # Forget the object before removing it, because a call that fails may still have removed
            # it.
            self._there.discard(name)
            self._store.remove(name)

    def of_database(self, database: Path, look: Callable[[Path], None]) -> Entry:
        """Send a consistent snapshot of an SQLite database. Return its entry for the manifest.

        Args:
            database: File of the database.
            look: Called with the file of the snapshot, before the snapshot is sent and removed.

        Raises:
            sqlite3.Error: The database cannot be read now.
            StoreError: The store is unavailable.
        """
        self._remove_snapshots()  # A killed sweep may have left some.
        self._folder.mkdir(mode=0o700, exist_ok=True)
        file = self._folder / database.name
        try:
            snapshot(database, file)
            look(file)
            entry = Entry.of(database, hash=hash_of_file(file))
            self._send(entry, file, _stamp(file))
        finally:
            self._remove_snapshots()
        return entry

    def _remove_snapshots(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def of_file(self, name: str, file: Path) -> Entry | None:
        """Send the current content of a file.

        Args:
            name: Name of the file in the copy.
            file: Path of the file.

        Returns:
            Hash and time of the file. None if the file changes meanwhile, or cannot be read.

        Raises:
            StoreError: The store is unavailable.
        """
        try:
            # Read the file by its descriptor, because another file may get this path meanwhile.
            with open(file, "rb") as opened:
                held = Path(f"/dev/fd/{opened.fileno()}")
                now = _stamp(held)
                known_stamp, entry = self._hashed.get(name, (None, None))
                if entry is None or known_stamp != now:
                    entry = Entry.of(held, hash=hash_of_file(held))
                # Send the object even if the hash is known, because the store may have lost the
                # object.
                if not self._send(entry, held, now):
                    return None
        except OSError:
            return None
        self._hashed[name] = now, entry
        return entry

    def _send(self, entry: Entry, file: Path, as_read: object) -> bool:
        """Send a file's content unless the store has it. Return False if the file has changed.

        Args:
            entry: Hash of the content and time of the file.
            file: The file.
            as_read: Result of `_stamp` for the file when it was hashed.
        """
        if _stamp(file) != as_read:
            return False
        if entry.object in self._there:
            return True
        self._store.put_file(entry.object, file)
        if _stamp(file) != as_read:
            # The object may have content that does not fit the hash in its name.
            with suppress(StoreError):  # The credentials may allow writing, but not removing.
                self._store.remove(entry.object)
            return False
        self._there.add(entry.object)
        return True


def snapshot(database: Path, target: Path) -> None:
    """Write a consistent snapshot of a database to another file. The database may be in use.

    Raises:
        sqlite3.Error: The database cannot be read now.
    """
    uri = f"{database.absolute().as_uri()}?mode=ro"
    with (
        closing(sqlite3.connect(uri, uri=True, timeout=30)) as source,
        closing(sqlite3.connect(target)) as copy,
    ):
        source.backup(copy)


def hash_of_file(file: Path) -> str:
    """Return the hash of a file's content, which names its object."""
    with open(file, "rb") as opened:
        return hashlib.file_digest(opened, "blake2b").hexdigest()


def _stamp(file: Path) -> tuple[int, ...]:
    """Return inode, size and time of the last change, which show whether a file has changed."""
    status = file.stat()
    return status.st_ino, status.st_size, status.st_mtime_ns
