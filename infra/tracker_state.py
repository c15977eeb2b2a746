#!/usr/bin/env python3
"""Saves the tracker's SQLite file to an object storage, and brings it back on a new machine.

    tracker_state.py restore mlflow.db s3://bucket/tracker     # before the MLflow server starts
    tracker_state.py watch   mlflow.db s3://bucket/tracker     # while it runs, every minute
    tracker_state.py save    mlflow.db s3://bucket/tracker     # before the machine goes

A copy is an object named by its content; `latest.json`, written last, names the newest one. So a
save that was cut off leaves the complete one before it. One tracker owns the copy: whoever brings
it back takes it over, and an older tracker that is still alive saves no more. Any URL that fsspec
knows will do.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import os
import shutil
import signal
import socket
import sqlite3
import sys
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import fsspec

#: How many copies are kept, the newest included.
KEPT = 3


class StateError(Exception):
    """Something that whoever runs the tracker has to decide."""


class Copy:
    """The copy in the object storage.

    Args:
        url: of a folder that belongs to this tracker alone.
    """

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self._fs, self._root = fsspec.core.url_to_fs(self.url)
        self._is_local = "file" in (
            (self._fs.protocol,) if isinstance(self._fs.protocol, str) else self._fs.protocol
        )

    def latest(self) -> Mapping[str, Any] | None:
        """What the newest copy is; None where there is none. A store that is away raises."""
        self._fs.invalidate_cache()
        try:
            content = self._fs.cat_file(f"{self._root}/latest.json")
        except FileNotFoundError:
            return None
        try:
            latest = json.loads(content)
            if {"name", "sha256", "tracker", "host", "saved_at", "kept"} <= latest.keys():
                return dict(latest)
        except (ValueError, AttributeError):
            pass
        raise StateError(
            f"{self.url}/latest.json is damaged; the copies beside it are gzipped SQLite files: "
            "bring one back by hand, and remove latest.json"
        )

    def point_to(self, latest: Mapping[str, Any]) -> None:
        """Make a copy the newest one, in one step."""
        self._put(f"{self._root}/latest.json", json.dumps(latest, indent=1).encode())

    def put(self, name: str, file: Path) -> None:
        """Upload a file."""
        if self._is_local:
            self._put(f"{self._root}/{name}", file.read_bytes())
        else:
            self._fs.put_file(str(file), f"{self._root}/{name}")

    def get(self, name: str, file: Path) -> None:
        """Download a file."""
        self._fs.get_file(f"{self._root}/{name}", str(file))

    def remove_all_but(self, names: Sequence[str]) -> None:
        """Remove older copies, and what a save that was cut off has left."""
        with suppress(OSError):
            for path in self._fs.ls(self._root, detail=False):
                name = path.rsplit("/", 1)[-1]
                if name.endswith(".db.gz") and name not in names:
                    self._fs.rm_file(path)

    def _put(self, path: str, content: bytes) -> None:
        if not self._is_local:  # an object storage replaces an object in one step
            self._fs.pipe_file(path, content)
            return
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        beside = target.with_name(f".{target.name}.{os.getpid()}")
        beside.write_bytes(content)
        os.replace(beside, target)


class Mark:
    """Which tracker a database belongs to, in a small file beside it.

    Attributes:
        tracker: its random id, the same in `latest.json` while it owns the copy.
        is_taken: False while the copy is being brought back, when the local file counts nothing.
    """

    def __init__(self, db: Path) -> None:
        self._file = db.with_name(f"{db.name}.tracker.json")
        self.tracker, self.is_taken = "", False
        with suppress(OSError, ValueError, KeyError, TypeError):
            content = json.loads(self._file.read_text("utf-8"))
            self.tracker, self.is_taken = str(content["tracker"]), bool(content["is_taken"])

    def write(self, tracker: str, *, is_taken: bool) -> None:
        """Keep it on the disk."""
        self.tracker, self.is_taken = tracker, is_taken
        beside = self._file.with_suffix(".new")
        beside.write_text(json.dumps({"tracker": tracker, "is_taken": is_taken}), "utf-8")
        os.replace(beside, self._file)


def restore(db: Path, copy: Copy) -> str:
    """Bring the newest copy back where this machine has no tracker yet.

    Returns:
        What was done, for people.

    Raises:
        StateError: the machine's own database is not the one that was copied last.
    """
    db.parent.mkdir(parents=True, exist_ok=True)
    mark, latest = Mark(db), copy.latest()
    if db.exists() and (mark.is_taken or not mark.tracker):
        if latest is None or latest["tracker"] == mark.tracker:
            mark.write(mark.tracker or uuid.uuid4().hex, is_taken=True)
            return f"{db} is this machine's own, and goes on"
        raise StateError(
            f"{db} is older than the copy in {copy.url}, which the tracker on {latest['host']} "
            f"saved at {latest['saved_at']}; move {db.name} away to go on with that copy, or use "
            "another URL"
        )
    if latest is None:
        mark.write(uuid.uuid4().hex, is_taken=True)
        return f"no copy in {copy.url}: a new tracker begins"
    tracker = uuid.uuid4().hex
    _download(db, copy, latest, mark, tracker)
    copy.point_to({**latest, "tracker": tracker, "host": socket.gethostname()})
    mark.write(tracker, is_taken=True)
    return f"brought back the copy of {latest['saved_at']} ({db.stat().st_size:,} bytes)"


def _download(db: Path, copy: Copy, latest: Mapping[str, Any], mark: Mark, tracker: str) -> None:
    with _beside(db, "restoring") as packed, _beside(db, "restored") as unpacked:
        copy.get(latest["name"], packed)
        with gzip.open(packed, "rb") as source, open(unpacked, "wb") as target:
            shutil.copyfileobj(source, target, 1 << 20)
        if _sha256(unpacked) != latest["sha256"]:
            raise StateError(
                f"{copy.url}/{latest['name']} is not what was saved; older copies: "
                f"{', '.join(latest['kept'][1:]) or 'none'}"
            )
        mark.write(tracker, is_taken=False)
        for suffix in ("-wal", "-shm", "-journal"):
            db.with_name(db.name + suffix).unlink(missing_ok=True)
        os.replace(unpacked, db)


def save(db: Path, copy: Copy) -> str | None:
    """Save a consistent copy of a database that may be in use.

    Returns:
        What was saved, for people; None where nothing has changed.

    Raises:
        StateError: there is no database, or another tracker has taken over.
    """
    if not db.exists():
        raise StateError(f"there is no {db}; `restore` comes first, then the MLflow server")
    mark, latest = Mark(db), copy.latest()
    if not mark.is_taken:
        raise StateError(f"{db} was never taken over from {copy.url}: run `restore` first")
    if latest is not None and latest["tracker"] != mark.tracker:
        raise StateError(
            f"the tracker on {latest['host']} has taken over {copy.url}; this one saves no more. "
            "Shut this machine down"
        )
    with _beside(db, "saving") as plain, _beside(db, "packed") as packed:
        _backup(db, plain)
        sha256 = _sha256(plain)
        if latest is not None and latest["sha256"] == sha256:
            return None
        with open(plain, "rb") as source, gzip.open(packed, "wb", compresslevel=3) as target:
            shutil.copyfileobj(source, target, 1 << 20)
        size = packed.stat().st_size
        name = f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{sha256[:16]}.db.gz"
        copy.put(name, packed)
    before = [] if latest is None else list(latest["kept"])
    kept = [name, *(n for n in before if n != name)]
    copy.point_to(
        {
            "name": name,
            "sha256": sha256,
            "tracker": mark.tracker,
            "host": socket.gethostname(),
            "saved_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "kept": kept[:KEPT],
        }
    )
    copy.remove_all_but(kept[:KEPT])
    return f"saved {name} ({size:,} bytes)"


def watch(db: Path, copy: Copy, *, every_s: float, idle_s: float | None) -> str:
    """Save whenever something has changed, until SIGTERM or until nothing has changed for long.

    Returns:
        Why it ended, after a last save.
    """
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _signal, _frame: ended.set())
    changed_at_s, complaint = time.monotonic(), ""
    while True:
        is_last = ended.wait(every_s)
        try:
            saved = save(db, copy) if db.exists() else None
            complaint = ""
        except StateError:
            raise
        except Exception as error:
            if is_last:
                raise
            line = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
            if line != complaint:
                say(f"not saved ({line}); it is tried again every {every_s:.0f} s")
            complaint = line
            continue
        if saved:
            changed_at_s = time.monotonic()
            say(saved)
        if is_last:
            return "ended after a last save"
        if idle_s is not None and time.monotonic() - changed_at_s >= idle_s:
            return f"nothing has been written for {idle_s / 3600:.1f} hours"


def _backup(db: Path, to: Path) -> None:
    """Copy a database as of one moment, in one go: writers wait until it is read."""
    opened = sqlite3.connect(f"{db.as_uri()}?mode=ro", uri=True, timeout=60)
    with closing(opened) as source, closing(sqlite3.connect(to)) as target:
        source.backup(target)
        (verdict,) = target.execute("PRAGMA quick_check").fetchone()
    if verdict != "ok":
        raise StateError(f"{db} is damaged ({verdict}); it is not saved over the copy")


def _sha256(file: Path) -> str:
    digest = hashlib.sha256()
    with open(file, "rb") as content:
        while block := content.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


@contextmanager
def _beside(db: Path, what: str) -> Iterator[Path]:
    """A file beside the database that is gone afterwards, and one that a kill has left as well."""
    file = db.with_name(f".{db.name}.{what}")
    file.unlink(missing_ok=True)
    try:
        yield file
    finally:
        file.unlink(missing_ok=True)


def say(text: str) -> None:
    """Print one line, with the time, at once."""
    print(f"[tracker {time.strftime('%H:%M:%S')}] {text}", file=sys.stderr, flush=True)


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        prog="tracker_state.py", description=(__doc__ or "").split("\n", maxsplit=1)[0]
    )
    parser.add_argument("command", choices=["restore", "save", "watch"])
    parser.add_argument("db", type=Path, help="the SQLite file of the MLflow server")
    parser.add_argument("url", help="a folder in an object storage, for this tracker alone")
    parser.add_argument("--every", type=float, default=60.0, metavar="SECONDS")
    parser.add_argument("--idle-hours", type=float, metavar="HOURS", help="end after no change")
    options = parser.parse_args()
    try:
        copy, db = Copy(options.url), options.db.absolute()
        if options.command == "restore":
            say(restore(db, copy))
        elif options.command == "save":
            say(save(db, copy) or "nothing has changed since the last save")
        else:
            idle_s = None if options.idle_hours is None else options.idle_hours * 3600
            say(watch(db, copy, every_s=options.every, idle_s=idle_s))
    except StateError as error:
        print(f"tracker_state.py: {error}", file=sys.stderr)
        return 2
    except Exception as error:  # noqa: BLE001  each store has errors of its own
        lines = str(error).splitlines() or [type(error).__name__]
        print(f"tracker_state.py: {options.url}: {lines[0]}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
