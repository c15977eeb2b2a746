"""Run a list of trials that belong to no study, as `check` and `replay` do."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from ..notebook_api.messages import StopReason
from ..trials import RunningTrial, TrialOutcome, TrialSpec
from .executor import TimeLeft


class SideTrials(TimeLeft):
    """A `TrialSource` that gives an executor the trials of a list. All methods are thread-safe.

    Args:
        specs: The trials, in the order in which they are run.
        begin: Called with each trial that begins.
        end: Called with each trial that has ended. If it returns False, no further trial begins.
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
        """Return the next trial, or None if all have begun."""
        with self._lock:
            if not self._waiting:
                return None
            spec = self._waiting.pop(0)
            running = self._running[spec.number] = RunningTrial(trials_left=len(self._waiting))
        self._begin(spec, running)
        return spec, running

    def finish_trial(self, spec: TrialSpec, outcome: TrialOutcome) -> None:
        """Pass the outcome of a trial to `end`, which decides whether further trials begin."""
        with self._lock:
            del self._running[spec.number]
        if not self._end(spec, outcome):
            with self._lock:
                self._waiting.clear()

    def is_closed(self) -> bool:
        """Return whether no further trial begins."""
        with self._lock:
            return not self._waiting

    def stop(self, reason: str) -> None:
        """Stop the running trials, and begin no further ones."""
        with self._lock:
            self._waiting.clear()
            running = list(self._running.values())
        for trial in running:
            trial.control.stop(StopReason.INTERRUPTED, reason)
