"""Which trials run with no other beside them, because their machine ran out of memory."""

from __future__ import annotations

from collections.abc import Iterable

from ...trials import Reason, TrialOutcome, TrialRecord, TrialSpec


class HostNeeds:
    """Decides whether a trial that ran out of its machine's memory is run again, alone.

    Args:
        records: of the study; a trial that an earlier sweep was to run again alone runs alone.
    """

    def __init__(self, records: Iterable[TrialRecord]) -> None:
        self._alone = {
            record.number
            for record in records
            if not record.is_final and record.reason is Reason.OUT_OF_HOST_MEMORY
        }

    def is_alone(self, record: TrialRecord) -> bool:
        """Whether the next attempt at a trial runs alone on its machine."""
        return record.number in self._alone

    def run_again(self, spec: TrialSpec, outcome: TrialOutcome) -> str | None:
        """How a trial that ran out of its machine's memory is run again.

        Returns:
            the words for people; None where it is not run again, because it was alone or failed
            for another reason.
        """
        if outcome.reason is not Reason.OUT_OF_HOST_MEMORY or outcome.is_infeasible:
            return None
        if spec.is_alone:
            return None
        self._alone.add(spec.number)
        return (
            "with no other trial beside it (a smaller -j, or fewer workers of a DataLoader, would "
            "take less memory)"
        )
