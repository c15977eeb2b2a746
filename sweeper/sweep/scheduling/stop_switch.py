"""Which trials run now, and whether more may start."""

from __future__ import annotations

import threading
import time

from ...notebook_api.messages import StopReason
from ...trials import Event, Events, RunningTrial, StopCause

#: How long a storage or a disk that is away is waited for, in seconds; and when all is stopped.
_PATIENCE_S, _LAST_PATIENCE_S = 300.0, 10.0


class StopSwitch:
    """Knows which trials run and whether more may start, and stops them.

    Safe to use from any thread and from a signal handler.

    Args:
        events: of the sweep, whose observer hears of each stop once.

    Attributes:
        closed_by: who let no more trials start, and why; None while they may.
        cause: what kind of thing that was.
        is_stopping_all: whether the running trials are being stopped as well.
    """

    def __init__(self, events: Events) -> None:
        self._events = events
        # Reentrant: a signal may arrive while its own thread holds the lock.
        self._lock = threading.RLock()
        self._running: dict[int, RunningTrial] = {}
        #: Trials that were to be stopped before they had begun, and why.
        self._to_stop: dict[int, str] = {}
        self.is_stopping_all = False
        self._end_by_s: float | None = None
        self.closed_by: str | None = None
        self.cause: StopCause | None = None

    @property
    def left_s(self) -> float | None:
        """How long the sweep still has, in seconds; None for as long as it takes."""
        end_by_s = self._end_by_s
        return None if end_by_s is None else max(0.0, end_by_s - time.monotonic())

    def patience_s(self) -> float:
        """How many seconds to wait for a storage or a disk that is away."""
        return _LAST_PATIENCE_S if self.is_stopping_all else _PATIENCE_S

    def enter(self, number: int, trial: RunningTrial) -> None:
        """Note that a trial begins; stop it before its first cell where that was asked for."""
        with self._lock:
            self._running[number] = trial
            is_stopped, by_hand = self.is_stopping_all, self._to_stop.pop(number, None)
        if by_hand is not None:
            trial.control.stop(StopReason.BY_HAND, by_hand)
        elif is_stopped:
            trial.control.stop(StopReason.INTERRUPTED)

    def leave(self, number: int) -> None:
        """Note that a trial has ended."""
        with self._lock:
            self._running.pop(number, None)

    def stop(self, number: int, message: str) -> None:
        """Stop one trial, at once or as soon as it runs; it is over for good."""
        with self._lock:
            trial = self._running.get(number)
            if trial is None:
                self._to_stop[number] = message
        if trial is not None:
            trial.control.stop(StopReason.BY_HAND, message)

    def running_trials(self) -> dict[int, RunningTrial]:
        """The trials that run, by their numbers."""
        with self._lock:
            return dict(self._running)

    def close(self, by: str, cause: StopCause = StopCause.ASKED) -> None:
        """Let no more trials start; the first reason is kept."""
        with self._lock:
            is_new = self.closed_by is None
            if is_new:
                self.cause = cause
                self.closed_by = by  # last: who reads it reads the cause next
        if is_new:  # or an observer that stops the sweep at each event would be called for ever
            self._events.announce(Event.STOPPING)

    def stop_all(self, by: str, cause: StopCause = StopCause.ASKED) -> None:
        """Let no more trials start, and stop those that run."""
        with self._lock:
            is_new, self.is_stopping_all = not self.is_stopping_all, True
            if self.closed_by is None:
                self.cause = cause
                self.closed_by = by
            running = list(self._running.values())
        for trial in running:
            trial.control.stop(StopReason.INTERRUPTED)
        if is_new:
            self._events.announce(Event.STOPPING)

    def end_within(self, limit_s: float) -> None:
        """Give the sweep so many seconds from now on; the first call counts."""
        with self._lock:
            if self._end_by_s is None:
                self._end_by_s = time.monotonic() + limit_s
