"""Keep a list of a sweep's running trials, to stop them and to let no further trials start."""

from __future__ import annotations

import threading
import time

from ...notebook_api.messages import StopReason
from ...trials import Event, Events, RunningTrial, StopCause

#: The sweep waits `_PATIENCE_S` seconds for a storage or a disk that is unavailable, but only
#: `_LAST_PATIENCE_S` seconds once all trials are being stopped (chosen, not measured).
_PATIENCE_S, _LAST_PATIENCE_S = 300.0, 10.0


class StopSwitch:
    """Knows which trials run and whether more trials may start, and stops them.

    Safe to use from any thread and from a signal handler.

    Args:
        events: Announces each kind of stop to the sweep's observer, once.

    Attributes:
        closed_by: Who decided that no more trials start, and why. None while more trials may start.
        cause: Kind of the reason in `closed_by`. None while more trials may start.
        is_stopping_all: Whether the running trials are being stopped, too.
    """

    def __init__(self, events: Events) -> None:
        self._events = events
        # The lock is reentrant, because a signal handler may run in a thread that holds the lock.
        self._lock = threading.RLock()
        self._running: dict[int, RunningTrial] = {}
        #: Trials to stop as soon as they begin, by number, each with the reason.
        self._to_stop: dict[int, str] = {}
        self.is_stopping_all = False
        self._end_by_s: float | None = None
        self.closed_by: str | None = None
        self.cause: StopCause | None = None

    @property
    def left_s(self) -> float | None:
        """Seconds until the sweep must end, at least 0. None before `end_within` is called."""
        end_by_s = self._end_by_s
        return None if end_by_s is None else max(0.0, end_by_s - time.monotonic())

    def patience_s(self) -> float:
        """Return how many seconds to wait for a storage or a disk that is unavailable."""
        return _LAST_PATIENCE_S if self.is_stopping_all else _PATIENCE_S

    def enter(self, number: int, trial: RunningTrial) -> None:
        """Note that a trial begins.

        If its stop was requested already, stop it before its first cell.
        """
        with self._lock:
            self._running[number] = trial
            is_stopped = self.is_stopping_all
            by_hand = self._to_stop.pop(number, None)
        if by_hand is not None:
            trial.control.stop(StopReason.BY_HAND, by_hand)
        elif is_stopped:
            trial.control.stop(StopReason.INTERRUPTED)

    def leave(self, number: int) -> None:
        """Note that a trial has ended."""
        with self._lock:
            self._running.pop(number, None)

    def stop(self, number: int, message: str) -> None:
        """Stop one trial for good, at once or as soon as it begins.

        The command `stop` also accepts a trial that a killed sweep has interrupted, before this
        sweep runs it again.

        Args:
            number: Trial number in the study.
            message: Reason in words, for people.
        """
        with self._lock:
            trial = self._running.get(number)
            if trial is None:
                self._to_stop[number] = message
        if trial is not None:
            trial.control.stop(StopReason.BY_HAND, message)

    def drop_requests(self) -> None:
        """Forget requests to stop trials that have not begun.

        Called between a search and its confirmation, whose trials have the same numbers.
        """
        with self._lock:
            self._to_stop.clear()

    def running_trials(self) -> dict[int, RunningTrial]:
        """Return the running trials by number. Frozen (paused) trials are among them."""
        with self._lock:
            return dict(self._running)

    def close(self, by: str, cause: StopCause = StopCause.ASKED) -> None:
        """Let no more trials start. If it is called again, the first reason is kept.

        Args:
            by: Who decided it and why, in words.
            cause: Kind of the reason.
        """
        if self._close(by, cause):
            # Announce only the first call: an observer that stops the sweep at each event would
            # otherwise be called forever.
            self._events.announce(Event.STOPPING)

    def stop_all(self, by: str, cause: StopCause = StopCause.ASKED) -> None:
        """Let no more trials start, and stop the running trials.

        Args:
            by: Who decided it and why, in words.
            cause: Kind of the reason.
        """
        with self._lock:
            is_new = not self.is_stopping_all
            self.is_stopping_all = True
            self._close(by, cause)
            running = list(self._running.values())
        for trial in running:
            trial.control.stop(StopReason.INTERRUPTED)
        if is_new:
            self._events.announce(Event.STOPPING)

    def _close(self, by: str, cause: StopCause) -> bool:
        """Let no more trials start. Return whether more trials could start before."""
        with self._lock:
            if self.closed_by is not None:
                return False
            self.cause = cause
            # Set `closed_by` last, because a thread that sees it reads the cause next.
            self.closed_by = by
            return True

    def end_within(self, limit_s: float) -> None:
        """Set the seconds until the sweep must have ended. Only the first call has an effect."""
        with self._lock:
            if self._end_by_s is None:
                self._end_by_s = time.monotonic() + limit_s
