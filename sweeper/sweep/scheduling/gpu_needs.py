"""How much memory of a GPU the next trial needs, from what those before it took."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence

from ...execution.gpus import CONTEXT_BYTES
from ...trials import (
    GpuNeed,
    Params,
    Reason,
    RunningTrial,
    SettledMemory,
    TrialOutcome,
    TrialRecord,
    TrialSpec,
    TrialState,
)
from .gpu_memory import SAME, TakenMemory, Taking

#: What is added to the memory of a trial that had too little.
_AFTER_SHORTAGE = 1.25


class GpuNeeds:
    """Predicts each trial's need, and decides whether one that ran out of memory is run again.

    A prediction is made anew whenever it is asked for, from the trials that have ended and, until
    there are enough of those, from what running ones are seen to take.

    Safe to call from any thread. `need` is quick: it computes only where trials have shown more
    since it was last called.

    Args:
        stated_bytes: what each trial takes as users state it; None for what is measured.
    """

    def __init__(self, stated_bytes: int | None) -> None:
        self._stated_bytes = stated_bytes
        self._lock = threading.Lock()
        self._taken = TakenMemory()
        self._running: dict[int, tuple[Params, RunningTrial]] = {}
        #: By how much a trial that has ended had grown after it had settled, at most; None before.
        self._growth: float | None = None
        #: What each trial was expected to take, with what that was computed from.
        self._expected: dict[int, tuple[object, int | None]] = {}
        self._shortages: Counter[int] = Counter()
        #: In how many faults of a GPU each trial was present.
        self._faults: Counter[int] = Counter()
        #: What the next attempt at a trial needs that ran out of memory, by its number.
        self._raised: dict[int, GpuNeed] = {}

    def begin(self, record: TrialRecord, running: RunningTrial) -> None:
        """Learn from a trial while it runs, until `note` has its end."""
        with self._lock:
            self._running[record.number] = record.params, running

    def note(self, record: TrialRecord) -> None:
        """Learn from a trial that has ended."""
        with self._lock:
            self._expected.pop(record.number, None)
            _, running = self._running.pop(record.number, (None, None))
            peak_bytes = None if record.gpu is None else record.gpu.peak_bytes
            if peak_bytes is None:
                return
            if record.state not in (TrialState.COMPLETED, TrialState.PRUNED):
                return
            self._taken.add(record.params, peak_bytes)
            seen = None if running is None else running.gpu_memory
            if seen is not None and seen.first_bytes:
                grown = peak_bytes / seen.first_bytes
                self._growth = max(self._growth or 1.0, grown)

    def need(self, record: TrialRecord) -> GpuNeed:
        """What an attempt at a trial needs that begins now, or what a running one needs by now."""
        with self._lock:
            raised = self._raised.get(record.number)
            if raised is not None:
                return raised
            expected = self._expected_bytes(record)
            if self._stated_bytes is None:
                is_estimate = expected is not None and not self._taken
                return GpuNeed(memory_bytes=expected, is_estimate=is_estimate)
            stated = self._stated_bytes + CONTEXT_BYTES
            # What is stated counts, until a trial has shown that it is too little.
            return GpuNeed(memory_bytes=max(stated, expected or 0) if self._shortages else stated)

    def _expected_bytes(self, record: TrialRecord) -> int | None:
        seen = [(params, one.gpu_memory) for params, one in self._running.values()]
        running = self._to_come_to([(params, it) for params, it in seen if it is not None])
        basis = len(self._taken), running
        known = self._expected.get(record.number)
        if known is None or known[0] != basis:
            known = basis, self._taken.expected_bytes(record.params, running)
            self._expected[record.number] = known
        return known[1]

    def _to_come_to(self, seen: Sequence[tuple[Params, SettledMemory]]) -> list[Taking]:
        """What running trials are expected to come to; nothing where there is no telling."""
        if self._taken and self._growth is None:
            return []
        # A trial beside others is not seen where the driver has other process ids than ours.
        if self._taken or any(it.peak_bytes for _, it in seen):
            seen = [(params, it) for params, it in seen if it.peak_bytes]
        if (growth := self._growth) is not None:
            return [Taking(p, max(it.peak_bytes, growth * it.first_bytes)) for p, it in seen]
        return [Taking(params, it.peak_bytes, it.may_grow) for params, it in seen]

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
        had_bytes = (outcome.gpu_need or spec.gpu_need).memory_bytes
        if had_bytes is None or self._shortages[spec.number] > 1:
            self._raised[spec.number] = GpuNeed(is_alone=True)
            return "alone on its GPU"
        with self._lock:
            largest = self._taken.most_bytes
        n_bytes = round(_AFTER_SHORTAGE * max(had_bytes, outcome.gpu.peak_bytes or 0))
        n_bytes = max(n_bytes, round(SAME * largest))
        self._raised[spec.number] = GpuNeed(memory_bytes=n_bytes)
        return f"with {n_bytes / 1e9:.1f} GB of its GPU"
