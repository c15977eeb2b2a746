"""Lock everything that only one sweep at a time may use.

There are three kinds of locks: for a study's folder; for the executed notebooks of an output
template, which two studies may share; and for a study in a SQLite file outside its folder, which
two folders may share.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import Any

from filelock import FileLock, Timeout

from ..errors import OutputError, StudyError
from ..files import PRIVATE, write_atomically
from ..settings.addresses import Address
from ..trials import StudyPaths, display_path
from .heartbeat import ALIVE_S, elsewhere_s, this_machine

#: Seconds to wait for a command that holds the lock while it cleans up after a killed sweep
#: (chosen, not measured).
_PATIENCE_S = 1.0


class HeldFolder:
    """A study's folder while this process holds its lock.

    Args:
        paths: Paths of the study.
        token: Random text that distinguishes this process from all others that lock the folder. It
            is stored in `sweep.json`, the file that names the folder's owner.

    Attributes:
        is_needed: Whether the folder remains when the lock is released. At first, it is False, and
            the process that holds the lock may set it. A folder that existed before always remains.
    """

    def __init__(self, paths: StudyPaths, token: str) -> None:
        self._paths, self._token = paths, token
        self.is_needed = False

    def check(self) -> None:
        """Check that no sweep on another machine has taken over the folder.

        That happens if this process was suspended for so long that it counted as dead. `sweep.json`
        is read on each call, and not only after a long pause: a suspended machine may stop its
        clock, which then shows no pause.

        Raises:
            StudyError: Another sweep has taken over the folder.
        """
        paths = self._paths
        try:
            is_ours = self._token in paths.owner.read_text(encoding="utf-8")
        except FileNotFoundError:
            # If the lock file is there, another sweep took over the folder and has ended. If not,
            # the disk is unavailable, which proves nothing.
            is_ours = not os.path.exists(paths.lock)
        except OSError:  # An error of the disk proves nothing.
            return
        if is_ours:
            return
        raise StudyError(
            f"the study {paths.study!r} in {display_path(paths.folder)} was taken over by "
            f"{owner_of(paths)} while this sweep stood still; this sweep has ended, and changed "
            "nothing more; wait for the other sweep, or stop it, and resume with the same command"
        )


@contextmanager
def held_folder(paths: StudyPaths) -> Iterator[HeldFolder]:
    """Lock a study's folder during the block. Make the folder if it does not exist.

    Raises:
        OutputError: The folder cannot be written.
        StudyError: Another process holds the lock.
    """
    made = _make_folders(paths.folder)
    held = HeldFolder(paths, token := token_hex(8))
    try:
        lock = _take_lock(paths, token)
        try:
            yield held
        finally:
            # Keep `sweep.json` if another sweep has taken over the folder and is named there.
            if _read_owner(paths).get("token") == token:
                _remove(paths.owner)
            if made and not held.is_needed:
                # Remove the folder before the lock is released. Afterwards, another sweep may lock
                # the folder at any moment.
                shutil.rmtree(paths.folder, ignore_errors=True)
            lock.release()
    finally:
        if not held.is_needed:
            _remove_empty(made)


@contextmanager
def held_elsewhere(paths: StudyPaths, storage: Path | None) -> Iterator[None]:
    """Lock files outside of the study's folder that two studies may share, during the block.

    These are the executed notebooks of a template without `{study}`, and the study in a SQLite file
    outside its folder.

    Args:
        paths: Paths of the study, whose folder is locked already.
        storage: The SQLite file. None if the storage is on a server, which has its own lock.

    Raises:
        StudyError: Another sweep holds one of the locks, or the folder of the SQLite file cannot be
            written.
        OutputError: The folder of the outputs cannot be written.
    """
    with ExitStack() as held:
        if not paths.has_study_in_names:
            rest = os.path.relpath(paths.notebook("{run_id}"), paths.root).replace(os.sep, "_")
            refusal = (
                f"{paths.displayed_template}: another study, which is being swept, writes these "
                "outputs; choose other names with -o (for example with {study} in them), or wait "
                "for it"
            )
            held.enter_context(_held(paths.root / f".{rest}.lock", refusal))
        if storage is not None and storage != paths.storage and storage.parent.is_dir():
            refusal = (
                f"the study {paths.study!r} in {display_path(storage)} is being swept from another "
                f"folder; wait for it or stop it, or begin another with {paths.options_of_another}"
            )
            lock = storage.with_name(f".{storage.name}.{paths.study}.lock")
            try:
                # Make the file first: a lock file that cannot be made would look like a held one.
                lock.touch(mode=PRIVATE)
            except OSError as error:
                why = error.strerror or error
                raise StudyError(f"--storage {Address.of_file(storage)}: {why}") from error
            held.enter_context(_held(lock, refusal))
        yield


@contextmanager
def _held(file: Path, refusal: str) -> Iterator[None]:
    """Hold a lock during the block. Its file exists only during this time.

    Args:
        file: The lock file.
        refusal: Message if another process holds the lock.
    """
    lock = FileLock(file, mode=PRIVATE)
    try:
        lock.acquire(timeout=0)
    except Timeout as error:
        raise StudyError(refusal) from error
    except OSError as error:
        raise unwritable(file.parent, error) from error
    try:
        yield
    finally:
        _remove(file)
        lock.release()


def _remove(file: Path) -> None:
    """Remove a file if possible. A file that remains has no effect without its lock."""
    with suppress(OSError):
        file.unlink(missing_ok=True)


def is_held(paths: StudyPaths) -> bool:
    """Return whether a sweep of the study is alive, here or on a machine that shares its folder."""
    if not os.access(paths.lock, os.W_OK):  # The study was never swept, or belongs to another user.
        return False
    with while_unswept(paths) as is_unswept:
        return not is_unswept


@contextmanager
def while_unswept(paths: StudyPaths) -> Iterator[bool]:
    """Prevent sweeps of a study from starting during the block.

    Yields:
        Whether this was possible. False if a sweep is alive or the folder cannot be written. True
        if the folder does not exist on this machine.
    """
    if not os.path.isdir(paths.folder):  # The lock would make the folder.
        yield True
        return
    lock = FileLock(paths.lock, mode=PRIVATE)
    try:
        lock.acquire(timeout=0)
    except (Timeout, OSError):
        yield False
        return
    try:
        yield elsewhere_s(paths.owner) is None
    finally:
        lock.release()


def may_be_elsewhere(paths: StudyPaths) -> bool:
    """Return whether a sweep on another host may still run this study.

    This is so if `sweep.json` in the study's folder names another host: the folder may be a copy
    that was made while a sweep was running there.
    """
    owner = _read_owner(paths)
    return bool(owner) and owner["host"] != socket.gethostname()


def owner_of(paths: StudyPaths) -> str:
    """Return the name of the process that holds the folder, such as `process 12 on alpha`."""
    owner = _read_owner(paths)
    return f"process {owner['pid']} on {owner['host']}" if owner else "another process"


def _read_owner(paths: StudyPaths) -> Mapping[str, Any]:
    """Return the content of `sweep.json`, which names the process that holds a study's folder.

    Empty if the file cannot be read.
    """
    try:
        owner = json.loads(paths.owner.read_text(encoding="utf-8"))
        return dict(owner) if {"pid", "host"} <= owner.keys() else {}
    except (OSError, ValueError, AttributeError):
        return {}


def _take_lock(paths: StudyPaths, token: str) -> FileLock:
    lock = FileLock(paths.lock, mode=PRIVATE)
    try:
        lock.acquire(timeout=_PATIENCE_S)
    except Timeout as error:
        raise _held_by_another(paths) from error
    except OSError as error:
        raise unwritable(paths.folder, error) from error
    alive_s = elsewhere_s(paths.owner)
    if alive_s is not None:
        lock.release()
        raise _held_by_another(
            paths,
            f", last seen {alive_s:.0f} s ago (if it is dead, try again in "
            f"{ALIVE_S - alive_s:.0f} s)",
        )
    about = {"host": socket.gethostname(), "machine": this_machine(), "pid": os.getpid()}
    try:
        write_atomically(paths.owner, json.dumps({**about, "token": token}))
    except OSError as error:
        # Leave no file, so that `held_folder` can remove a folder that it has made. It removes only
        # empty folders.
        _remove(paths.lock)
        lock.release()
        raise unwritable(paths.folder, error) from error
    return lock


def _held_by_another(paths: StudyPaths, sign: str = "") -> StudyError:
    return StudyError(
        f"the study {paths.study!r} in {display_path(paths.folder)} is being swept by "
        f"{owner_of(paths)}{sign}; wait for it or stop it, or begin another study with "
        f"{paths.options_of_another}"
    )


def unwritable(path: Path, error: OSError) -> OutputError:
    """Return the error that says why outputs cannot be written to a path."""
    return OutputError(
        f"{display_path(path)}: cannot be written: {error.strerror or error}; "
        "choose another output with -o"
    )


def _make_folders(folder: Path) -> list[Path]:
    """Make a folder and its parents. Return those that did not exist."""
    missing = [path for path in (folder, *folder.parents) if not os.path.exists(path)]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        _remove_empty(missing)
        raise unwritable(folder, error) from error
    return missing


def _remove_empty(made: list[Path]) -> None:
    """Remove folders that did not exist before, if they are empty.

    Args:
        made: The folders, the study's folder first.
    """
    for folder in made:
        with suppress(OSError):
            folder.rmdir()
