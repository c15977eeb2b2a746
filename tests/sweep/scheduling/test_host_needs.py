"""Which trials run alone on their machine, because they ran out of its memory beside others."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from sweeper.sweep.scheduling.host_needs import HostNeeds
from sweeper.testing import trial_spec
from sweeper.trials import Reason, TrialOutcome, TrialRecord, TrialState

SHORT = TrialOutcome(state=TrialState.FAILED, reason=Reason.OUT_OF_HOST_MEMORY, message="killed")


def record(number: int, state: str = "running", reason: Reason | None = None) -> TrialRecord:
    return TrialRecord(
        number=number,
        state=TrialState(state),
        params={},
        seed=0,
        attempt=1,
        notebook=Path("0000.ipynb"),
        reason=reason,
    )


def test_a_trial_that_ran_out_of_memory_beside_others_is_alone_in_its_next_attempt() -> None:
    needs, spec = HostNeeds([]), trial_spec()
    assert not needs.is_alone(record(spec.number))
    words = needs.run_again(spec, SHORT)
    assert words is not None
    assert "with no other trial beside it (a smaller -j" in words
    assert needs.is_alone(record(spec.number))
    assert not needs.is_alone(record(spec.number + 1))


def test_a_trial_that_was_alone_or_failed_for_another_reason_is_not_run_again() -> None:
    needs, spec = HostNeeds([]), trial_spec()
    assert needs.run_again(spec, replace(SHORT, is_infeasible=True)) is None
    assert needs.run_again(spec, replace(SHORT, reason=Reason.OUT_OF_MEMORY)) is None
    assert needs.run_again(replace(spec, is_alone=True), SHORT) is None
    assert not needs.is_alone(record(spec.number))


def test_the_next_sweep_runs_a_trial_alone_that_this_one_had_no_time_for() -> None:
    short = Reason.OUT_OF_HOST_MEMORY
    earlier = [record(0, "stopped", short), record(1, "failed", short), record(2, "stopped")]
    needs = HostNeeds(earlier)
    assert [needs.is_alone(record(number)) for number in range(3)] == [True, False, False]
