"""Decide whether a failed trial runs again because its kernel may be the cause."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from ..kernels import CellFailed, KernelOrigin, KernelResult, Raised
from ..trials import Reason, TrialOutcome, TrialState

#: A trial that fails in a forked kernel within this many seconds runs again in a started kernel
#: (chosen, not measured). Code that does not work after a fork fails early. An example is CUDA that
#: was initialized before the fork.
_EARLY_S = 120.0
#: Reasons of a failure that the kernel cannot cause: memory that ran out, a full disk, and bugs of
#: the sweeper. A trial that failed for one of them does not run again in a started kernel.
_NOT_BY_THE_KERNEL = frozenset(
    {Reason.OUT_OF_MEMORY, Reason.OUT_OF_HOST_MEMORY, Reason.FILE, Reason.INTERNAL}
)

#: Origin of the kernel for a trial that runs again.
STARTED_ANEW = KernelOrigin(reason="the trial was run before, and failed or lost its kernel")
#: Origin of a kernel that replaces another one, which did not start.
AFTER_NO_KERNEL = KernelOrigin(reason="an earlier kernel of this trial did not start")


class SecondRun(Enum):
    """Why a trial that failed in a forked kernel runs again in a started one."""

    KERNEL_LOST = auto()  # The process from which the kernel was forked has ended.
    COMPARISON = auto()  # If the trial does not fail again, forking has caused the failure.


def decide_second_run(
    result: KernelResult, outcome: TrialOutcome, *, took_s: float, is_stopped: bool
) -> SecondRun | None:
    """Decide whether a trial runs again in a started kernel, and why. None if it does not.

    Args:
        result: Result of the kernel.
        outcome: Outcome of the trial.
        took_s: Running time of the trial in seconds.
        is_stopped: Whether the trial was asked to stop.
    """
    if outcome.state is not TrialState.FAILED or outcome.reason in _NOT_BY_THE_KERNEL:
        return None
    if result.is_orphan:
        return SecondRun.KERNEL_LOST
    if result.origin.is_forked and took_s < _EARLY_S and not is_stopped:
        return SecondRun.COMPARISON
    return None


@dataclass(frozen=True, slots=True)
class FailureKind:
    """Kind of a failure in a forked kernel.

    Only the first failure of each kind is run again in a started kernel, which shows whether the
    fork was the cause.

    Attributes:
        reason: Why the trial failed.
        raised: Exception that a cell has raised, and the cell. None if no cell has failed.
    """

    reason: Reason | None
    raised: Raised | None

    @classmethod
    def of(cls, result: KernelResult, outcome: TrialOutcome) -> FailureKind:
        """Return the kind of a failure."""
        match result.ending:
            case CellFailed(raised=raised):
                return cls(outcome.reason, raised)
        return cls(outcome.reason, None)


class NoKernelError(Exception):
    """No kernel has started, so no cell of the notebook has run."""


def is_no_kernel(error: Exception) -> bool:
    """Return whether an error means that no kernel has started, which may be temporary."""
    return isinstance(error, NoKernelError)
