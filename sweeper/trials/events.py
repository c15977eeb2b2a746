"""Deliver a sweep's events to an observer on a thread, so that it cannot delay a trial."""

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

#: How long the end of a sweep waits for one call of the observer.
_MAX_CALL_S = 10.0


class Event(StrEnum):
    """What has happened in a sweep, as its observer receives it."""

    SWEEP_STARTED = "sweep_started"
    TRIAL_STARTED = "trial_started"
    TRIAL_ENDED = "trial_ended"
    STOPPING = "stopping"
    BRINGING_BACK = "bringing_back"
    COPYING = "copying"
    DATA = "data"


#: Called with an event, and with the trial's record where the event is one of a trial.
Observer = Callable[[Event, TrialRecord | None], None]


def each_of(*observers: Observer) -> Observer:
    """One observer that calls several, in this order."""

    def observe(event: Event, record: TrialRecord | None) -> None:
        for observer in observers:
            observer(event, record)

    return observe


class Events:
    """Delivers events to observers, one at a time, in the order in which they were announced.

    An observer may be slow and may stop the sweep. The first exception is logged as a warning,
    later ones at level INFO, and the sweep goes on.
    """

    def __init__(self, *observers: Observer) -> None:
        self._observe = each_of(*observers)
        # A SimpleQueue is reentrant: a signal handler may use it while its thread does.
        self._queue: queue.SimpleQueue[tuple[Event, TrialRecord | None] | None] = (
            queue.SimpleQueue()
        )
        self._has_failed = False

    def announce(self, event: Event, record: TrialRecord | None = None) -> None:
        """Queue an event for the observers; callable from any thread and from a signal handler."""
        self._queue.put((event, record))

    @contextmanager
    def delivering(self) -> Iterator[None]:
        """Call the observers on a thread while the block runs, and finish all calls at its end.

        An observer that does not return from a call is left behind after 10 s.
        """
        thread = threading.Thread(target=self._work, name="observer", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._queue.put(None)
            waiting = -1
            while thread.is_alive() and waiting != self._queue.qsize():
                waiting = self._queue.qsize()
                thread.join(_MAX_CALL_S)  # each finished call earns the next one its time

    def _work(self) -> None:
        while True:
            item = self._queue.get()
            if item is None:
                if self._queue.empty():
                    return
                self._queue.put(None)  # after what the observer has announced itself
                continue
            try:
                self._observe(*item)
            except BaseException as error:  # noqa: BLE001  even SystemExit: the sweep goes on
                level = logging.INFO if self._has_failed else logging.WARNING
                self._has_failed = True
                _log.log(
                    level,
                    "the observer failed at %s: %s: %s; the sweep goes on, and later failures of "
                    "it are logged at level INFO",
                    item[0],
                    type(error).__name__,
                    first_line(error),
                    exc_info=level == logging.INFO,
                )
