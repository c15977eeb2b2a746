"""Which trials are run once more, alone, because memory ran out or a neighbour may be to blame."""

from __future__ import annotations

from collections.abc import Iterable

from ...trials import AloneOn, Reason, TrialOutcome, TrialRecord, TrialSpec, TrialState

#: Where a trial has to be alone when it is run again, by the reason why it did not complete.
_ALONE_ON = {
    Reason.OUT_OF_MEMORY: AloneOn.GPU,
    Reason.GPU_FAULT: AloneOn.GPU,
    Reason.OUT_OF_HOST_MEMORY: AloneOn.MACHINE,
}


class Shortages:
    """Decides which trials are run again, alone.

    Args:
        records: of the study; a trial that an earlier sweep was to run again alone runs alone.
    """

    def __init__(self, records: Iterable[TrialRecord]) -> None:
        self._alone = {
            record.number: _ALONE_ON[record.reason]
            for record in records
            if not record.is_final and record.reason in _ALONE_ON
        }

    def alone_on(self, record: TrialRecord) -> AloneOn | None:
        """What the next attempt at a trial has for itself; None where it runs beside others."""
        return self._alone.get(record.number)

    def run_again(self, spec: TrialSpec, outcome: TrialOutcome) -> str | None:
        """How a trial is run again.

        Returns:
            the words for people; None where it is not run again, because it was alone or failed
            for another reason.
        """
        if outcome.reason is Reason.GPU_FAULT and outcome.state is TrialState.STOPPED:
            return "on another GPU"
        alone_on = _ALONE_ON.get(outcome.reason) if outcome.reason is not None else None
        if alone_on is None or outcome.is_infeasible or spec.alone_on is not None:
            return None
        if alone_on is AloneOn.GPU and outcome.gpu is None:
            return None
        self._alone[spec.number] = alone_on
        if alone_on is AloneOn.GPU:
            return "alone on its GPU"
        return (
            "with no other trial beside it (a smaller -j, or fewer workers of a DataLoader, would "
            "take less memory)"
        )
