"""Decide whether a trial is run once more because its kernel may be to blame."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from ..kernels import CellFailed, KernelOrigin, KernelResult, Raised
from ..trials import Reason, TrialOutcome, TrialState

#: A trial that fails sooner in a forked kernel is run in a started one as well: what a fork cannot
#: do, such as to use CUDA that was initialised before, fails early.
_EARLY_S = 120.0
#: A started kernel would have no more memory, and a defect of ours would still be there.
_NOT_BY_THE_KERNEL = frozenset({Reason.OUT_OF_MEMORY, Reason.OUT_OF_HOST_MEMORY, Reason.INTERNAL})

#: The kernel of a second run.
STARTED_ANEW = KernelOrigin(reason="the trial was run before, and failed or lost its kernel")
#: The kernel of a trial for which none has started before.
AFTER_NO_KERNEL = KernelOrigin(reason="the kernel before it did not start")


class SecondRun(Enum):
    """Why a trial that failed in a forked kernel is run in a started one."""

    KERNEL_LOST = auto()  # the process that it was forked from has ended
    COMPARISON = auto()  # if it does not fail there, forked kernels are to blame


def decide_second_run(
    result: KernelResult, outcome: TrialOutcome, *, took_s: float, is_stopped: bool
) -> SecondRun | None:
    """Decide whether a trial is run once more, in a started kernel; None where it is not.

    Args:
        took_s: How long the trial ran.
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
    """What two failures have in common that need not both be compared."""

    reason: Reason | None
    raised: Raised | None

    @classmethod
    def of(cls, result: KernelResult, outcome: TrialOutcome) -> FailureKind:
        """Return the kind of a failure: its reason, and which exception which cell has raised."""
        match result.ending:
            case CellFailed(raised=raised):
                return cls(outcome.reason, raised)
        return cls(outcome.reason, None)


class NoKernelError(Exception):
    """No kernel has started, so that the notebook has not begun."""


def is_no_kernel(error: Exception) -> bool:
    """Whether a worker has found that no kernel starts, which may pass."""
    return isinstance(error, NoKernelError)
