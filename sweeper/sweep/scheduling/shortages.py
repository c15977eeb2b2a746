"""Decide which trials are run again: alone, on another GPU, or in a kernel that is not forked."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from ...trials import AloneOn, Reason, TrialOutcome, TrialRecord, TrialSpec, TrialState

#: What a trial must not share with other trials when it is run again, by the reason why it did not
#: complete.
_ALONE_ON = {
    Reason.OUT_OF_MEMORY: AloneOn.GPU,
    Reason.GPU_FAULT: AloneOn.GPU,
    Reason.OUT_OF_HOST_MEMORY: AloneOn.MACHINE,
}


class RunAgain(Enum):
    """How a trial is run again, in words for people."""

    ELSEWHERE = "on another GPU"
    STARTED = "in a fresh kernel"
    ALONE_ON_GPU = "alone on its GPU"
    ALONE_ON_MACHINE = (
        "with no other trial at the same time (a smaller -j, or fewer workers of a DataLoader, "
        "would use less memory)"
    )


def run_again(spec: TrialSpec, outcome: TrialOutcome) -> RunAgain | None:
    """Decide how a trial is run again: on another GPU, in a fresh kernel, or alone.

    Return None if the reason of its outcome calls for none of these. Return None also in three
    cases in which a trial should run alone: it was alone already, its params need too much memory
    in any case (`is_infeasible`), or it should be alone on a GPU but is not known to have used one.
    """
    if outcome.reason is Reason.GPU_FAULT and outcome.state is TrialState.STOPPED:
        return RunAgain.ELSEWHERE
    if outcome.reason is Reason.UNPROVEN:
        return RunAgain.STARTED
    alone_on = _ALONE_ON.get(outcome.reason) if outcome.reason is not None else None
    if alone_on is None or outcome.is_infeasible or spec.alone_on is not None:
        return None
    if alone_on is AloneOn.MACHINE:
        return RunAgain.ALONE_ON_MACHINE
    return None if outcome.gpu is None else RunAgain.ALONE_ON_GPU


class Shortages:
    """Remembers which trials must run alone at their next attempt.

    Args:
        records: Records of all trials. They show which trials an earlier sweep has stopped so that
            they run again alone.
    """

    def __init__(self, records: Iterable[TrialRecord]) -> None:
        self._alone = {
            record.number: _ALONE_ON[record.reason]
            for record in records
            if not record.is_final and record.reason in _ALONE_ON
        }

    def alone_on(self, record: TrialRecord) -> AloneOn | None:
        """Return what the next attempt at a trial must not share: its GPU or the whole machine.

        Return None if it may share both with other trials.
        """
        return self._alone.get(record.number)

    def note(self, number: int, again: RunAgain) -> None:
        """Remember that the next attempt at a trial must run alone, on its GPU or on the machine.

        Args:
            number: Trial number in the study.
            again: How the trial is run again. If it need not run alone, nothing is done.
        """
        if again is RunAgain.ALONE_ON_GPU:
            self._alone[number] = AloneOn.GPU
        elif again is RunAgain.ALONE_ON_MACHINE:
            self._alone[number] = AloneOn.MACHINE
