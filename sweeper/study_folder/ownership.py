"""What belongs to one sweep at a time, and to nobody whose call was refused.

A study's folder; the executed notebooks that an output template names, which two studies can have
in common; and a study in an SQLite file that lies elsewhere, which two folders can.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from ..errors import OutputError, StudyError
from ..files import write_atomically
from ..trials import StudyPaths, display_path
from .heartbeat import ALIVE_S, Heartbeat, elsewhere_s, this_machine

#: Another command may put things in order after a sweep that died, which takes a moment.
_PATIENCE_S = 1.0


@contextmanager
def held_folder(paths: StudyPaths) -> Iterator[Callable[[], None]]:
    """Hold a study's folder, made when it is not there.

    Yields:
        a call that says that the folder is in use now; what was made is removed again when the
        block ends without it.

    Raises:
        OutputError: the folder cannot be written.
        StudyError: another process holds it.
    """
    made = _make_folders(paths.folder)
    kept = False

    def keep() -> None:
        nonlocal kept
        kept = True

    try:
        lock = _take_lock(paths)
        beating = Heartbeat(paths.owner)
        try:
            yield keep
        finally:
            beating.close()
            if _told_by(paths).get("pid") == os.getpid():  # else the folder is another's by now
                _remove(paths.owner)
            lock.release()
    finally:
        if not kept:
            _unmake_folders(made)


@contextmanager
def held_outputs(paths: StudyPaths) -> Iterator[None]:
    """Hold the files that an output template names, while the study's folder is held.

    Raises:
        StudyError: a sweep of another study holds them.
    """
    if "{study}" in paths.template:  # then no other study can have them
        yield
        return
    rest = paths.template[len(str(paths.root)) :].strip(os.sep).replace(os.sep, "_")
    with _held(paths.root / f".{rest}.lock") as is_free:
        if not is_free:
            raise StudyError(
                f"{display_path(Path(paths.template))} are the outputs of "
                f"{_sweep_with_outputs(paths)}, "
                "which is running; choose other names with -o (for example with {study} in them), "
                "or wait for it"
            )
        yield


@contextmanager
def held_storage(file: Path | None, paths: StudyPaths) -> Iterator[None]:
    """Hold a study in an SQLite file, whichever folder it is swept from.

    Args:
        file: None where the storage is on a server, which has its own lock. Whoever holds the
            study's folder holds the file in it, too.

    Raises:
        StudyError: a sweep from another folder holds it.
    """
    is_elsewhere = file is not None and file != paths.storage and file.parent.is_dir()
    if file is None or not is_elsewhere:
        yield
        return
    with ExitStack() as held:
        try:
            lock = _held(file.with_name(f".{file.name}.{paths.study}.lock"))
            is_free = held.enter_context(lock)
        except OutputError as error:
            raise StudyError(
                f"--storage sqlite:///{file}: {error}; choose a file whose folder can be written"
            ) from error
        if not is_free:
            raise StudyError(
                f"the study {paths.study!r} in {display_path(file)} is being swept from another "
                "folder; "
                "wait for it or stop it, or choose another name with --study"
            )
        yield


@contextmanager
def _held(file: Path) -> Iterator[bool]:
    """Hold a lock whose file is there as long as somebody has it; yields whether it was free."""
    lock = FileLock(file)
    try:
        lock.acquire(timeout=0)
    except (Timeout, OSError) as error:
        # Where the file cannot be made, the lock is waited for as if somebody had it.
        if isinstance(error, Timeout) and file.exists():
            yield False
            return
        why = "no file can be made there" if isinstance(error, Timeout) else error.strerror
        raise OutputError(f"{display_path(file)}: cannot be written: {why or error}") from error
    try:
        yield True
    finally:
        _remove(file)
        lock.release()


def _remove(file: Path) -> None:
    """Remove a file; where that cannot be, it stays, and says nothing without its lock."""
    with suppress(OSError):
        file.unlink(missing_ok=True)


def _sweep_with_outputs(paths: StudyPaths) -> str:
    """Who writes to the same files, in words."""
    for owner in paths.root.glob(f"*/{paths.owner.name}"):
        other = StudyPaths(template=paths.template, study=owner.parent.name, root=paths.root)
        is_same = _told_by(other).get("template") == paths.template
        if other.study != paths.study and is_same and is_held(other):
            return f"the study {other.study!r} ({owner_of(other)})"
    return "another study"


def is_held(paths: StudyPaths) -> bool:
    """Whether a sweep of this study is alive, on this machine or another that has the folder."""
    if not paths.lock.exists():
        return False
    try:
        FileLock(paths.lock).acquire(timeout=0).lock.release()
    except Timeout:
        return True
    except OSError:  # somebody else's folder, which we may only read
        return False
    return elsewhere_s(paths.owner) is not None


@contextmanager
def while_unswept(paths: StudyPaths) -> Iterator[bool]:
    """Keep sweeps from beginning while the block runs.

    Yields:
        whether that was possible: False when one is alive, or the folder is not ours to write.
    """
    lock = FileLock(paths.lock)
    try:
        lock.acquire(timeout=0)
    except (Timeout, OSError):
        yield False
        return
    try:
        yield elsewhere_s(paths.owner) is None
    finally:
        lock.release()


def owner_of(paths: StudyPaths) -> str:
    """Who holds the folder, in words."""
    told = _told_by(paths)
    return f"process {told['pid']} on {told['host']}" if told else "another process"


def _told_by(paths: StudyPaths) -> Mapping[str, Any]:
    """What the sweep that holds the folder has written down; empty when it has not."""
    try:
        told = json.loads(paths.owner.read_text(encoding="utf-8"))
        return dict(told) if {"pid", "host"} <= told.keys() else {}
    except (OSError, ValueError, AttributeError):
        return {}


def _take_lock(paths: StudyPaths) -> FileLock:
    lock = FileLock(paths.lock)
    try:
        lock.acquire(timeout=_PATIENCE_S)
    except Timeout as error:
        raise StudyError(
            f"the study {paths.study!r} in {display_path(paths.folder)} is being swept by "
            f"{owner_of(paths)}; wait for it or stop it, or choose another name with --study"
        ) from error
    except OSError as error:
        raise _unwritable(paths.folder, error) from error
    heard_s = elsewhere_s(paths.owner)
    if heard_s is not None:
        lock.release()
        raise StudyError(
            f"the study {paths.study!r} in {display_path(paths.folder)} is being swept by "
            f"{owner_of(paths)}, which gave a sign of life {heard_s:.0f} s ago; if it is dead, "
            f"try again in {ALIVE_S - heard_s:.0f} s, else wait for it or stop it, or choose "
            "another name with --study"
        )
    told = {
        "host": socket.gethostname(),
        "machine": this_machine(),
        "pid": os.getpid(),
        "started_at_s": time.time(),
        "template": paths.template,
    }
    try:
        write_atomically(paths.owner, json.dumps(told))
    except OSError as error:
        lock.release()
        raise _unwritable(paths.folder, error) from error
    return lock


def _unwritable(folder: Path, error: OSError) -> OutputError:
    return OutputError(
        f"{display_path(folder)}: cannot be written: {error.strerror or error}; "
        "choose another output with -o"
    )


def _make_folders(folder: Path) -> list[Path]:
    """Make a folder and those above it; return the ones that were not there."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        _unmake_folders(missing)
        raise _unwritable(folder, error) from error
    return missing


def _unmake_folders(made: list[Path]) -> None:
    """Remove what this call has made; `made` begins with the study's own folder, if that is new."""
    for index, path in enumerate(made):
        if index == 0:
            shutil.rmtree(path, ignore_errors=True)
        elif path.is_dir() and not any(path.iterdir()):
            with suppress(OSError):
                path.rmdir()
