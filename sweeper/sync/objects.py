"""Sends the contents of files as objects, each content once."""

from __future__ import annotations

import glob
import hashlib
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Set
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from ..files import is_private_folder
from .manifest import Entry
from .store import Store


class Objects:
    """Sends contents that the store does not have yet, as objects named by their hash.

    Args:
        mark: of the study's folder; it names the temporary folders for states of databases.
    """

    def __init__(self, store: Store, *, mark: str) -> None:
        self._store = store
        self._prefix = f"sync-{mark}"
        self._hashed: dict[str, tuple[object, Entry]] = {}
        self._there: set[str] = set()

    def look(self) -> Set[str]:
        """List the objects that the store has now.

        Raises:
            StoreError: the store is away.
        """
        self._there = {*self._store.names("objects")}
        return frozenset(self._there)

    def missing(self, names: Set[str]) -> Set[str]:
        """Return those names of which the store has no object, as far as is known here."""
        return names - self._there

    def keep(self, names: Set[str], *, check: Callable[[], None]) -> None:
        """Remove all objects but these.

        Args:
            check: called before each removal; raises when another process holds the copy by now,
                because that process may have sent objects for its next manifest.
        """
        for name in self._there - names:
            check()
            # First: a call that fails may have removed the object all the same.
            self._there.discard(name)
            self._store.remove(name)

    def of_database(self, database: Path, look: Callable[[Path], None]) -> Entry:
        """Send the current state of an SQLite database.

        Args:
            look: called with a file that has the state which is sent.

        Raises:
            sqlite3.Error: the database cannot be read now.
            StoreError: the store is away.
        """
        with self._temporary_folder() as folder:
            file = folder / database.name
            snapshot(database, file)
            look(file)
            entry = Entry(hash=hash_of_file(file), mtime_s=database.stat().st_mtime)
            self._send(entry, file, _stamp(file))
        return entry

    @contextmanager
    def _temporary_folder(self) -> Iterator[Path]:
        """Make a private folder under a name that nobody can know before; remove it at the end."""
        with tempfile.TemporaryDirectory(prefix=self._prefix, ignore_cleanup_errors=True) as folder:
            # A killed sweep of this study has left its own. Folders of other users are not ours.
            for left in Path(folder).parent.glob(f"{glob.escape(self._prefix)}*"):
                with suppress(OSError):
                    if left != Path(folder) and is_private_folder(left):
                        shutil.rmtree(left)
            yield Path(folder)

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
                known_stamp, entry = self._hashed.get(name, (None, None))
                if entry is None or known_stamp != now:
                    entry = Entry(hash=hash_of_file(held), mtime_s=held.stat().st_mtime)
                # Also where the hash is known: the object may have been removed since.
                if not self._send(entry, held, now):
                    return None
        except OSError:
            return None
        self._hashed[name] = now, entry
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
