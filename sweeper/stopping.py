"""Requests to stop from another process: files in the study's folder that its sweep takes away."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

#: What is asked for in place of a run id: no more trials, and the running ones stopped or not.
ALL, NO_MORE = "all", "no-more"
#: How often a sweep looks.
_LOOK_S = 0.25


def ask_to_stop(folder: Path, what: str) -> None:
    """Leave a request for the sweep that is alive.

    Args:
        folder: of the requests.
        what: a run id, `ALL` or `NO_MORE`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / what).touch()


class Requests:
    """Looks for requests while a sweep runs, on a thread of its own.

    Args:
        folder: of the requests; older ones were meant for a sweep that has ended, and are dropped.
        obey: called with each.
    """

    def __init__(self, folder: Path, obey: Callable[[str], None]) -> None:
        self._folder = folder
        self._obey = obey
        self._closing = threading.Event()
        self._take()
        self._thread = threading.Thread(target=self._work, name="requests", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Look no more."""
        self._closing.set()
        self._thread.join()

    def _work(self) -> None:
        while not self._closing.wait(_LOOK_S):
            for what in self._take():
                self._obey(what)

    def _take(self) -> list[str]:
        if not self._folder.is_dir():
            return []
        files = sorted(self._folder.iterdir())
        for file in files:
            file.unlink(missing_ok=True)
        return [file.name for file in files]
