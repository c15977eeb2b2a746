"""How much memory of a GPU the next trial needs, from what those before it took."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from ...execution.gpus import CONTEXT_BYTES
from ...trials import GpuNeed, Params, Reason, TrialOutcome, TrialRecord, TrialSpec, TrialState

#: What is added to what trials with the same params took, and to what others let expect.
_SAME, _OTHER = 1.03, 1.1
#: A fit that is no further from any trial predicts as well as trials with the same params do.
_CLOSE = 0.01
#: By how much more memory a trial may take where a param that is no number has another value.
_CATEGORY = 1.5
#: What is added to the memory of a trial that had too little.
_AFTER_SHORTAGE = 1.25
#: How many trials a fit takes for each number that it finds.
_TRIALS_PER_COEFFICIENT = 2


class GpuNeeds:
    """Predicts each trial's need, and decides whether one that ran out of memory is run again.

    Args:
        stated_bytes: what each trial takes as users state it; None for what is measured.
    """

    def __init__(self, stated_bytes: int | None) -> None:
        self._stated_bytes = stated_bytes
        self._taken: list[tuple[Params, int]] = []
        self._shortages: Counter[int] = Counter()
        #: In how many faults of a GPU each trial was present.
        self._faults: Counter[int] = Counter()
        #: What the next attempt at a trial needs that ran out of memory, by its number.
        self._raised: dict[int, GpuNeed] = {}

    def note(self, record: TrialRecord) -> None:
        """Learn from a trial that has ended."""
        is_whole = record.state in (TrialState.COMPLETED, TrialState.PRUNED)
        if record.gpu is not None and is_whole:
            self._taken.append((record.params, record.gpu.peak_bytes))

    def need(self, record: TrialRecord) -> GpuNeed:
        """What the next attempt at a trial needs."""
        raised = self._raised.get(record.number)
        if raised is not None:
            return raised
        expected = expected_bytes(record.params, self._taken)
        if self._stated_bytes is None:
            return GpuNeed(memory_bytes=expected)
        stated = self._stated_bytes + CONTEXT_BYTES
        # What is stated counts, until a trial has shown that it is too little.
        return GpuNeed(memory_bytes=max(stated, expected or 0) if self._shortages else stated)

    def run_again(self, spec: TrialSpec, outcome: TrialOutcome) -> str | None:
        """How a trial is run again that ran out of memory, or that a fault of a GPU has hit.

        The first one has more memory, then a GPU of its own; the other one gets a GPU of its own
        when it was present in two faults, because one of them may be its own.

        Returns:
            the words for people; None where it is not run again, because it was alone on its GPU,
            had none, or failed for another reason.
        """
        if outcome.reason is Reason.GPU_FAULT:
            self._faults[spec.number] += 1
            if self._faults[spec.number] == 1:
                return "beside others"
            self._raised[spec.number] = GpuNeed(is_alone=True)
            return "alone on its GPU and without MPS, as it was there in two faults"
        if outcome.reason is not Reason.OUT_OF_MEMORY or outcome.gpu is None:
            return None
        if spec.gpu_need.is_alone or outcome.is_infeasible:
            return None
        self._shortages[spec.number] += 1
        had_bytes = spec.gpu_need.memory_bytes
        if had_bytes is None or self._shortages[spec.number] > 1:
            self._raised[spec.number] = GpuNeed(is_alone=True)
            return "alone on its GPU"
        largest = max((n_bytes for _, n_bytes in self._taken), default=0)
        n_bytes = round(_AFTER_SHORTAGE * max(had_bytes, outcome.gpu.peak_bytes))
        n_bytes = max(n_bytes, round(_SAME * largest))
        self._raised[spec.number] = GpuNeed(memory_bytes=n_bytes)
        return f"with {n_bytes / 1e9:.1f} GB of its GPU"


def expected_bytes(params: Params, taken: list[tuple[Params, int]]) -> int | None:
    """The most memory that a trial should take; None where nothing is known.

    Args:
        params: of the trial.
        taken: the params of earlier trials, and what each took at most.
    """
    if not taken:
        return None
    same = [n_bytes for others, n_bytes in taken if others == params]
    if same:
        return round(_SAME * max(same))
    fitted = _fitted_bytes(params, taken)
    if fitted is not None:
        return round(fitted)
    return round(_OTHER * min(n_bytes * _growth(others, params) for others, n_bytes in taken))


def _growth(before: Params, now: Params) -> float:
    """How much more memory a trial takes at most: whole numbers count in proportion.

    They are sizes of batches and layers; numbers with fractions are learning rates and the like.
    """
    factor = 1.0
    for name in before.keys() | now.keys():
        old, new = before.get(name), now.get(name)
        if _is_size(old) and _is_size(new):
            factor *= max(1.0, float(new) / float(old))  # type: ignore[arg-type]
        elif old != new and not (isinstance(old, float) and isinstance(new, float | int)):
            factor *= _CATEGORY
    return factor


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _fitted_bytes(params: Params, taken: list[tuple[Params, int]]) -> float | None:
    """What a linear fit gives, with the largest error that it makes, and more for what it cannot
    know; None for too few trials."""
    names = sorted({(name, *_category(value)) for them, _ in taken for name, value in them.items()})
    if len(taken) < _TRIALS_PER_COEFFICIENT * (len(names) + 1):
        return None
    if not {(name, *_category(value)) for name, value in params.items()} <= {*names}:
        return None  # a value that no trial had
    import numpy as np  # a sweep without a GPU does without it

    rows = np.array([_row(them, names) for them, _ in taken])
    peaks = np.array([n_bytes for _, n_bytes in taken], dtype=float)
    coefficients, *_ = np.linalg.lstsq(rows, peaks, rcond=None)
    errors = peaks - rows @ coefficients
    expected = float(np.dot(_row(params, names), coefficients)) + max(float(np.max(errors)), 0.0)
    is_close = float(np.max(np.abs(errors))) <= _CLOSE * float(np.min(peaks))
    return (_SAME if is_close else _OTHER) * max(expected, 0.0)


def _row(params: Mapping[str, object], names: list[tuple[str, ...]]) -> list[float]:
    """A trial as numbers: 1, each number as it is, each other value as 1 where the trial has it."""
    row = [1.0]
    for name, *category in names:
        value = params.get(name)
        if category:
            row.append(float([*_category(value)] == category))
        else:
            row.append(float(value) if isinstance(value, int | float) else 0.0)
    return row


def _category(value: object) -> tuple[str, ...]:
    """Empty for a number, else the value as text."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return () if is_number else (repr(value),)
