"""What a trial's failure counts as, by what it had of the machine."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..trials import Reason, TrialOutcome, TrialState
from .faults import Fault

_DOES_NOT_FIT = {
    Reason.OUT_OF_MEMORY: "does not fit on this GPU, even alone",
    Reason.OUT_OF_HOST_MEMORY: (
        "does not fit into this machine's memory, even with no other trial beside it"
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """What a trial had of the machine until it failed.

    Attributes:
        fault: What its message is about.
        has_gpu: Whether it had a GPU that its sweep knows.
        had_gpu_memory: Whether it could use all memory of its GPU.
        had_host_memory: Whether no trial ran beside it.
        shares_by_mps: Whether it shared its GPU through MPS, where an error may be another trial's.
        failed_gpus: Those of its GPUs that have failed.
    """

    fault: Fault | None
    has_gpu: bool
    had_gpu_memory: bool
    had_host_memory: bool
    shares_by_mps: bool
    failed_gpus: str


def settled(outcome: TrialOutcome, had: Circumstances) -> TrialOutcome:
    """Return what a failed trial's outcome counts as.

    One that ran out of memory alone is infeasible. One whose GPU has failed or no longer answers
    ends as stopped, to run elsewhere. One that shared its GPU through MPS and failed with an error
    of CUDA has the reason `gpu_fault`, as the error may be another trial's.
    """
    reason = outcome.reason
    if reason is Reason.OUT_OF_MEMORY and not had.has_gpu:
        # Of the CPU, as XLA words it as well, or of a GPU that only the notebook knows.
        reason = Reason.OUT_OF_HOST_MEMORY
    had_all = {
        Reason.OUT_OF_MEMORY: had.had_gpu_memory,
        Reason.OUT_OF_HOST_MEMORY: had.had_host_memory,
    }
    match had_all.get(reason) if reason is not None else None, had.fault:
        case False, _:
            return replace(outcome, reason=reason)
        case True, Fault.MAYBE_GPU_MEMORY:
            return replace(outcome, reason=Reason.CELL_ERROR)
        case True, _:
            assert reason is not None
            message = f"{_DOES_NOT_FIT[reason]}: {outcome.message}"
            return replace(outcome, reason=reason, message=message, is_infeasible=True)
        case None, _ if had.failed_gpus:
            return replace(
                outcome,
                state=TrialState.STOPPED,
                reason=Reason.GPU_FAULT,
                message=f"{had.failed_gpus} has failed; its own message: {outcome.message}",
            )
        case None, Fault.CUDA if had.shares_by_mps:
            return replace(outcome, reason=Reason.GPU_FAULT)
    return outcome
