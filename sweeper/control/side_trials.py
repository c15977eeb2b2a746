"""Trials that are run beside all studies: a list of them, given to an executor one by one."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from ..notebook_api.messages import StopReason
from ..trials import RunningTrial, TrialOutcome, TrialSpec

_Item = TypeVar("_Item")


class SideTrials(ABC, Generic[_Item]):
    """The `TrialSource` of an executor that runs what a list has. Safe to call from any thread.

    Args:
        items: what subclasses make trials of, in the order in which they are run.
    """

    def __init__(self, items: Sequence[_Item]) -> None:
        self._lock = threading.Lock()
        self._waiting = list(items)
        self._running: dict[int, tuple[_Item, RunningTrial]] = {}

    @abstractmethod
    def begin(self, item: _Item, running: RunningTrial) -> TrialSpec:
        """Make the spec of a trial that begins now."""

    @abstractmethod
    def end(self, item: _Item, spec: TrialSpec, outcome: TrialOutcome) -> None:
        """Note how a trial has ended."""

    def drop(self, is_dropped: Callable[[_Item], bool]) -> None:
        """Leave out some of those that have not begun."""
        with self._lock:
            self._waiting = [item for item in self._waiting if not is_dropped(item)]

    def next_trial(self) -> tuple[TrialSpec, RunningTrial] | None:
        """The next trial; None when all have begun."""
        with self._lock:
            if not self._waiting:
                return None
            item = self._waiting.pop(0)
            running = RunningTrial(trials_left=len(self._waiting))
        spec = self.begin(item, running)
        with self._lock:
            self._running[spec.number] = item, running
        return spec, running

    def finish_trial(self, spec: TrialSpec, outcome: TrialOutcome) -> None:
        """Note how a trial has ended."""
        with self._lock:
            item, _ = self._running.pop(spec.number)
        self.end(item, spec, outcome)

    def is_closed(self) -> bool:
        """Whether no more begin."""
        with self._lock:
            return not self._waiting

    def stop(self, reason: str) -> None:
        """Begin no more, and stop those that run."""
        with self._lock:
            self._waiting.clear()
            running = [trial for _, trial in self._running.values()]
        for trial in running:
            trial.stop(StopReason.INTERRUPTED, reason)

    def patience_s(self) -> float:
        """Do not wait for a disk that is full."""
        return 0.0

    def left_s(self) -> float | None:
        """As long as it takes."""
        return None
