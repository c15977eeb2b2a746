"""Send and receive requests to stop a sweep: files in the study's folder."""

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

#: Requests about the whole sweep: stop all running trials and start no more, or only start no more.
ALL, NO_MORE = "all", "no-more"
#: Seconds between two checks for requests.
_POLL_INTERVAL_S = 0.25


def ask_to_stop(folder: Path, request: str) -> None:
    """Leave a request for the sweep that is running: an empty file whose name is the request.

    Args:
        folder: Folder of the requests.
        request: Run id of a trial to stop, `ALL` to stop all running trials and start no more, or
            `NO_MORE` to start no more trials.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / request).touch()


class Requests:
    """Checks for requests to stop the sweep or a trial, and shows that the sweep is alive.

    A thread does both while the sweep runs. To show that the sweep is alive, it touches
    `sweep.json`, the file that names the sweep, at intervals.

    Requests that exist when this object is made are dropped, because they were meant for an earlier
    sweep. So make the object as soon as other commands can see that the sweep is alive: a later
    start would drop requests to this sweep.

    Args:
        paths: Paths of the study, whose folder this process has locked.
        on_request: Called once for each request, with the `request` that was given to
            `ask_to_stop`.
    """

    def __init__(self, paths: StudyPaths, on_request: Callable[[str], None]) -> None:
        self._folder, self._owner = paths.requests, paths.owner
        self._on_request = on_request
        self._closing = threading.Event()
        self._take()
        self._thread = threading.Thread(target=self._work, name="requests", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop checking for requests."""
        self._closing.set()
        self._thread.join()

    def _work(self) -> None:
        touched_s = time.monotonic()
        while not self._closing.wait(_POLL_INTERVAL_S):
            for request in self._take():
                try:
                    self._on_request(request)
                except Exception as error:  # noqa: BLE001  later requests still count
                    _log.warning("the stop request %r failed: %s", request, first_line(error))
            if time.monotonic() - touched_s >= TOUCH_S:
                touched_s = time.monotonic()
                # The file counts as abandoned only after several missed touches, so one may fail.
                with contextlib.suppress(OSError):
                    os.utime(self._owner)

    def _take(self) -> list[str]:
        taken = []
        with contextlib.suppress(OSError):  # The folder does not exist before the first request.
            for file in sorted(self._folder.iterdir()):
                file.unlink(missing_ok=True)
                taken.append(file.name)
        return taken
