"""Some trials run once more: alone after a lack of memory, alone or elsewhere after a GPU fault."""

from __future__ import annotations

from dataclasses import replace

import pytest
from studies import trial_record

from sweeper.sweep.scheduling.shortages import RunAgain, Shortages, run_again
from sweeper.testing import trial_spec
from sweeper.trials import AloneOn, GpuUse, Reason, TrialOutcome, TrialRecord, TrialState

FAILED = TrialOutcome(state=TrialState.FAILED, gpu=GpuUse(peak_bytes=8))


def record(number: int, state: str = "running", reason: Reason | None = None) -> TrialRecord:
    return trial_record(number, state=TrialState(state), reason=reason)


@pytest.mark.parametrize(
    ("reason", "alone_on", "how"),
    [
        (Reason.OUT_OF_MEMORY, AloneOn.GPU, RunAgain.ALONE_ON_GPU),
        (Reason.GPU_FAULT, AloneOn.GPU, RunAgain.ALONE_ON_GPU),
        (Reason.OUT_OF_HOST_MEMORY, AloneOn.MACHINE, RunAgain.ALONE_ON_MACHINE),
    ],
)
def test_a_trial_that_lacked_memory_or_met_a_gpu_fault_runs_once_more_alone_on_gpu_or_machine(
    reason: Reason, alone_on: AloneOn, how: RunAgain
) -> None:
    shortages, spec = Shortages([]), trial_spec()
    short = replace(FAILED, reason=reason)
    assert shortages.alone_on(record(spec.number)) is None
    assert run_again(spec, short) is how
    shortages.note(spec.number, how)
    assert shortages.alone_on(record(spec.number)) is alone_on
    assert shortages.alone_on(record(spec.number + 1)) is None
    assert run_again(replace(spec, alone_on=alone_on), short) is None, "the trial was alone already"
    assert run_again(spec, replace(short, is_infeasible=True)) is None
    assert run_again(spec, replace(FAILED, reason=Reason.CELL_ERROR)) is None


def test_a_trial_that_ran_out_of_gpu_memory_without_a_known_gpu_is_not_run_again() -> None:
    short = replace(FAILED, reason=Reason.OUT_OF_MEMORY, gpu=None)
    assert run_again(trial_spec(), short) is None


def test_a_trial_whose_gpu_has_failed_runs_again_on_another_gpu_and_not_alone() -> None:
    shortages, spec = Shortages([]), trial_spec()
    lost = replace(FAILED, state=TrialState.STOPPED, reason=Reason.GPU_FAULT)
    assert run_again(spec, lost) is RunAgain.ELSEWHERE
    shortages.note(spec.number, RunAgain.ELSEWHERE)
    assert shortages.alone_on(record(spec.number)) is None


def test_a_trial_stopped_for_lack_of_memory_runs_alone_in_the_next_sweep() -> None:
    short = Reason.OUT_OF_HOST_MEMORY
    earlier = [record(0, "stopped", short), record(1, "failed", short), record(2, "stopped")]
    shortages = Shortages(earlier)
    expected = [AloneOn.MACHINE, None, None]
    assert [shortages.alone_on(record(number)) for number in range(3)] == expected
