"""The memory of this machine, which all trials on it share; a trial can have it for itself."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ...trials import RunningTrial, TrialSpec
from .capacity import oom_kills
from .ledger import StoppedWaiting


class Stay:
    """A trial's time on this machine.

    Args:
        root: of the file system with the counts of killed processes.

    Attributes:
        is_alone: whether no other trial of the sweep has run here since it began.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._kills_before = oom_kills(root)
        self.is_alone = True

    @property
    def was_short(self) -> bool:
        """Whether the system has killed a process for want of memory since the trial began."""
        return oom_kills(self._root) > self._kills_before


class HostMemory:
    """Lets trials run beside each other, or one alone; the one that has waited longest is first.

    A trial that has to be alone waits until the kernels of all others are gone, and those that
    come after it wait for its end, so that it does not wait for ever.

    Args:
        root: of the file system with the counts of killed processes.
    """

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._changed = threading.Condition()
        #: The trials that wait, the longest first.
        self._queue: deque[object] = deque()
        self._stays: list[Stay] = []
        self._is_closed = False

    @contextmanager
    def share(self, spec: TrialSpec, running: RunningTrial) -> Iterator[Stay]:
        """Let a trial run here until the end of the block.

        Args:
            spec: says whether the trial has to be alone.
            running: the same trial as it runs: a stop ends the wait at once, and the time that the
                trial waits does not count as its own.

        Raises:
            StoppedWaiting: the trial was stopped while it had to wait.
        """
        stay = self._take(spec, running)
        try:
            yield stay
        finally:
            with self._changed:
                self._stays.remove(stay)
                self._is_closed = False  # a trial that is alone is the only one to leave
                self._changed.notify_all()

    def _take(self, spec: TrialSpec, running: RunningTrial) -> Stay:
        turn = object()
        with self._changed:
            self._queue.append(turn)
        running.on_stop(self._wake)
        try:
            with running.waiting(), self._changed:
                self._changed.wait_for(
                    lambda: self._may_begin(turn, is_alone=spec.is_alone) or running.stop_reason
                )
                if not self._may_begin(turn, is_alone=spec.is_alone):
                    raise StoppedWaiting
                return self._begin(is_alone=spec.is_alone)
        finally:
            running.on_stop(None)
            with self._changed:
                self._queue.remove(turn)
                self._changed.notify_all()  # the next trial is the first now

    def _may_begin(self, turn: object, *, is_alone: bool) -> bool:
        if self._queue[0] is not turn or self._is_closed:
            return False
        return not (is_alone and self._stays)

    def _begin(self, *, is_alone: bool) -> Stay:
        stay = Stay(self._root)
        self._stays.append(stay)
        self._is_closed = is_alone
        if len(self._stays) > 1:
            for each in self._stays:
                each.is_alone = False
        return stay

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()
