"""What goes down to a running trial: a stop, a freeze, a thaw; and how long it has waited."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import Enum

from ..notebook_api.messages import StopReason
from .chores import Chore


class Phase(Enum):
    """Whether a trial holds a slot; `Control` has all ways from one to another."""

    RUNNING = "in a slot"
    FROZEN = "stands still, without a slot"
    LEAVING = "was stopped while it was frozen, and ends without a slot"
    LOST = "its kernel died while it was frozen"
    ENDED = "has ended"


@dataclass(frozen=True, kw_only=True)
class _Waits:
    """How long a trial has waited: replaced as a whole, as other threads read it.

    Attributes:
        past_s: The time of the waits that are over.
        since_s: When the present wait began; None while there is none.
        other: That of the trial that stands for this one, whose waits count.
    """

    past_s: float = 0.0
    since_s: float | None = None
    other: Control | None = None

    @property
    def all_s(self) -> float:
        """The time of all waits until now."""
        present_s = 0.0 if self.since_s is None else time.monotonic() - self.since_s
        return self.past_s + present_s + (0.0 if self.other is None else self.other.waited_s)


class Control:
    """Stops, freezes and thaws a running trial, and has its clock. Safe to use from any thread.

    Args:
        make_room: See the method.

    Attributes:
        stop_reason: Why the trial was asked to stop; None as long as it was not.
        message: The same for people.
        phase: Whether the trial holds a slot.
        waits_for: What the trial waits for, in one line; empty when it does not.
        chore: What its slot does for the sweep before the trial begins; None for nothing.
    """

    def __init__(self, make_room: Callable[[], object] = lambda: None) -> None:
        # Reentrant: a signal handler may stop a trial that its own thread is just stopping.
        self._lock = threading.RLock()
        self.stop_reason: StopReason | None = None
        self.message = ""
        self.phase = Phase.RUNNING
        self.waits_for = ""
        self.chore: Chore | None = None
        self._make_room = make_room
        self._has_room: Callable[[], bool] = lambda: True
        # One permit for each slot that the trial gives back.
        self._rests = threading.Semaphore(0)
        self._on_stop: Callable[[], object] | None = None
        self._stand_still: Callable[[bool], bool] | None = None
        self._waits = _Waits()
        self._created_s = time.monotonic()

    # --- a stop -----------------------------------------------------------------------------------

    def stop(self, reason: StopReason, message: str = "") -> None:
        """Ask the trial to stop; the first reason counts, later calls do nothing.

        A frozen trial continues to its end.
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
        """Call `callback` when a stop arrives, at once if one already has."""
        with self._lock:
            self._on_stop = callback
            stopped = self.stop_reason is not None
        if stopped and callback is not None:
            callback()

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

    @contextmanager
    def passed_on(self, other: Control) -> Iterator[None]:
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

    # --- its slot ---------------------------------------------------------------------------------

    @property
    def is_frozen(self) -> bool:
        """Whether the trial's kernel stands still."""
        return self.phase is Phase.FROZEN

    def on_freeze(self, stand_still: Callable[[bool], bool] | None) -> None:
        """Freeze and thaw the trial by `stand_still`, while it has a kernel.

        Args:
            stand_still: Called with whether the kernel is to stand still; it returns whether that
                was possible. None where there is no kernel any more: a frozen trial has lost it,
                and is not thawed.
        """
        with self._lock:
            self._stand_still = stand_still
            if self.phase is Phase.FROZEN and stand_still is None:
                self._enter(Phase.LOST)

    def note_machine(self, has_room: Callable[[], bool]) -> None:
        """Note how to ask the trial's machine whether it would carry another one beside it."""
        self._has_room = has_room

    def has_room(self) -> bool:
        """Whether the trial's machine would carry another one while this one is frozen."""
        return self._has_room()

    def freeze(self) -> bool:
        """Let the kernel stand still, so that the slot is free; False where nothing changed."""
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
        """Let a frozen trial continue in a slot of the caller's; False where it is not frozen."""
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

    # --- its clock, and what it waits for ---------------------------------------------------------

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
        """Count the time of the block as waiting; see `wait_for`."""
        self._waits = replace(self._waits, since_s=time.monotonic())
        try:
            yield
        finally:
            self._waits = _Waits(past_s=self.waited_s)
            self.waits_for = ""

    def wait_for(self, what: str) -> None:
        """Say what the trial waits for."""
        self.waits_for = what

    def make_room(self) -> None:
        """Ask the sweep for room on the machine, as the trial waits for its place."""
        self._make_room()

    def note_chore(self, chore: Chore | None) -> None:
        """Note what the trial's slot does for the sweep; None for nothing any more."""
        self.chore = chore
