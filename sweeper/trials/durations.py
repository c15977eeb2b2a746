"""How long the trials that are left will take, from what those that have ended took.

A trial that is left is expected to take the mean of the latest half of those that have ended, as a
sampler moves to other params while it learns. A running one that has taken longer is expected to
need another 10 % of that.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence

from .records import TrialRecord, TrialState
from .results import Progress

#: The latest part of the trials, and at least so many, say how long the others take.
_LATEST_SHARE, _LEAST_LATEST = 0.5, 8
#: An overdue trial is expected to need another 10 % of its expected duration.
_OVERDUE = 0.1


def seconds_left(
    records: Iterable[TrialRecord], running: Sequence[Progress], *, to_start: int, at_once: float
) -> float | None:
    """How long a sweep will still take, in seconds; None before a trial has ended by itself.

    Args:
        records: the trials of the study.
        to_start: how many trials have not begun.
        at_once: how many run at once; on average, where some wait for a GPU.
    """
    ended = [r for r in records if r.is_final and r.state is not TrialState.FAILED]
    if not ended:
        return None
    ended.sort(key=lambda record: record.started_at_s + record.duration_s)
    n_latest = max(_LEAST_LATEST, math.ceil(_LATEST_SHARE * len(ended)))
    each_s = _mean([record.duration_s for record in ended[-n_latest:]])
    left_s = [max(each_s - trial.elapsed_s, _OVERDUE * each_s) for trial in running]
    n_left = len(left_s) + to_start
    together_s = (sum(left_s) + to_start * each_s) / max(1.0, min(at_once, n_left))
    return max(together_s, max(left_s, default=0.0))


def mean_at_once(
    records: Iterable[TrialRecord], running: Sequence[Progress], *, since_s: float, jobs: int
) -> float:
    """How many trials have run at once on average, by the time that they took themselves.

    Where trials wait for a share of a GPU, that is fewer than there are slots.

    Args:
        since_s: when the sweep has begun to give out trials, in seconds since 1970.
        jobs: how many slots there are; what is assumed before so many trials have ended.
    """
    took_s = [r.duration_s for r in records if r.is_final and r.started_at_s >= since_s]
    if len(took_s) < jobs:
        return float(jobs)
    elapsed_s = max(time.time() - since_s, 1e-9)
    together_s = sum(took_s) + sum(trial.elapsed_s for trial in running)
    return min(max(together_s / elapsed_s, 1.0), float(jobs))


def seconds_not_run(records: Iterable[TrialRecord]) -> float | None:
    """How much longer pruned trials would have taken, had they taken the mean of completed ones.

    None where none was pruned, or none has completed.

    Args:
        records: the trials of the study.
    """
    known = list(records)
    whole_s = [it.duration_s for it in known if it.state is TrialState.COMPLETED]
    pruned_s = [it.duration_s for it in known if it.state is TrialState.PRUNED]
    if not whole_s or not pruned_s:
        return None
    mean_s = _mean(whole_s)
    return math.fsum(max(0.0, mean_s - took_s) for took_s in pruned_s)


def _mean(values: Sequence[float]) -> float:
    # The module `statistics` would take a tenth of the time of the command `status` to import.
    return math.fsum(values) / len(values)
