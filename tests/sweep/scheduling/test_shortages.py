"""Which trials are run once more, alone, because memory ran out or a neighbour may be to blame."""

from __future__ import annotations

from dataclasses import replace

import pytest
from studies import trial_record

from sweeper.sweep.scheduling.shortages import Shortages
from sweeper.testing import trial_spec
from sweeper.trials import AloneOn, GpuUse, Reason, TrialOutcome, TrialRecord, TrialState

FAILED = TrialOutcome(state=TrialState.FAILED, gpu=GpuUse(peak_bytes=8))


def record(number: int, state: str = "running", reason: Reason | None = None) -> TrialRecord:
    return trial_record(number, state=TrialState(state), reason=reason)


@pytest.mark.parametrize(
    ("reason", "alone_on", "words"),
    [
        (Reason.OUT_OF_MEMORY, AloneOn.GPU, "alone on its GPU"),
        (Reason.GPU_FAULT, AloneOn.GPU, "alone on its GPU"),
        (Reason.OUT_OF_HOST_MEMORY, AloneOn.MACHINE, "with no other trial beside it (a smaller -j"),
    ],
)
def test_a_trial_that_ran_out_of_memory_is_run_once_more_alone(
    reason: Reason, alone_on: AloneOn, words: str
) -> None:
    shortages, spec = Shortages([]), trial_spec()
    short = replace(FAILED, reason=reason)
    assert shortages.alone_on(record(spec.number)) is None
    assert (shortages.run_again(spec, short) or "").startswith(words)
    assert shortages.alone_on(record(spec.number)) is alone_on
    assert shortages.alone_on(record(spec.number + 1)) is None
    alone = replace(spec, alone_on=alone_on)
    assert shortages.run_again(alone, short) is None, "it was alone"
    assert Shortages([]).run_again(spec, replace(short, is_infeasible=True)) is None
    assert Shortages([]).run_again(spec, replace(FAILED, reason=Reason.CELL_ERROR)) is None


def test_a_trial_whose_gpu_has_failed_runs_on_another_one_beside_others() -> None:
    shortages, spec = Shortages([]), trial_spec()
    lost = replace(FAILED, state=TrialState.STOPPED, reason=Reason.GPU_FAULT)
    assert shortages.run_again(spec, lost) == "on another GPU"
    assert shortages.alone_on(record(spec.number)) is None


def test_the_next_sweep_runs_a_trial_alone_that_this_one_had_no_time_for() -> None:
    short = Reason.OUT_OF_HOST_MEMORY
    earlier = [record(0, "stopped", short), record(1, "failed", short), record(2, "stopped")]
    shortages = Shortages(earlier)
    expected = [AloneOn.MACHINE, None, None]
    assert [shortages.alone_on(record(number)) for number in range(3)] == expected
