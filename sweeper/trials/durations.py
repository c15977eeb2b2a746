"""How long the trials that are left will take, from what those that have ended took.

A trial that is left is expected to take the mean of those that have ended. A running one that has
taken longer is expected to need another 10 % of that.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from .records import TrialRecord, TrialState
from .results import Progress

_OVERDUE = 0.1


def seconds_left(
    records: Iterable[TrialRecord], running: Sequence[Progress], *, to_start: int
) -> float | None:
    """How long a sweep will still take, in seconds; None before a trial has ended by itself.

    Args:
        records: the trials of the study.
        running: so many as neither wait for a place nor are frozen are expected to run at once.
        to_start: how many trials have not begun.
    """
    took_s = [r.duration_s for r in records if r.is_final and r.state is not TrialState.FAILED]
    if not took_s:
        return None
    each_s = math.fsum(took_s) / len(took_s)
    left_s = [
        max(each_s - trial.elapsed_s, _OVERDUE * each_s) for trial in running if not trial.is_frozen
    ]
    at_once = max(1, sum(not (trial.waits_for or trial.is_frozen) for trial in running))
    together_s = (math.fsum(left_s) + to_start * each_s) / at_once
    return max(together_s, max(left_s, default=0.0))
