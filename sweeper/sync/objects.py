"""The objects of a copy: the contents of its files, each sent once."""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Callable, Collection, Iterator, Set
from contextlib import contextmanager, suppress
from pathlib import Path

from ..notebook_api.sealed import is_sealed
from ..object_store import Store
from .contents import hash_of, hash_of_file, snapshot, stamp, stamp_of_database
from .manifest import Entry

#: Up to this size a file goes through memory, so that what is sent is what was hashed.
_SMALL_BYTES = 32_000_000
#: How often a file that changes under our hands is tried in one go.
_TRIES = 3


class Objects:
    """Sends what is not there yet. Objects are named by their content and never changed.

    Args:
        prefix: of the study's names in the store.
        aside: a folder of our own, on the same disk as the files; it need not be there.
    """

    def __init__(self, store: Store, prefix: str, *, aside: Path) -> None:
        self._store = store
        self._prefix = prefix
        self._aside = aside
        self._stamps: dict[str, tuple[object, Entry]] = {}
        self._there: set[str] = set()
        self._is_tidy = False

    def know(self, names: Collection[str]) -> None:
        """These are there, whole: a manifest names them."""
        self._there.update(names)

    def keep(self, names: Set[str], *, check: Callable[[], None]) -> None:
        """Remove all others.

        Args:
            check: raises when the copy is somebody else's by now, who may have sent objects for a
                manifest to come; called before each is removed.
        """
        if not self._is_tidy:  # what a sweep that was killed had put there for a manifest to come
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
        """An SQLite database as it is now.

        Args:
            again: even if it seems not to have changed.
            look: called with the state of it that is sent.

        Raises:
            sqlite3.Error: it cannot be read now.
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
        """A file as it is now; as it was in the copy before, while it is being written.

        Raises:
            StoreError: the store is away.
        """
        known = self._stamps.get(name)
        if known is not None and known[0] == stamp(file):
            return known[1]
        with self._held(file) as held:
            for _ in range(_TRIES):
                now = stamp(held)
                if now is None:
                    return before
                try:
                    entry = _entry(held)
                    if self._send(entry, held, now):
                        self._stamps[name] = now, entry
                        return entry
                except OSError:
                    return before  # it is gone, or nobody may read it
        return before

    @contextmanager
    def _held(self, file: Path) -> Iterator[Path]:
        """A sealed file under a second name: it may be sent for longer than it is the newest."""
        if not is_sealed(file):
            yield file
            return
        held = self._aside / secrets.token_hex(8)
        try:
            self._aside.mkdir(exist_ok=True)
            os.link(file.resolve(), held)
        except OSError:  # the disk knows no second names, or the file is gone
            yield file
            return
        try:
            yield held
        finally:
            held.unlink(missing_ok=True)
            with suppress(OSError):
                self._aside.rmdir()

    def _send(self, entry: Entry, file: Path, as_read: object) -> bool:
        """See to it that there is an object for a file that was read; False if it has changed."""
        if stamp(file) != as_read:
            return False
        if entry.object in self._there:
            return True
        name = self._prefix + entry.object
        if entry.size <= _SMALL_BYTES:
            data = file.read_bytes()
            if hash_of(data) != entry.hash:
                return False  # it has changed once more
            self._store.put(name, data)
        else:
            self._store.put_file(name, file)
            if stamp(file) != as_read:
                self._store.remove(name)
                return False
        self._there.add(entry.object)
        return True


def is_large(file: Path) -> bool:
    """Whether it takes long to send."""
    try:
        return file.stat().st_size > _SMALL_BYTES
    except OSError:
        return False


def _entry(file: Path) -> Entry:
    status = file.stat()
    return Entry(size=status.st_size, hash=hash_of_file(file), mtime_s=status.st_mtime)
