"""Deliver a sweep's events to observers on a thread, so that they cannot delay a trial."""

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

#: Longest wait at the end of a sweep for one call of an observer, in seconds (chosen, not
#: measured).
_MAX_CALL_S = 10.0


class Event(StrEnum):
    """Kind of event in a sweep, as observers receive it."""

    #: The study is open, and its trials begin.
    SWEEP_STARTED = "sweep_started"
    #: An attempt at a trial begins. The event's line of `--events` has the key `trial`.
    TRIAL_STARTED = "trial_started"
    #: An attempt at a trial has ended. The event's line of `--events` has the key `trial`.
    TRIAL_ENDED = "trial_ended"
    #: The sweep stops before the study has all its trials. No more trials begin, running ones end.
    STOPPING = "stopping"
    #: The study is being restored from its remote copy (section `sync`).
    BRINGING_BACK = "bringing_back"
    #: All trials have ended. The sweep waits until its remote copy is complete (section `sync`).
    COPYING = "copying"
    #: The trials' data (section `data`) is being fetched or verified.
    DATA = "data"


#: Function that is called with each event. Its second argument is the record of the trial, or None
#: if the event is not about a trial.
Observer = Callable[[Event, TrialRecord | None], None]


def each_of(*observers: Observer) -> Observer:
    """Return one observer that calls several observers in the order given."""

    def observe(event: Event, record: TrialRecord | None) -> None:
        for observer in observers:
            observer(event, record)

    return observe


class Events:
    """Delivers events to observers, one at a time, in the order in which they were announced.

    An observer may be slow, and may stop the sweep. If an observer raises an exception, the sweep
    continues. The first exception is logged as a warning, later exceptions at level INFO.
    """

    def __init__(self, *observers: Observer) -> None:
        self._observe = each_of(*observers)
        # A SimpleQueue is reentrant. A signal handler may use the queue while it interrupts a
        # thread that is just using the queue.
        self._queue: queue.SimpleQueue[tuple[Event, TrialRecord | None] | None] = (
            queue.SimpleQueue()
        )
        self._has_failed = False

    def announce(self, event: Event, record: TrialRecord | None = None) -> None:
        """Queue an event for the observers. Any thread and any signal handler may call this."""
        self._queue.put((event, record))

    @contextmanager
    def delivering(self) -> Iterator[None]:
        """Call the observers on a thread while the `with` block runs. At its end, finish all calls.

        If one call of an observer takes longer than 10 s after the block, later events are dropped.
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
                thread.join(_MAX_CALL_S)  # Each call that finishes in time resets the limit.

    def _work(self) -> None:
        while True:
            item = self._queue.get()
            if item is None:
                if self._queue.empty():
                    return
                # Observers have announced further events meanwhile. Deliver these before the end.
                self._queue.put(None)
                continue
            try:
                self._observe(*item)
            except BaseException as error:  # noqa: BLE001  Even SystemExit must not end the sweep.
                level = logging.INFO if self._has_failed else logging.WARNING
                self._has_failed = True
                _log.log(
                    level,
                    "the observer failed at %s: %s: %s; the sweep continues, and logs its later "
                    "failures at level INFO",
                    item[0],
                    type(error).__name__,
                    first_line(error),
                    exc_info=level == logging.INFO,
                )
