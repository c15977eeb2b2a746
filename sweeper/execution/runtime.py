"""What a sweep has on this machine while it runs: marked processes, a private folder, a guard."""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..files import make_private_folder
from ..guard import Guard, kill_marked, mark_of, remove

#: The folder's path leaves room for the sockets in it, whose paths have at most 107 characters.
_SHORT_CHARACTERS = 24


@contextmanager
def guarded(study_folder: Path) -> Iterator[tuple[str, Path]]:
    """Whatever happens to this process, nothing of its sweep outlives it.

    Yields:
        the beginning of the marks of the sweep's processes; and its private folder, whose path is
        short.
    """
    clear_up(study_folder)
    token = mark_of(study_folder) + secrets.token_hex(4)
    folder = _place() / f"sweep-{token}"
    # The guard is there before the folder is, so that no kill comes between the two.
    guard = Guard(token=token, folder=folder)
    try:
        make_private_folder(folder)
        yield token, folder
    finally:
        guard.close()


def clear_up(study_folder: Path) -> None:
    """End and remove what a sweep that died together with its guard has left.

    To be called by whoever holds the study's folder: no other sweep of it is alive.
    """
    mark = mark_of(study_folder)
    kill_marked(mark)
    for folder in _place().glob(f"sweep-{mark}*"):
        remove(folder)


def _place() -> Path:
    usual = tempfile.gettempdir()
    return Path(usual if len(usual) <= _SHORT_CHARACTERS else "/tmp")
