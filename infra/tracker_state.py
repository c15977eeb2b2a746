#!/usr/bin/env python3
"""Save the SQLite file of the tracker to an object storage, and restore it on a new machine.

    tracker_state.py restore mlflow.db s3://bucket/tracker     # before the MLflow server starts
    tracker_state.py watch   mlflow.db s3://bucket/tracker     # while it runs, every minute
    tracker_state.py save    mlflow.db s3://bucket/tracker     # before the machine is removed

The tracker is the MLflow server of all sweeps. The copy of its file is one object that is replaced
atomically: if a save is interrupted, the previous copy is still complete. One tracker owns the
copy. A tracker that restores the copy becomes its owner. If the previous owner still runs, it can
no longer save.
"""

from __future__ import annotations

import argparse
import gzip
import os
import shutil
import signal
import sqlite3
import sys
import threading
import time
import uuid
from contextlib import closing
from pathlib import Path

import fsspec


class StateError(Exception):
    """A problem that the person who runs the tracker has to solve, such as two trackers at once."""


class Copy:
    """The copy in the object storage, and the name of the tracker that owns it.

    Args:
        url: URL, for fsspec, of a folder that is used for this copy only.
    """

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self._fs, self._root = fsspec.core.url_to_fs(self.url)

    def owner(self) -> str | None:
        """Return the name of the tracker that owns the copy. None if there is no owner.

        Raises:
            Exception: The storage is unavailable. Each of fsspec's storages has its own exceptions.
        """
        self._fs.invalidate_cache()
        try:
            return bytes(self._fs.cat_file(f"{self._root}/owner")).decode()
        except FileNotFoundError:
            return None

    def take(self, tracker: str) -> None:
        """Make a tracker the owner of the copy.

        Args:
            tracker: Name of the tracker.
        """
        self._fs.makedirs(self._root, exist_ok=True)
        self._fs.pipe_file(f"{self._root}/owner", tracker.encode())

    def put(self, file: Path) -> None:
        """Replace the copy by a file, in one atomic step."""
        # The URL may be a local folder, where only a rename is atomic. So the file is first
        # uploaded under another name.
        self._fs.put_file(str(file), f"{self._root}/new.db.gz")
        self._fs.mv(f"{self._root}/new.db.gz", f"{self._root}/mlflow.db.gz")

    def get(self, file: Path) -> bool:
        """Download the copy to a file. Return False if there is no copy."""
        try:
            self._fs.get_file(f"{self._root}/mlflow.db.gz", str(file))
        except FileNotFoundError:
            return False
        return True


def restore(db: Path, copy: Copy) -> str:
    """Restore the database from the copy, unless this machine has a database already.

    Args:
        db: SQLite file of the MLflow server.
        copy: The copy.

    Returns:
        A message that says what was done.

    Raises:
        StateError: This machine has a database, and another tracker owns the copy.
    """
    db.parent.mkdir(parents=True, exist_ok=True)
    mark, owner = _mark(db), copy.owner()
    if db.exists():
        if owner is None:
            _take(db, copy)
        if owner is None or (mark.exists() and owner == mark.read_text()):
            return f"{db} is on this machine already, and the tracker continues with it"
        raise StateError(
            f"another tracker has saved its own database to {copy.url}, so {db} is not used; move "
            f"{db.name} away to continue with that copy, or use another URL"
        )
    packed, unpacked = _beside(db, "packed"), _beside(db, "restored")
    if owner is None or not copy.get(packed):
        _take(db, copy)
        return f"no copy in {copy.url}: a new tracker begins"
    with gzip.open(packed, "rb") as source, open(unpacked, "wb") as target:
        shutil.copyfileobj(source, target, 1 << 20)
    packed.unlink()
    _take(db, copy)
    os.replace(unpacked, db)
    return f"brought back the copy in {copy.url} ({db.stat().st_size:,} bytes)"


def save(db: Path, copy: Copy) -> None:
    """Save a consistent copy of a database that may be in use.

    Args:
        db: SQLite file of the MLflow server.
        copy: The copy to replace.

    Raises:
        StateError: There is no database, it is damaged, or another tracker owns the copy.
    """
    if not db.exists():
        raise StateError(f"there is no {db}; `restore` comes first, then the MLflow server")
    if not _mark(db).exists() or copy.owner() != _mark(db).read_text():
        raise StateError(
            f"another tracker has taken over {copy.url}; this one saves no more. Shut it down"
        )
    plain, packed = _beside(db, "saving"), _beside(db, "packed")
    plain.unlink(missing_ok=True)
    opened = sqlite3.connect(f"{db.as_uri()}?mode=ro", uri=True, timeout=60)
    with closing(opened) as source, closing(sqlite3.connect(plain)) as target:
        source.backup(target)
        (verdict,) = target.execute("PRAGMA quick_check").fetchone()
    if verdict != "ok":
        raise StateError(f"{db} is damaged ({verdict}); it is not saved over the copy")
    with open(plain, "rb") as content, gzip.open(packed, "wb", compresslevel=3) as into:
        shutil.copyfileobj(content, into, 1 << 20)
    copy.put(packed)
    plain.unlink()
    packed.unlink()


def watch(db: Path, copy: Copy, *, every_s: float, idle_s: float) -> str:
    """Save the database whenever it has changed. End at SIGTERM, or after a time without a change.

    Args:
        db: SQLite file of the MLflow server.
        copy: The copy to replace.
        every_s: Seconds between two checks whether the database has changed.
        idle_s: Seconds without a change after which the function returns.

    Returns:
        A message that says why it ended. All changes are saved by then.
    """
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _signal, _frame: ended.set())
    saved_version, changed_at_s = (0.0, 0), time.monotonic()
    while True:
        is_last = ended.wait(every_s)
        if db.exists() and (version := _version(db)) != saved_version:
            changed_at_s = time.monotonic()
            try:
                save(db, copy)
                saved_version = version
            except StateError:
                raise
            except Exception as error:
                if is_last:
                    raise
                say(f"not saved ({error}); it is tried again in {every_s:g} s")
        if is_last:
            return "ended after a last save"
        if time.monotonic() - changed_at_s >= idle_s:
            return f"nothing has been written for {idle_s / 3600:.1f} hours"


def _version(db: Path) -> tuple[float, int]:
    """Return the newest modification time and the total size of the database and its log.

    One of them changes with each write.
    """
    files = [file for file in (db, db.with_name(f"{db.name}-wal")) if file.exists()]
    return max(f.stat().st_mtime for f in files), sum(f.stat().st_size for f in files)


def _take(db: Path, copy: Copy) -> None:
    beside = _beside(db, "mark")
    beside.write_text(tracker := uuid.uuid4().hex)
    os.replace(beside, _mark(db))
    copy.take(tracker)  # The last step: if a kill prevents it, the next `restore` begins again.


def _mark(db: Path) -> Path:
    return db.with_name(f"{db.name}.tracker")


def _beside(db: Path, what: str) -> Path:
    return db.with_name(f".{db.name}.{what}")


def say(text: str) -> None:
    """Print one line with the time to stderr, without buffering."""
    print(f"[tracker {time.strftime('%H:%M:%S')}] {text}", file=sys.stderr, flush=True)


def main() -> int:
    """Run the command line."""
    about = (__doc__ or "").split("\n", maxsplit=1)[0]
    parser = argparse.ArgumentParser(prog="tracker_state.py", description=about)
    parser.add_argument("command", choices=["restore", "save", "watch"])
    parser.add_argument("db", type=Path, help="the SQLite file of the MLflow server")
    parser.add_argument("url", help="a folder in an object storage, for this tracker alone")
    parser.add_argument("--every", type=float, default=60.0, metavar="SECONDS")
    parser.add_argument("--idle-hours", type=float, default=72.0, help="end if nothing changes")
    options = parser.parse_args()
    try:
        copy, db = Copy(options.url), options.db.absolute()
        if options.command == "restore":
            say(restore(db, copy))
        elif options.command == "save":
            save(db, copy)
        else:
            say(watch(db, copy, every_s=options.every, idle_s=options.idle_hours * 3600))
    except StateError as error:
        print(f"tracker_state.py: {error}", file=sys.stderr)
        return 2
    except Exception as error:  # noqa: BLE001  Each storage has exceptions of its own.
        lines = str(error).splitlines() or [type(error).__name__]
        print(f"tracker_state.py: {options.url}: {lines[0]}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
