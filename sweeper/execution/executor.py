"""Define the interface of executors: an executor runs the trials of a sweep in its slots.

Each slot runs one trial at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ..trials import RunningTrial, TrialOutcome, TrialSpec


class TimeLeft(Protocol):
    """The time that a sweep has left, how long it may wait for a disk, and whether it may write.

    The times change during a sweep, for example when a rented machine is about to be reclaimed. So
    an executor asks each time. The methods are thread-safe.
    """

    def patience_s(self) -> float:
        """Return how many seconds to wait for a disk that is full or unavailable."""
        return 0.0

    def left_s(self) -> float | None:
        """Return how many seconds the sweep has left. None for no limit."""
        return None

    def check_held(self) -> None:
        """Raise `StudyError` if another sweep has taken over the study. Then write nothing more."""
        return


class TrialSource(TimeLeft, Protocol):
    """Hands out trials and records their outcomes: a sweep, from the executor's point of view.

    The executor calls `next_trial` whenever a slot is free. The methods are thread-safe.
    """

    def next_trial(self) -> tuple[TrialSpec, RunningTrial] | None:
        """Return the trial that a free slot runs now. Return None if there are no more trials.

        With `study.order: fixed`, the call may block until another trial ends. So another thread
        must be able to finish that trial.

        Returns:
            The trial's spec and the running trial. A worker needs only the spec, which can be
            pickled. The running trial stays in this process: it receives the trial's points, and
            tells when to stop.
        """

    def finish_trial(self, spec: TrialSpec, outcome: TrialOutcome) -> None:
        """Record the outcome of a trial. Call this once for each trial that was handed out."""

    def is_closed(self) -> bool:
        """Return whether no more trials are handed out, because the sweep was stopped."""

    def stop(self, reason: str) -> None:
        """Stop the running trials and hand out no more, because the executor cannot continue.

        Args:
            reason: Why the executor cannot continue, for people.
        """


class Executor(Protocol):
    """Runs trials in slots, on this machine or elsewhere.

    Attributes:
        jobs: Number of slots, in each of which one trial runs at a time.
        description: Resources in addition to the slots, such as `2 GPU`. May be empty.
        can_freeze: Whether a frozen (paused) trial frees its slot for other trials.
    """

    @property
    def jobs(self) -> int: ...

    @property
    def description(self) -> str: ...

    @property
    def can_freeze(self) -> bool: ...

    def run(self, source: TrialSource) -> Sequence[str]:
        """Keep all slots busy until there are no more trials and the last one has ended.

        If a worker is lost, its trial ends as stopped with the reason `Reason.WORKER_LOST`. A trial
        that fails raises no exception.

        Args:
            source: Sweep that hands out the trials.

        Returns:
            Remarks for users about how the trials ran, one sentence each.
        """
