"""How long the trials that are left will take, from what those that have ended took.

A trial's duration depends on its params, above all on epochs and sizes: of a trial that runs they
are known, and it is expected to take what trials like it took. Those that have no params yet are
expected to be like the latest ones, because a sampler moves to other params as it learns.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence

from .records import Params, TrialRecord, TrialState
from .results import Progress

#: How many trials have to have completed before their params explain anything.
_LEAST_FITTED = 6
#: Of the latest so many the params are looked at, each time that the time left is displayed.
_MOST_FITTED = 200
#: Keeps a fit of few trials near their mean; in trials, of which it counts as so many.
_RIDGE = 0.5
#: The latest part of the trials, and at least so many, are what those without params will be like.
_LATEST_SHARE, _LEAST_LATEST = 0.5, 8
#: The part of its expected time that a trial has left which takes longer than expected.
_OVERDUE = 0.1
#: Larger numbers, as whole numbers can be, are no sizes.
_LARGEST = 1e300
#: Expected durations lie at most by this factor outside of those that were seen.
_MOST_BEYOND = 2.0


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
    ended = sorted(ended, key=lambda it: it.started_at_s + it.duration_s)[-_MOST_FITTED:]
    n_latest = max(_LEAST_LATEST, math.ceil(_LATEST_SHARE * len(ended)))
    each_s = _mean([record.duration_s for record in ended[-n_latest:]])
    expected_s = _expected(ended, [trial.params for trial in running]) or [each_s] * len(running)
    left_s = [
        max(whole_s - trial.elapsed_s, _OVERDUE * whole_s)
        for whole_s, trial in zip(expected_s, running, strict=True)
    ]
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
    """How much longer pruned trials would have taken, in seconds; None where there are none.

    None as well where no trial has completed, as nothing is known then.

    Args:
        records: the trials of the study.
    """
    known = list(records)
    whole = [(record.params, record.duration_s) for record in known if _is_whole(record)]
    pruned = [record for record in known if record.state is TrialState.PRUNED]
    if not whole or not pruned:
        return None
    mean_s = _mean([seconds for _, seconds in whole])
    expected_s = _fitted(whole[-_MOST_FITTED:], [record.params for record in pruned])
    pairs = zip(pruned, expected_s or [mean_s] * len(pruned), strict=True)
    return math.fsum(max(0.0, whole_s - record.duration_s) for record, whole_s in pairs)


def _expected(ended: Sequence[TrialRecord], wanted: Sequence[Params]) -> list[float] | None:
    """How long running trials should take altogether; None where too few are known."""
    # A pruned trial says nothing about how long one with its params takes that is not.
    whole = [(record.params, record.duration_s) for record in ended if _is_whole(record)]
    fitted = _fitted(whole, [*(record.params for record in ended), *wanted])
    if fitted is None:
        return None
    # Some of those that run are going to be pruned, as some of those before were.
    pairs = zip(ended, fitted, strict=False)
    shares = [
        1.0 if _is_whole(record) else min(1.0, record.duration_s / whole_s)
        for record, whole_s in pairs
    ]
    kept = _mean(shares)
    return [kept * whole_s for whole_s in fitted[len(ended) :]]


def _is_whole(record: TrialRecord) -> bool:
    return record.state is TrialState.COMPLETED and record.duration_s > 0


def _fitted(known: Sequence[tuple[Params, float]], wanted: Sequence[Params]) -> list[float] | None:
    """How long trials with other params should take; None where too few are known.

    The logarithm of the duration is fitted: epochs, sizes and the number of layers multiply.
    """
    if len(known) < _LEAST_FITTED:
        return None
    import numpy as np  # the command `status` of a study with few trials does without it

    columns = _Columns([params for params, _ in known])
    rows = np.array([columns.row(params) for params, _ in known])
    logs = np.log([seconds for _, seconds in known])
    mean = float(np.mean(logs))
    penalty = math.sqrt(_RIDGE) * np.eye(rows.shape[1])
    coefficients, *_ = np.linalg.lstsq(
        np.vstack([rows, penalty]),
        np.concatenate([logs - mean, np.zeros(len(penalty))]),
        rcond=None,
    )
    shortest = min(seconds for _, seconds in known) / _MOST_BEYOND
    longest = max(seconds for _, seconds in known) * _MOST_BEYOND
    fitted = np.array([columns.row(params) for params in wanted]) @ coefficients + mean
    return [min(max(math.exp(it), shortest), longest) for it in fitted.tolist()]


class _Columns:
    """The params of trials as numbers of about the same size, in a fixed order.

    Positive numbers count by their logarithms, since durations grow in proportion to sizes; each
    value that is no number is a column of its own.
    """

    def __init__(self, trials: Sequence[Params]) -> None:
        pairs = {(n, repr(v)) for params in trials for n, v in params.items() if _number(v) is None}
        self._categories = sorted(pairs)
        self._scales: dict[str, tuple[bool, float, float]] = {}
        for name in sorted({name for params in trials for name in params}):
            values = [n for params in trials if (n := _number(params.get(name))) is not None]
            is_log = all(value > 0 for value in values)
            scaled = [_scaled(value, is_log=is_log) for value in values]
            if scaled and (spread := max(scaled) - min(scaled)) > 0:
                self._scales[name] = is_log, _mean(scaled), spread

    def row(self, params: Params) -> list[float]:
        """The params of one trial; 0 where it has none of a name, or one that nobody had."""
        numbers = [
            0.0 if value is None else (_scaled(value, is_log=is_log) - mean) / spread
            for name, (is_log, mean, spread) in self._scales.items()
            for value in [_number(params.get(name))]
        ]
        return numbers + [float(repr(params.get(n)) == text) for n, text in self._categories]


def _mean(values: Sequence[float]) -> float:
    # The module `statistics` would take a tenth of the time of the command `status` to import.
    return math.fsum(values) / len(values)


def _number(value: object) -> float | None:
    """A param that is a number of a usual size; None for all others."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if -_LARGEST < value < _LARGEST else None  # no NaN is


def _scaled(value: float, *, is_log: bool) -> float:
    return math.log(value) if is_log and value > 0 else float(value)
