"""Predict how long a sweep will still run, from the durations of the trials that have ended.

A trial that has not begun is predicted to take the mean of these durations. A running trial is
predicted to need the mean minus its running time so far, but at least 10 % of the mean.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from .records import TrialRecord, TrialState
from .results import Progress

#: A running trial is predicted to need at least this share of the mean duration, even if it has
#: already taken longer than the mean (chosen, not measured).
_OVERDUE = 0.1


def seconds_left(
    records: Iterable[TrialRecord], running: Sequence[Progress], *, to_start: int
) -> float | None:
    """Return how many seconds a sweep will still run.

    The prediction assumes that the number of trials that run at once does not change. Waiting and
    frozen (paused) trials are not counted in this number. It is at least 1.

    Return None as long as no trials have ended, except failed and interrupted ones.

    Args:
        records: Records of the trials of the study.
        running: Progress of the running trials, including waiting and frozen ones. Frozen trials
            are predicted to need no more time.
        to_start: Number of trials that have not begun.
    """
    took_s = [
        record.duration_s
        for record in records
        if record.is_final and record.state is not TrialState.FAILED
    ]
    if not took_s:
        return None
    each_s = math.fsum(took_s) / len(took_s)
    thawed = [trial for trial in running if not trial.is_frozen]
    left_s = [max(each_s - trial.elapsed_s, _OVERDUE * each_s) for trial in thawed]
    at_once = max(1, sum(not trial.waits_for for trial in thawed))
    together_s = (math.fsum(left_s) + to_start * each_s) / at_once
    return max([together_s, *left_s])
