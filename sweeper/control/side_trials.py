"""Trials that are run beside all studies: a list of them, given to an executor one by one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from ..execution.executor import TimeLeft
from ..notebook_api.messages import StopReason
from ..trials import RunningTrial, TrialOutcome, TrialSpec


class SideTrials(TimeLeft):
    """The `TrialSource` of an executor that runs what a list has. Safe to call from any thread.

    Args:
        specs: the trials, in the order in which they are run.
        begin: called with each that begins.
        end: notes how a trial has ended; where it returns False, no more begin.
    """

    def __init__(
        self,
        specs: Sequence[TrialSpec],
        *,
        begin: Callable[[TrialSpec, RunningTrial], object] = lambda *_: None,
        end: Callable[[TrialSpec, TrialOutcome], bool],
    ) -> None:
        self._begin, self._end = begin, end
        self._lock = threading.Lock()
        self._waiting = list(specs)
        self._running: dict[int, RunningTrial] = {}

    def next_trial(self) -> tuple[TrialSpec, RunningTrial] | None:
        """The next trial; None when all have begun."""
        with self._lock:
            if not self._waiting:
                return None
            spec = self._waiting.pop(0)
            running = self._running[spec.number] = RunningTrial(trials_left=len(self._waiting))
        self._begin(spec, running)
        return spec, running

    def finish_trial(self, spec: TrialSpec, outcome: TrialOutcome) -> None:
        """Note how a trial has ended."""
        with self._lock:
            del self._running[spec.number]
        if not self._end(spec, outcome):
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
            running = list(self._running.values())
        for trial in running:
            trial.control.stop(StopReason.INTERRUPTED, reason)
