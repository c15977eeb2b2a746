"""Guard the processes of a sweep on this machine, so that they end with the sweep.

An environment variable marks each process. The guard, two processes, ends the marked processes when
the sweep has ended or was killed.
"""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..files import make_private_folder, remove_abandoned
from ..guard import Guard, kill_marked, mark_of, remove

#: The usual temporary folder is used only if its path has at most this many characters (chosen, not
#: measured). The path of a socket in it must have at most 107 characters.
_SHORT_CHARACTERS = 24


@contextmanager
def guarded(study_folder: Path) -> Iterator[tuple[str, Path]]:
    """Guard a sweep: its processes and private folder do not outlive this process, even if killed.

    What an earlier sweep of the study has left is removed first (see `clear_up`).

    Yields:
        Text with which the mark of each process of the sweep begins (see `MARK_VARIABLE`), and the
        sweep's private folder.
    """
    clear_up(study_folder)
    token = mark_of(study_folder) + secrets.token_hex(4)
    with _guarded(token, _place() / f"sweep-{token}") as folder:
        yield token, folder


@contextmanager
def temporary_folder(purpose: str) -> Iterator[Path]:
    """Yield a private folder in TMPDIR. It does not outlive this process, even if killed.

    Args:
        purpose: First part of the folder's name.
    """
    name = f"{purpose}-{secrets.token_hex(8)}"
    with _guarded(name, Path(tempfile.gettempdir(), name)) as folder:
        yield folder


@contextmanager
def _guarded(token: str, folder: Path) -> Iterator[Path]:
    # Start the guard before the folder exists, so that it removes the folder whenever this process
    # is killed.
    guard = Guard(token=token, folder=folder)
    try:
        make_private_folder(folder)
        yield folder
    finally:
        guard.close()


def clear_up(study_folder: Path) -> None:
    """End the processes and remove the folders of a sweep that died together with its guard.

    Unfinished files that the sweep was writing are removed, too.

    The caller must hold the lock of the study's folder, so that no other sweep of the study runs.
    """
    mark = mark_of(study_folder)
    kill_marked(mark)
    for folder in _place().glob(f"sweep-{mark}*"):
        remove(folder)
    remove_abandoned(study_folder)


def _place() -> Path:
    usual = tempfile.gettempdir()
    return Path(usual if len(usual) <= _SHORT_CHARACTERS else "/tmp")
