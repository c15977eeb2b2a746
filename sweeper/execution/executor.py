"""What an executor is: a place with slots, which runs the trials of a source."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ..trials import RunningTrial, TrialOutcome, TrialSpec


class TimeLeft(Protocol):
    """How long the place where trials run may still wait and go on.

    Both times change during a sweep, as when the machine's owner announces to take it away, so the
    place asks each time. Safe to call from any thread.
    """

    def patience_s(self) -> float:
        """How long to wait for a disk that is full or away, in seconds."""
        return 0.0

    def left_s(self) -> float | None:
        """How long the sweep still has, in seconds; None for as long as it takes."""
        return None


class TrialSource(TimeLeft, Protocol):
    """Gives out trials and takes their outcomes: a sweep, as its executor sees it.

    Safe to call from any thread; the executor calls `next_trial` whenever one of its slots is free.
    """

    def next_trial(self) -> tuple[TrialSpec, RunningTrial] | None:
        """The trial that a free slot runs now; None when there are no more.

        With `study.order: fixed` the call may last until another trial has ended, so that trial's
        end comes from another thread.

        Returns:
            its spec, which is all that the place where it runs needs to know and can be pickled;
            and the running trial, which stays with the caller: the trial's points are published to
            it, and a stop comes from it.
        """

    def finish_trial(self, spec: TrialSpec, outcome: TrialOutcome) -> None:
        """Record how a trial ended; called once for each trial that was given out."""

    def is_closed(self) -> bool:
        """Whether it gives out no more trials, because it was stopped."""

    def stop(self, reason: str) -> None:
        """Give out no more trials, and stop those that run: the executor cannot go on."""


class Executor(Protocol):
    """A place where trials run.

    Attributes:
        jobs: how many trials run at once.
        description: what the place has beside its slots, such as `2 GPU`; may be empty.
        can_freeze: whether a trial that is frozen gives its slot to others.
    """

    @property
    def jobs(self) -> int: ...

    @property
    def description(self) -> str: ...

    @property
    def can_freeze(self) -> bool: ...

    def run(self, source: TrialSource) -> Sequence[str]:
        """Keep all slots busy until there are no more trials and the last one has ended.

        A trial that cannot be run to its end, because the place itself fails, ends as stopped, with
        the reason `Reason.WORKER_LOST`; no call ends with an exception for a trial's sake.

        Returns:
            what users should know of how the trials ran, one sentence each.
        """
