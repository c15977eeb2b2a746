"""Requests to stop from another process: files in the study's folder that the sweep removes."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from ..errors import first_line
from ..trials import StudyPaths
from .heartbeat import TOUCH_S

_log = logging.getLogger(__name__)

#: Requests about the whole sweep: stop the running trials and start no more; only start no more.
ALL, NO_MORE = "all", "no-more"
#: How often a sweep looks for requests.
_POLL_INTERVAL_S = 0.25


def ask_to_stop(folder: Path, request: str) -> None:
    """Leave a request for the sweep that is alive.

    Args:
        folder: the folder of the requests.
        request: a run id, `ALL` or `NO_MORE`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / request).touch()


class Requests:
    """Looks for requests while a sweep runs, on a thread of its own, and touches the owner's file.

    Requests that are there already were meant for an earlier sweep and are dropped. Make this
    object as soon as other commands can see that the sweep is alive, or their requests are lost.

    Args:
        paths: of the study, whose folder this process holds.
        on_request: called with a run id, `ALL` or `NO_MORE`, once for each request.
    """

    def __init__(self, paths: StudyPaths, on_request: Callable[[str], None]) -> None:
        self._folder, self._owner = paths.requests, paths.owner
        self._on_request = on_request
        self._closing = threading.Event()
        self._take()
        self._thread = threading.Thread(target=self._work, name="requests", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop looking."""
        self._closing.set()
        self._thread.join()

    def _work(self) -> None:
        touched_s = time.monotonic()
        while not self._closing.wait(_POLL_INTERVAL_S):
            for request in self._take():
                try:
                    self._on_request(request)
                except Exception as error:  # noqa: BLE001  later requests still count
                    _log.warning("the request to stop %s failed: %s", request, first_line(error))
            if time.monotonic() - touched_s >= TOUCH_S:
                touched_s = time.monotonic()
                with contextlib.suppress(OSError):  # the disk may come back before it is too late
                    os.utime(self._owner)

    def _take(self) -> list[str]:
        taken = []
        with contextlib.suppress(OSError):  # the first request makes the folder
            for file in sorted(self._folder.iterdir()):
                file.unlink(missing_ok=True)
                taken.append(file.name)
        return taken
