"""A failed trial runs again if its forked kernel may be the cause."""

from __future__ import annotations

import pytest

from sweeper.execution.second_run import SecondRun, decide_second_run, kind_of_failure
from sweeper.kernels import CellFailed, KernelDied, KernelOrigin, KernelResult, Raised
from sweeper.trials import Reason, TrialOutcome, TrialState

EARLY_S, LATE_S = 1.0, 3600.0
RAISED = CellFailed(Raised(cell=3, exception="ValueError"), "In [3]: ValueError: no")
FORKED = KernelResult(ending=RAISED, origin=KernelOrigin(is_forked=True))
ORPHAN = KernelResult(ending=KernelDied(), origin=KernelOrigin(is_forked=True), is_orphan=True)
STARTED = KernelResult(ending=RAISED, origin=KernelOrigin(is_forked=False))


@pytest.mark.parametrize(
    ("result", "reason", "took_s", "is_stopped", "decided"),
    [
        (FORKED, Reason.CELL_ERROR, EARLY_S, False, SecondRun.COMPARISON),
        (FORKED, Reason.NO_SCORE, EARLY_S, False, SecondRun.COMPARISON),
        (FORKED, Reason.CELL_ERROR, LATE_S, False, None),
        (FORKED, Reason.CELL_ERROR, EARLY_S, True, None),
        (FORKED, Reason.OUT_OF_MEMORY, EARLY_S, False, None),
        (FORKED, Reason.INTERNAL, EARLY_S, False, None),
        (STARTED, Reason.CELL_ERROR, EARLY_S, False, None),
        (ORPHAN, Reason.KERNEL_DIED, LATE_S, False, SecondRun.KERNEL_LOST),
        (ORPHAN, Reason.KERNEL_DIED, LATE_S, True, SecondRun.KERNEL_LOST),
        (ORPHAN, Reason.OUT_OF_HOST_MEMORY, EARLY_S, False, None),
    ],
)
def test_a_failed_trial_runs_again_in_a_fresh_kernel_if_forking_may_have_caused_the_failure(
    result: KernelResult,
    reason: Reason,
    took_s: float,
    is_stopped: bool,
    decided: SecondRun | None,
) -> None:
    outcome = TrialOutcome(state=TrialState.FAILED, reason=reason)
    found = decide_second_run(result, outcome, took_s=took_s, is_stopped=is_stopped)
    assert found is decided


@pytest.mark.parametrize("state", [TrialState.COMPLETED, TrialState.PRUNED, TrialState.STOPPED])
def test_a_trial_that_has_not_failed_is_not_run_again(state: TrialState) -> None:
    outcome = TrialOutcome(state=state)
    assert decide_second_run(ORPHAN, outcome, took_s=EARLY_S, is_stopped=False) is None


def test_two_failures_are_of_the_same_kind_if_the_same_cell_raises_the_same_exception() -> None:
    outcome = TrialOutcome(state=TrialState.FAILED, reason=Reason.CELL_ERROR)
    kind = kind_of_failure(FORKED, outcome)
    other_text = CellFailed(Raised(cell=3, exception="ValueError"), "In [3]: ValueError: never")
    other_cell = CellFailed(Raised(cell=4, exception="ValueError"), "In [4]: ValueError: no")
    assert kind_of_failure(KernelResult(ending=other_text), outcome) == kind
    assert kind_of_failure(KernelResult(ending=other_cell), outcome) != kind
