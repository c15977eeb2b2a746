"""Requests to stop from another process: files in the study's folder that its sweep takes away."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable
from pathlib import Path

from ..errors import first_line

_log = logging.getLogger(__name__)

#: What is asked for in place of a run id: no more trials, and the running ones stopped or not.
ALL, NO_MORE = "all", "no-more"
#: How often a sweep looks.
_POLL_INTERVAL_S = 0.25


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
        folder: of the requests. Those that lie there already were meant for a sweep that has ended,
            and are dropped: to be called as soon as other commands see that a sweep is alive.
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
        while not self._closing.wait(_POLL_INTERVAL_S):
            for what in self._take():
                try:
                    self._obey(what)
                except Exception as error:  # noqa: BLE001  later requests are heard
                    _log.warning("the request to stop %s failed: %s", what, first_line(error))

    def _take(self) -> list[str]:
        taken = []
        with contextlib.suppress(OSError):  # there is no folder before the first request
            for file in sorted(self._folder.iterdir()):
                file.unlink(missing_ok=True)
                taken.append(file.name)
        return taken
