"""What the records of a trial derive from their values."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweeper.trials import (
    Reason,
    TrialRecord,
    TrialState,
)


@pytest.mark.parametrize("state", TrialState)
@pytest.mark.parametrize("reason", [None, Reason.INTERRUPTED, Reason.BY_HAND])
def test_a_stopped_trial_is_final_only_when_it_was_stopped_by_hand(
    state: TrialState, reason: Reason | None
) -> None:
    record = TrialRecord(
        number=0, state=state, params={}, seed=0, attempt=1, notebook=Path(), reason=reason
    )
    singled_out = (state, reason) == (TrialState.STOPPED, Reason.BY_HAND)
    assert record.is_final is (
        singled_out or state in (TrialState.COMPLETED, TrialState.PRUNED, TrialState.FAILED)
    )
