"""The connection between a running trial and its sweep: points one way, at most one stop back."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import Enum

from ..notebook_api.messages import Point, PointSource, StopReason
from .chores import Chore
from .score_ranks import RANKS, ScoreRank, lesser_name

#: A point of these sources raises in the notebook where the trial is to end.
_SENT = (PointSource.REPORTED, PointSource.OBSERVED, PointSource.LOGGED)


class Phase(Enum):
    """Whether a trial holds a slot; `RunningTrial` has all ways from one to another."""

    RUNNING = "in a slot"
    FROZEN = "stands still, without a slot"
    LEAVING = "was stopped while it was frozen, and ends without a slot"
    LOST = "its kernel died while it was frozen"
    ENDED = "has ended"


@dataclass(frozen=True, kw_only=True)
class _Waits:
    """How long a trial has waited: replaced as a whole, as other threads read it.

    Attributes:
        past_s: the time of the waits that are over.
        since_s: when the present wait began; None while there is none.
        other: the trial that stands for this one, whose waits count.
    """

    past_s: float = 0.0
    since_s: float | None = None
    other: RunningTrial | None = None

    @property
    def all_s(self) -> float:
        """The time of all waits until now."""
        present_s = 0.0 if self.since_s is None else time.monotonic() - self.since_s
        return self.past_s + present_s + (0.0 if self.other is None else self.other.waited_s)


class RunningTrial:
    """Connects a running trial with the sweep: points come up, at most one stop goes down.

    Safe to use from any thread.

    Args:
        *subscribers: called with each point; see `subscribe`.

    Attributes:
        waits_for: what the trial waits for, in one line; empty when it does not.
        chore: what its slot does for the sweep before the trial begins; None for nothing.
        stop_reason: why the trial was asked to stop; None as long as it was not.
        message: the same for people.
        phase: whether it holds a slot.
        pid: the kernel's process; None before there is one.
        cell: the number of cells that have begun.
        cells: the number of all cells.
        step: the step of the last point that has one.
        steps: how often the step has changed.
        metrics: the last value of each metric.
        trials_left: how many trials had not begun when this one did and each free slot had taken
            one, as far as was known.
        reports: the number of points that were neither printed nor displayed.
        host: the machine where it runs, for people; empty for that of the sweep.
        has_room: whether its machine would carry another trial beside it while it is frozen.
        make_room: called again and again while the trial waits for its place.
        ranks: by metric, the first source in order that gives it, as far as is known.
        steps_before: by metric, how many printed numbers earlier attempts at the trial have.
        record: called with each point before all subscribers, whatever its source is.
    """

    def __init__(
        self,
        *subscribers: Callable[[Point], None],
        trials_left: int = 0,
    ) -> None:
        self._subscribers = list(subscribers)
        self.ranks: dict[str, ScoreRank] = {}
        self.steps_before: Mapping[str, int] = {}
        self.record: Callable[[Point], object] = lambda _: None
        self.trials_left = trials_left
        # Reentrant: a signal handler may stop a trial that its own thread is just stopping.
        self._lock = threading.RLock()
        self.stop_reason: StopReason | None = None
        self.waits_for = self.message = ""
        self.chore: Chore | None = None
        self.pid: int | None = None
        self.cell = 0
        self.cells = 0
        self.step: int | None = None
        self.steps = 0
        self.metrics: dict[str, float] = {}
        self.reports = 0
        self.host = ""
        self.has_room: Callable[[], bool] = lambda: True
        self.make_room: Callable[[], object] = lambda: None
        self.phase = Phase.RUNNING
        # One permit for each slot that the trial gives back.
        self._rests = threading.Semaphore(0)
        self._on_stop: Callable[[], object] | None = None
        self._stand_still: Callable[[bool], bool] | None = None
        self._waits = _Waits()
        self._created_s = time.monotonic()

    @property
    def is_frozen(self) -> bool:
        """Whether its kernel stands still."""
        return self.phase is Phase.FROZEN

    @property
    def own_s(self) -> float:
        """How long it has existed without its waits; the clock of the machine may be set back."""
        waited_s = self.waited_s  # first, so that it is never the longer time
        return time.monotonic() - self._created_s - waited_s

    @property
    def waited_s(self) -> float:
        """How long it has waited for a device or been frozen, which is not its running time."""
        return self._waits.all_s

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Count the time of the block as waiting for a device."""
        self._waits = replace(self._waits, since_s=time.monotonic())
        try:
            yield
        finally:
            self._waits = _Waits(past_s=self.waited_s)

    @contextmanager
    def limited(self, limit_s: float | None) -> Iterator[None]:
        """Stop the trial when the block runs longer than `limit_s` seconds; None for no limit."""
        if limit_s is None:
            yield
            return
        before_s = self.waited_s
        ends_s, has_ended = time.monotonic() + limit_s, threading.Event()

        def watch() -> None:
            left_s = limit_s
            while left_s > 0:
                if has_ended.wait(left_s):
                    return
                left_s = ends_s + self.waited_s - before_s - time.monotonic()
            self.stop(StopReason.TIME_LIMIT)

        threading.Thread(target=watch, name="time limit", daemon=True).start()
        try:
            yield
        finally:
            has_ended.set()

    def on_freeze(self, stand_still: Callable[[bool], bool] | None) -> None:
        """Have the trial frozen and thawed by `stand_still`, while it has a kernel.

        Args:
            stand_still: called with whether the kernel is to stand still; it returns whether that
                was possible. None where there is no kernel any more: a frozen trial has lost it,
                and is not thawed.
        """
        with self._lock:
            self._stand_still = stand_still
            if self.phase is Phase.FROZEN and stand_still is None:
                self._enter(Phase.LOST)

    def freeze(self) -> bool:
        """Have the kernel stand still, so that the slot is free; False where nothing changed."""
        has_room = self.has_room()
        with self._lock:
            is_running = self.phase is Phase.RUNNING and self.stop_reason is None
            if not (has_room and is_running) or self._stand_still is None:
                return False
            self._enter(Phase.FROZEN)  # first, as the notebook is written at once
            if not self._stand_still(True):
                self._enter(Phase.RUNNING)
                return False
            self._rests.release()
            return True

    def thaw(self) -> bool:
        """Have a frozen trial go on in a slot of the caller's; False where it is not frozen."""
        return self._wake(Phase.RUNNING)

    def end(self) -> None:
        """Note that the trial has ended; its slot is free."""
        with self._lock:
            self._enter(Phase.ENDED)
        self._rests.release()

    def wait_for_rest(self) -> None:
        """Wait in a slot until the trial gives that slot back, as it is frozen or has ended."""
        self._rests.acquire()
        if self.phase is Phase.ENDED:
            self._rests.release()  # for all others

    def _wake(self, phase: Phase) -> bool:
        with self._lock:
            if self.phase is not Phase.FROZEN or self._stand_still is None:
                return False
            self._enter(phase)
            self._stand_still(False)
            return True

    def _enter(self, phase: Phase) -> None:
        if phase is Phase.FROZEN:
            self._waits = replace(self._waits, since_s=time.monotonic())
        elif self.phase is Phase.FROZEN:
            self._waits = _Waits(past_s=self.waited_s)
        self.phase = phase

    @contextmanager
    def passed_on(self, other: RunningTrial) -> Iterator[None]:
        """While the block runs, `other` stands for this one: a stop reaches it, its waits count."""

        def stop() -> None:
            other.stop(self.stop_reason or StopReason.INTERRUPTED, self.message)

        self._waits = replace(self._waits, other=other)
        self.on_stop(stop)
        try:
            yield
        finally:
            self.on_stop(None)
            self._waits = _Waits(past_s=self.waited_s)

    def subscribe(self, subscriber: Callable[[Point], None]) -> None:
        """Have `subscriber` called with each point from now on.

        The call comes from the thread that reads the kernel's messages, so it must be quick.
        """
        self._subscribers.append(subscriber)

    def publish(self, point: Point) -> None:
        """Hand a point to all subscribers, in the order in which they subscribed.

        Where another source of a metric counts, they get a library's value under a name that says
        so, and no other value.
        """
        if point.source in _SENT:
            self.reports += 1
        if point.source is PointSource.PRINTED and point.step is not None:
            # Its step is a position, which follows those of earlier attempts.
            names = [*point.metrics, *point.unread, *point.too_slow]
            before = max((self.steps_before.get(name, 0) for name in names), default=0)
            point = replace(point, step=point.step + before)
        self.record(point)
        self._hand_on(replace(point, metrics=self._counted(point), unread={}, too_slow=()))

    def _counted(self, point: Point) -> dict[str, float]:
        """Name the values of a point by whether its source counts; leave out what has no name."""
        rank = RANKS[point.source]
        counted = {}
        for name, value in point.metrics.items():
            if rank <= self.ranks.get(name, rank):
                self.ranks[name] = rank
                counted[name] = value
            elif point.library:
                counted[lesser_name(name, point.library)] = value
        return counted

    def _hand_on(self, point: Point) -> None:
        if not point.metrics:
            return
        if point.step is not None and point.step != self.step:
            self.step = point.step
            self.steps += 1
        self.metrics.update(point.metrics)
        for subscriber in self._subscribers:
            subscriber(point)

    def stop(self, reason: StopReason, message: str = "") -> None:
        """Ask the trial to stop; the first reason counts, later calls do nothing.

        A frozen trial goes on to its end.
        """
        with self._lock:
            if self.stop_reason is not None:
                return
            self.message = message
            self.stop_reason = reason  # last: who reads it reads the message next
            self._wake(Phase.LEAVING)
            callback = self._on_stop
        if callback is not None:
            callback()

    def on_stop(self, callback: Callable[[], object] | None) -> None:
        """Have `callback` called when a stop arrives, at once if one already has."""
        with self._lock:
            self._on_stop = callback
            stopped = self.stop_reason is not None
        if stopped and callback is not None:
            callback()
