"""Guard a sweep on this machine: its processes are marked, and end when the sweep ends."""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..files import make_private_folder
from ..guard import Guard, kill_marked, mark_of, remove

#: The path of the temporary folder has at most this many characters, because sockets in that folder
#: may have paths of at most 107 characters.
_SHORT_CHARACTERS = 24


@contextmanager
def guarded(study_folder: Path) -> Iterator[tuple[str, Path]]:
    """Let no process and no private folder of the sweep outlive this process, however it ends.

    Yields:
        Beginning of the marks of the sweep's processes, and its private folder, whose path is
        short.
    """
    clear_up(study_folder)
    token = mark_of(study_folder) + secrets.token_hex(4)
    folder = _place() / f"sweep-{token}"
    # Start the guard first. It removes the folder if the sweep is killed at any time after this.
    guard = Guard(token=token, folder=folder)
    try:
        make_private_folder(folder)
        yield token, folder
    finally:
        guard.close()


def clear_up(study_folder: Path) -> None:
    """End the processes and remove the folders of a sweep that died together with its guard.

    The caller must hold the lock of the study's folder, so that no other sweep of it is alive.
    """
    mark = mark_of(study_folder)
    kill_marked(mark)
    for folder in _place().glob(f"sweep-{mark}*"):
        remove(folder)


def _place() -> Path:
    usual = tempfile.gettempdir()
    return Path(usual if len(usual) <= _SHORT_CHARACTERS else "/tmp")
