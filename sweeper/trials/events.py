"""What a sweep tells whoever watches it, which never costs the sweep anything."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum

from ..errors import first_line
from .records import TrialRecord

_log = logging.getLogger(__name__)

#: At the sweep's end an observer that does not return from one call is not waited for any longer.
_PATIENCE_S = 10.0


class Event(StrEnum):
    """What an observer is told of."""

    SWEEP_STARTED = "sweep_started"
    TRIAL_STARTED = "trial_started"
    TRIAL_ENDED = "trial_ended"
    STOPPING = "stopping"
    BRINGING_BACK = "bringing_back"
    COPYING = "copying"


#: Called with the record for events of a trial; one call at a time, from a thread of its own.
Observer = Callable[[Event, TrialRecord | None], None]


class Events:
    """Hands events to an observer, one at a time, in the order in which they were announced.

    The observer may take its time and may stop the sweep; what it raises is logged once, and the
    sweep goes on.
    """

    def __init__(self, observer: Observer | None) -> None:
        self._observer = observer
        # Unlike a lock, it may be used in a signal handler whatever its thread was doing.
        self._queue: queue.SimpleQueue[tuple[Event, TrialRecord | None] | None] = (
            queue.SimpleQueue()
        )
        self._has_failed = False

    def announce(self, event: Event, record: TrialRecord | None = None) -> None:
        """Have the observer called; from any thread, and from a signal handler."""
        if self._observer is not None:
            self._queue.put((event, record))

    @contextmanager
    def delivered(self) -> Iterator[None]:
        """Call the observer while the block runs; all calls were made when the block is left."""
        if self._observer is None:
            yield
            return
        thread = threading.Thread(
            target=self._work, args=[self._observer], name="observer", daemon=True
        )
        thread.start()
        try:
            yield
        finally:
            self._queue.put(None)
            waiting = -1
            while thread.is_alive() and waiting != self._queue.qsize():
                waiting = self._queue.qsize()
                thread.join(_PATIENCE_S)  # as long as it gets on, it gets more time

    def _work(self, observer: Observer) -> None:
        while True:
            told = self._queue.get()
            if told is None:
                if self._queue.empty():
                    return
                self._queue.put(None)  # behind what the observer itself has announced meanwhile
                continue
            try:
                observer(*told)
            except BaseException as error:  # noqa: BLE001  whatever it is, the sweep goes on
                level = logging.INFO if self._has_failed else logging.WARNING
                self._has_failed = True
                _log.log(
                    level,
                    "the observer failed at %s: %s: %s; the sweep goes on, and later failures of "
                    "it are logged at level INFO",
                    told[0],
                    type(error).__name__,
                    first_line(error),
                    exc_info=level == logging.INFO,
                )
