"""Test how a failure is classified, depending on whether memory and GPU were shared."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sweeper.machine.faults import Fault
from sweeper.machine.settling import Circumstances, settled
from sweeper.trials import Reason, TrialOutcome, TrialState

ALONE = Circumstances(
    fault=None,
    has_gpu=True,
    had_gpu_memory=True,
    had_host_memory=True,
    shared_with_sweep=False,
    shares_by_mps=False,
    failed_gpus=None,
)
BESIDE = replace(ALONE, had_gpu_memory=False, had_host_memory=False)
MPS = replace(BESIDE, shares_by_mps=True)


@pytest.mark.parametrize(
    ("reason", "had", "counts_as", "is_infeasible"),
    [
        (Reason.OUT_OF_MEMORY, ALONE, Reason.OUT_OF_MEMORY, True),
        (Reason.OUT_OF_MEMORY, BESIDE, Reason.OUT_OF_MEMORY, False),
        (Reason.OUT_OF_HOST_MEMORY, ALONE, Reason.OUT_OF_HOST_MEMORY, True),
        (Reason.OUT_OF_MEMORY, replace(BESIDE, has_gpu=False), Reason.OUT_OF_HOST_MEMORY, False),
        (
            Reason.OUT_OF_MEMORY,
            replace(ALONE, fault=Fault.MAYBE_GPU_MEMORY),
            Reason.CELL_ERROR,
            False,
        ),
        (Reason.CELL_ERROR, ALONE, Reason.CELL_ERROR, False),
        (Reason.CELL_ERROR, replace(MPS, fault=Fault.CUDA), Reason.GPU_FAULT, False),
        (Reason.CELL_ERROR, replace(BESIDE, fault=Fault.CUDA), Reason.CELL_ERROR, False),
    ],
)
def test_the_reason_of_a_failure_depends_on_whether_the_trial_shared_memory_and_gpu(
    reason: Reason, had: Circumstances, counts_as: Reason, is_infeasible: bool
) -> None:
    failed = TrialOutcome(state=TrialState.FAILED, reason=reason, message="why")
    outcome = settled(failed, had)
    assert outcome.state is TrialState.FAILED
    assert (outcome.reason, outcome.is_infeasible) == (counts_as, is_infeasible)
    assert "why" in outcome.message


def test_a_trial_that_lacked_memory_next_to_another_sweep_is_stopped_and_run_again() -> None:
    reason = Reason.OUT_OF_HOST_MEMORY
    failed = TrialOutcome(state=TrialState.FAILED, reason=reason, message="why")
    outcome = settled(failed, replace(BESIDE, shared_with_sweep=True))
    assert (outcome.state, outcome.reason) == (TrialState.STOPPED, reason)
    assert not outcome.is_infeasible
    assert "another sweep" in outcome.message and "why" in outcome.message


def test_a_trial_whose_gpu_has_failed_is_stopped_with_the_reason_gpu_fault() -> None:
    failed = TrialOutcome(state=TrialState.FAILED, reason=Reason.CELL_ERROR, message="why")
    outcome = settled(failed, replace(ALONE, failed_gpus="GPU-a"))
    assert (outcome.state, outcome.reason) == (TrialState.STOPPED, Reason.GPU_FAULT)
    assert "GPU-a" in outcome.message and "why" in outcome.message
