"""Control a running trial from outside: stop, freeze and thaw it, and count its time.

A frozen trial is paused: its kernel is stopped by SIGSTOP, and another trial runs in its slot. To
thaw it is to let it continue. A sweep has as many slots as trials may run at once.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import Enum

from ..notebook_api.messages import StopReason
from .chores import Chore


class Phase(Enum):
    """State of a trial that has begun: whether it holds one of the sweep's slots, and if not, why.

    A sweep has as many slots as trials may run at once. Only `Control` changes a trial's phase.
    """

    RUNNING = "runs in a slot"
    FROZEN = "is frozen, without a slot"
    LEAVING = "was stopped while it was frozen, and ends without a slot"
    LOST = "lost its kernel while it was frozen, or could not return to its GPU"
    #: The proof is a comparison of a forked kernel with a fresh one: both must give equal numbers.
    WITHHELD = "has run in a forked kernel, and waits without a slot for the proof"
    ENDED = "has ended"


@dataclass(frozen=True, kw_only=True)
class _Waits:
    """How long a trial has waited. The object is never changed, because other threads read it.

    Attributes:
        past_s: Seconds of the waits that are over.
        since_s: Time at which the present wait began, in seconds on the monotonic clock. None if
            the trial does not wait.
        other: Control of a trial that runs in place of this one, such as the second run of a failed
            trial. The waits of that trial count too.
    """

    past_s: float = 0.0
    since_s: float | None = None
    other: Control | None = None

    @property
    def all_s(self) -> float:
        """Seconds of all waits until now."""
        present_s = 0.0 if self.since_s is None else time.monotonic() - self.since_s
        return self.past_s + present_s + (0.0 if self.other is None else self.other.waited_s)


@dataclass(frozen=True, kw_only=True)
class Blocked:
    """Why a trial cannot begin, or cannot be frozen, now.

    Attributes:
        by: Frozen trials that use the missing memory or GPU. Empty if it would not help to end
            frozen trials: for example, running trials use the memory or GPU, or trials that are
            just ending will free it.
        lacks_gpu: Whether memory of a GPU is missing. Then it helps to move the GPU memory of a
            frozen trial to host memory. Otherwise, a frozen trial has to end.
    """

    by: Collection[Control] = ()
    lacks_gpu: bool = False


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Functions that check or move a trial's memory when the trial is frozen (paused) or thawed.

    Attributes:
        blocked: Function that returns why the trial cannot be frozen now. It returns None if
            another trial has room while this one is frozen.
        can_leave_gpu: Function that returns whether the frozen trial can give its GPU memory to
            other trials.
        leave_gpu: Function that moves the frozen trial's GPU memory to host memory. It returns
            whether this was possible.
        return_to_gpu: Function that waits for GPU memory and moves the trial's memory back. It
            returns False if the trial was stopped or lost its kernel in the meantime.
    """

    blocked: Callable[[], Blocked | None] = lambda: None
    can_leave_gpu: Callable[[], bool] = lambda: False
    leave_gpu: Callable[[], bool] = lambda: False
    return_to_gpu: Callable[[], bool] = lambda: True


class Control:
    """Stops, freezes and thaws a running trial, and counts its time. All methods are thread-safe.

    Args:
        make_room: Function that is called while frozen trials use the memory or the GPU for which
            the trial waits. It may end one of them, or move its GPU memory to host memory.

    Attributes:
        stop_reason: Why the trial was asked to stop. None if it was not.
        message: Why the trial was asked to stop, for people. Empty if it was not, or if the call of
            `stop` had no message.
        phase: State of the trial, which says whether it holds a slot.
        is_off_gpu: Whether the trial's GPU memory is in host memory, or on its way there or back.
            Then a stop ends the kernel at once.
        chore: Work that the trial's slot does for the sweep before the trial begins, such as a
            comparison of forked with fresh kernels. None if there is none.
    """

    def __init__(self, make_room: Callable[[Blocked], object] = lambda _: None) -> None:
        # The lock is reentrant. A signal handler may stop a trial while it interrupts a thread that
        # is just stopping the same trial.
        self._lock = threading.RLock()
        self.stop_reason: StopReason | None = None
        self.message = ""
        self.phase = Phase.RUNNING
        self.is_off_gpu = False
        self.chore: Chore | None = None
        self._make_room = make_room
        self._waits_for = ""
        self._machine = Machine()
        # The trial adds a permit each time it frees its slot. `wait_for_rest` takes the permit.
        self._rests = threading.Semaphore(0)
        self._on_stop: Callable[[], object] | None = None
        self._stand_still: Callable[[bool], bool] | None = None
        self._waits = _Waits()
        self._created_s = time.monotonic()

    # --- a stop -----------------------------------------------------------------------------------

    def stop(self, reason: StopReason, message: str = "") -> None:
        """Ask the trial to stop. Only the first call has an effect.

        A frozen trial is thawed so that it can end, without a slot.

        Args:
            reason: Why the trial is stopped.
            message: Why the trial is stopped, for people.
        """
        with self._lock:
            if self.stop_reason is not None:
                return
            self.message = message
            # Set the reason after the message: a thread that sees the reason reads the message.
            self.stop_reason = reason
            self._wake(Phase.LEAVING)
            callback = self._on_stop
        if callback is not None:
            callback()

    def on_stop(self, callback: Callable[[], object] | None) -> None:
        """Set a function to call when the trial is stopped.

        If the trial was stopped already, the function is called at once.

        Args:
            callback: Function that replaces the one of an earlier call. None to call no function.
        """
        with self._lock:
            self._on_stop = callback
            stopped = self.stop_reason is not None
        if stopped and callback is not None:
            callback()

    @contextmanager
    def limited(self, limit_s: float | None) -> Iterator[None]:
        """Stop the trial if the `with` block runs longer than `limit_s` seconds.

        The time for which the trial waits or is frozen does not count.

        Args:
            limit_s: Time limit in seconds. None for no limit.
        """
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
        """Let another trial run in place of this one while the `with` block runs.

        A stop of this trial also stops the other trial. The other trial's waits count as waits of
        this trial, and the sweep frees memory for the other trial as for this one.

        Args:
            other: Control of the trial that runs in place of this one.
        """

        def stop() -> None:
            other.stop(self.stop_reason or StopReason.INTERRUPTED, self.message)

        other._make_room = self._make_room
        self._waits = replace(self._waits, other=other)
        self.on_stop(stop)
        try:
            yield
        finally:
            self.on_stop(None)
            self._waits = _Waits(past_s=self.waited_s)

    # --- the trial's slot -----------------------------------------------------------------------

    @property
    def is_frozen(self) -> bool:
        """Whether the trial is frozen: its kernel is paused and it holds no slot."""
        return self.phase is Phase.FROZEN

    def on_freeze(self, stand_still: Callable[[bool], bool] | None) -> None:
        """Set the function that pauses the trial's kernel and lets it continue.

        Args:
            stand_still: Function that is called with True to pause the kernel, and with False to
                let it continue. It returns whether that was possible. Pass None when the kernel
                has ended: a trial that is frozen then, or on its way back to its GPU, gets the
                phase LOST.
        """
        with self._lock:
            self._stand_still = stand_still
            is_on_its_way = self.phase is Phase.RUNNING and self.is_off_gpu
            if stand_still is None and (self.phase is Phase.FROZEN or is_on_its_way):
                self._enter(Phase.LOST)

    def note_machine(self, machine: Machine) -> None:
        """Store functions to call when the trial is frozen (paused) or thawed. Call none yet."""
        self._machine = machine

    def blocked(self) -> Blocked | None:
        """Return why the trial cannot be frozen (paused) now. None if another could then run."""
        if self._stand_still is None:  # No kernel, or another trial runs instead (`passed_on`).
            return Blocked()
        return self._machine.blocked()

    def can_leave_gpu(self) -> bool:
        """Return whether a frozen (paused) trial's GPU memory can be moved to host memory.

        False if the trial is not frozen, or if its GPU memory was moved already.
        """
        is_on_gpu = self.phase is Phase.FROZEN and not self.is_off_gpu
        return is_on_gpu and self._machine.can_leave_gpu()

    def freeze(self) -> bool:
        """Pause the trial's kernel and free its slot. Return whether that was possible."""
        has_room = self.blocked() is None
        with self._lock:
            is_running = self.phase is Phase.RUNNING and self.stop_reason is None
            is_running &= not self.is_off_gpu
            if not (has_room and is_running) or self._stand_still is None:
                return False
            # Set the phase before the pause, which writes the phase into the executed notebook.
            self._enter(Phase.FROZEN)
            if not self._stand_still(True):
                self._enter(Phase.RUNNING)
                return False
            self._rests.release()
            return True

    def leave_gpu(self) -> bool:
        """Move a frozen (paused) trial's GPU memory to host memory. Return whether it was possible.

        This takes seconds. A call of `stop` does not wait for it.
        """
        with self._lock:
            if self.phase is not Phase.FROZEN or self.is_off_gpu:
                return False
            self.is_off_gpu = True
        is_off = self._machine.leave_gpu()
        with self._lock:
            self.is_off_gpu = is_off
        return is_off

    def thaw(self) -> bool:
        """Let a frozen trial continue in the caller's slot. Return False if it is not frozen.

        If the trial's GPU memory was moved to host memory, a thread first waits for GPU memory.
        """
        return self._wake(Phase.RUNNING)

    def end(self) -> None:
        """Record that the trial has ended (the phase `ENDED`), and free its slot."""
        with self._lock:
            self._enter(Phase.ENDED)
        self._rests.release()

    def withhold(self) -> None:
        """Free the slot of a trial that has run in a forked kernel. Its result does not count yet.

        It counts once a comparison has shown that forked kernels give the same numbers as fresh
        ones.
        """
        with self._lock:
            self._enter(Phase.WITHHELD)
        self._rests.release()

    def wait_for_rest(self) -> None:
        """Wait until the trial frees the caller's slot: by `freeze`, `withhold` or `end`."""
        self._rests.acquire()
        if self.phase is Phase.ENDED:
            self._rests.release()  # Let all other waiting threads return too.

    def _wake(self, phase: Phase) -> bool:
        with self._lock:
            if self.phase is not Phase.FROZEN or self._stand_still is None:
                return False
            self._enter(phase)
            if phase is Phase.RUNNING and self.is_off_gpu:
                threading.Thread(target=self._return_to_gpu, name="return", daemon=True).start()
            else:
                self._stand_still(False)
            return True

    def _return_to_gpu(self) -> None:
        with self.waiting():
            is_back = self._machine.return_to_gpu()
        with self._lock:
            if is_back and self._stand_still is not None:
                self.is_off_gpu = False
                self._stand_still(False)

    def _enter(self, phase: Phase) -> None:
        if phase is Phase.FROZEN:
            self._waits = replace(self._waits, since_s=time.monotonic())
        elif self.phase is Phase.FROZEN:
            self._waits = _Waits(past_s=self.waited_s)
        self.phase = phase

    # --- the trial's clock and its waits --------------------------------------------------------

    @property
    def own_s(self) -> float:
        """Seconds since the trial began, without its waits."""
        # Read the waits before the clock, so that they cannot exceed the time since the start.
        waited_s = self.waited_s
        return time.monotonic() - self._created_s - waited_s

    @property
    def waited_s(self) -> float:
        """Seconds for which the trial waited for memory or a GPU, or was frozen."""
        return self._waits.all_s

    @property
    def waits_for(self) -> str:
        """What the trial waits for, in one line. Empty if it does not wait."""
        other = self._waits.other
        return self._waits_for or ("" if other is None else other.waits_for)

    @waits_for.setter
    def waits_for(self, what: str) -> None:
        self._waits_for = what

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Count the time of the `with` block as a wait of the trial."""
        self._waits = replace(self._waits, since_s=time.monotonic())
        try:
            yield
        finally:
            self._waits = _Waits(past_s=self.waited_s)
            self.waits_for = ""

    def make_room(self, blocked: Blocked) -> None:
        """Ask the sweep to free memory or a GPU that frozen trials use and this trial needs.

        Args:
            blocked: These frozen trials, and whether this trial needs memory of a GPU.
        """
        self._make_room(blocked)
