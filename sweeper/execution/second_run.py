"""Decide whether a failed trial runs again because its kernel may be the cause."""

from __future__ import annotations

from enum import Enum, auto

from ..kernels import CellFailed, KernelOrigin, KernelResult, Raised
from ..trials import Reason, TrialOutcome, TrialState

#: A trial that fails in a forked kernel within this many seconds runs again in a fresh kernel
#: (chosen, not measured). Code that does not work after a fork fails early. An example is CUDA that
#: was initialized before the fork.
_EARLY_S = 120.0
#: Reasons of a failure that the kernel cannot cause: memory that ran out, a full disk, and bugs of
#: the sweeper. A trial that failed for one of them does not run again in a fresh kernel.
_NOT_BY_THE_KERNEL = frozenset(
    {Reason.OUT_OF_MEMORY, Reason.OUT_OF_HOST_MEMORY, Reason.FILE, Reason.INTERNAL}
)

#: How the kernel of a trial that runs again is made: as a new process, for this reason.
STARTED_ANEW = KernelOrigin(reason="the trial was run before, and failed or lost its kernel")
#: How the next kernel of a trial is made if a kernel did not start: as a new process.
AFTER_NO_KERNEL = KernelOrigin(reason="an earlier kernel of this trial did not start")


class SecondRun(Enum):
    """Why a trial that failed in a forked kernel runs again in a fresh one, a new process."""

    KERNEL_LOST = auto()  # The process from which the kernel was forked has ended.
    COMPARISON = auto()  # If the trial does not fail again, forking has caused the failure.


def decide_second_run(
    result: KernelResult, outcome: TrialOutcome, *, took_s: float, is_stopped: bool
) -> SecondRun | None:
    """Return why a trial runs again in a fresh, not forked kernel. None if it does not.

    Args:
        result: How the kernel ended.
        outcome: Outcome of the first run.
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


def kind_of_failure(
    result: KernelResult, outcome: TrialOutcome
) -> tuple[Reason | None, Raised | None]:
    """Return the kind of a failure: its reason, and the exception and the cell that raised it.

    Only the first failure of each kind is run again in a fresh kernel, which shows whether the
    fork was the cause.
    """
    raised = result.ending.raised if isinstance(result.ending, CellFailed) else None
    return outcome.reason, raised


class NoKernelError(Exception):
    """No kernel has started, so no cell of the notebook has run."""


def is_no_kernel(error: Exception) -> bool:
    """Return whether an error means that no kernel has started, which may be temporary."""
    return isinstance(error, NoKernelError)
