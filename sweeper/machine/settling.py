"""Decide the final state and reason of a failed trial, from the memory and GPUs it could use."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..trials import Reason, TrialOutcome, TrialState
from .faults import Fault

_DOES_NOT_FIT = {
    Reason.OUT_OF_MEMORY: "does not fit on this GPU, even alone",
    Reason.OUT_OF_HOST_MEMORY: (
        "does not fit into this machine's memory, even with no other trial running"
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """The conditions under which a trial ran until it failed.

    Attributes:
        fault: Fault that the trial's message reports. None if it reports no known fault.
        has_gpu: Whether the sweep gave the trial a GPU.
        had_gpu_memory: Whether the trial could use all memory of its GPU, and no other GPU of the
            sweep has clearly more.
        had_host_memory: Whether the trial could use all memory of the machine, because it is known
            that no other trial ran there at the same time.
        shared_with_sweep: Whether the trial ran alone in its sweep, but next to another sweep.
        shares_by_mps: Whether the trial shared its GPU through MPS. Another trial may then have
            caused the error.
        failed_gpus: UUIDs of the trial's GPUs that have failed, in one line. None if all work.
    """

    fault: Fault | None
    has_gpu: bool
    had_gpu_memory: bool
    had_host_memory: bool
    shared_with_sweep: bool
    shares_by_mps: bool
    failed_gpus: str | None


def settled(outcome: TrialOutcome, had: Circumstances) -> TrialOutcome:
    """Return the outcome of a failed trial, corrected by the conditions under which it ran.

    - A trial that ran out of memory although it could use all of it is infeasible: no trial with
      its params fits into memory. If its message can also mean another error
      (`Fault.MAYBE_GPU_MEMORY`), its reason becomes `cell_error` instead.
    - A trial that ran out of host memory alone in its sweep, but next to another sweep, ends as
      stopped, so that it runs again.
    - A trial whose GPU has failed or no longer answers ends as stopped, so that it runs again on
      another GPU.
    - A trial that shared its GPU through MPS and failed with a CUDA error gets the reason
      `gpu_fault`, because another trial may have caused the error.
    """
    reason = outcome.reason
    if reason is Reason.OUT_OF_MEMORY and not had.has_gpu:
        # The message is about GPU memory, although the trial has no GPU. Either XLA uses these
        # words for the memory of the CPU, or the notebook uses a GPU that the sweep does not know.
        reason = Reason.OUT_OF_HOST_MEMORY
        outcome = replace(outcome, reason=reason)
    message = outcome.message
    if reason is Reason.OUT_OF_MEMORY:
        had_all_memory = had.had_gpu_memory
    elif reason is Reason.OUT_OF_HOST_MEMORY:
        had_all_memory = had.had_host_memory
    elif had.failed_gpus is not None:
        message = f"{had.failed_gpus} has failed; the trial's message: {message}"
        reason = Reason.GPU_FAULT
        return replace(outcome, state=TrialState.STOPPED, reason=reason, message=message)
    elif had.fault is Fault.CUDA and had.shares_by_mps:
        return replace(outcome, reason=Reason.GPU_FAULT)
    else:
        return outcome
    if had_all_memory:
        if had.fault is Fault.MAYBE_GPU_MEMORY:
            return replace(outcome, reason=Reason.CELL_ERROR)
        message = f"{_DOES_NOT_FIT[reason]}: {message}"
        return replace(outcome, message=message, is_infeasible=True)
    if reason is Reason.OUT_OF_HOST_MEMORY and had.shared_with_sweep:
        message = f"another sweep uses this machine's memory, too: {message}"
        return replace(outcome, state=TrialState.STOPPED, message=message)
    return outcome
