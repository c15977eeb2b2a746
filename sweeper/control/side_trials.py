"""Trials that are run beside all studies: a list of them, given to an executor one by one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from ..execution.executor import TimeLeft
from ..notebook_api.messages import StopReason
from ..trials import RunningTrial, TrialOutcome, TrialSpec

_Item = TypeVar("_Item")


class SideTrials(TimeLeft, Generic[_Item]):
    """The `TrialSource` of an executor that runs what a list has. Safe to call from any thread.

    Args:
        items: what trials are made of, in the order in which they are run.
        begin: makes the spec of a trial that begins now.
        end: notes how a trial has ended; where it returns False, no more begin.
    """

    def __init__(
        self,
        items: Sequence[_Item],
        *,
        begin: Callable[[_Item, RunningTrial], TrialSpec],
        end: Callable[[_Item, TrialSpec, TrialOutcome], bool],
    ) -> None:
        self._begin, self._end = begin, end
        self._lock = threading.Lock()
        self._waiting = list(items)
        self._running: dict[int, tuple[_Item, RunningTrial]] = {}

    def next_trial(self) -> tuple[TrialSpec, RunningTrial] | None:
        """The next trial; None when all have begun."""
        with self._lock:
            if not self._waiting:
                return None
            item = self._waiting.pop(0)
            running = RunningTrial(trials_left=len(self._waiting))
        spec = self._begin(item, running)
        with self._lock:
            self._running[spec.number] = item, running
        return spec, running

    def finish_trial(self, spec: TrialSpec, outcome: TrialOutcome) -> None:
        """Note how a trial has ended."""
        with self._lock:
            item, _ = self._running.pop(spec.number)
        if not self._end(item, spec, outcome):
            with self._lock:
                self._waiting.clear()

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
