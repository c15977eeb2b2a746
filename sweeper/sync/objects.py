"""Sends the contents of files as objects, each content once."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Set
from pathlib import Path

from .contents import hash_of_file, snapshot, stamp, stamp_of_database
from .manifest import Entry
from .store import Store

#: How often a file that changes while it is sent is tried again in one copy.
_TRIES = 3


class Objects:
    """Sends contents that the store does not have yet, as objects named by their hash.

    Args:
        prefix: the prefix of the study's names in the store.
    """

    def __init__(self, store: Store, prefix: str) -> None:
        self._store = store
        self._prefix = prefix
        self._stamps: dict[str, tuple[object, Entry]] = {}
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
            there = self._store.names(f"{self._prefix}objects")
            self._there |= {name.removeprefix(self._prefix) for name in there}
            self._is_tidy = True
        for name in self._there - names:
            check()
            self._store.remove(self._prefix + name)
            self._there.discard(name)

    def of_database(
        self, name: str, database: Path, *, again: bool, look: Callable[[Path], None] | None
    ) -> Entry:
        """Send the current state of an SQLite database.

        Args:
            again: whether to send a database that seems unchanged.
            look: called with a file that has the state which is sent.

        Raises:
            sqlite3.Error: the database cannot be read now.
            StoreError: the store is away.
        """
        now = stamp_of_database(database)
        known = self._stamps.get(name)
        if known is not None and known[0] == now and not again:
            return known[1]
        with tempfile.TemporaryDirectory(prefix="sync-") as folder:
            file = Path(folder, name)
            snapshot(database, file)
            if look is not None:
                look(file)
            entry = _entry(file)
            self._send(entry, file, stamp(file))
        self._stamps[name] = now, entry
        return entry

    def of_file(self, name: str, file: Path, *, before: Entry | None) -> Entry | None:
        """Send the current content of a file.

        Returns:
            the file's entry; `before`, its entry in the previous copy, where the file changes
            while it is read, or cannot be read.

        Raises:
            StoreError: the store is away.
        """
        known = self._stamps.get(name)
        if known is not None and known[0] == stamp(file):
            return known[1]
        for _ in range(_TRIES):
            try:
                with open(file, "rb") as opened:  # another file may take its name meanwhile
                    held = Path(f"/dev/fd/{opened.fileno()}")
                    now, entry = stamp(held), _entry(held)
                    if self._send(entry, held, now):
                        self._stamps[name] = now, entry
                        return entry
            except OSError:
                break  # the file is gone, or may not be read
        return before

    def _send(self, entry: Entry, file: Path, as_read: object) -> bool:
        """Make sure that there is an object for a hashed file; False if the file has changed."""
        if stamp(file) != as_read:
            return False
        if entry.object in self._there:
            return True
        name = self._prefix + entry.object
        self._store.put_file(name, file)
        if stamp(file) != as_read:
            self._store.remove(name)
            return False
        self._there.add(entry.object)
        return True


def _entry(file: Path) -> Entry:
    status = file.stat()
    return Entry(size=status.st_size, hash=hash_of_file(file), mtime_s=status.st_mtime)
