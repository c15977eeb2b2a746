"""Which of the trials that wait for a GPU is next, and which GPU it gets: a class per policy."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from ...trials import GpuNeed, RunningTrial, TrialSpec
from .driver import Gpu
from .loads import GpuLoad

#: How many of those that wait may ask, and how often others may get a share before one of them.
_ASKING, _PASSES = 6, 8
#: How much better other trials have to pack before they go first, although the one that has waited
#: longest fits as well; as a part of what one trial would count that takes all memory.
_CLEARLY = 0.02


@dataclass(slots=True, eq=False)
class Waiting:
    """A trial that waits for a share.

    Attributes:
        n_passed: how many trials have got a share before it that came later.
        since_s: when it began to wait, on the monotonic clock.
    """

    spec: TrialSpec
    running: RunningTrial
    n_passed: int = 0
    since_s: float = field(default_factory=time.monotonic)

    @property
    def predicted(self) -> GpuNeed:
        """What the trial is expected to need, as far as trials of its sweep show it by now."""
        return self.spec.gpu_need if self.running.gpu_need is None else self.running.gpu_need()


class WaitingTrials:
    """The trials that wait for a share, the longest first."""

    def __init__(self) -> None:
        self._trials: list[Waiting] = []

    def __len__(self) -> int:
        return len(self._trials)

    @property
    def first(self) -> Waiting:
        """The one that has waited longest."""
        return self._trials[0]

    def add(self, spec: TrialSpec, running: RunningTrial) -> Waiting:
        """A trial begins to wait."""
        self._trials.append(waiting := Waiting(spec, running))
        return waiting

    def remove(self, waiting: Waiting) -> None:
        """It has a share, or was stopped."""
        self._trials.remove(waiting)

    def asking(self) -> list[Waiting]:
        """Those whose turn it may be, the longest first: it may be too large for what is free."""
        asking = self._trials[:_ASKING]
        numbers = (number for number, it in enumerate(asking) if it.n_passed >= _PASSES)
        return asking[: next(numbers, _ASKING) + 1]

    def passed_by(self, waiting: Waiting) -> None:
        """A trial gets a share before those that have waited longer."""
        for other in self._trials[: self._trials.index(waiting)]:
            other.n_passed += 1


class GpuPolicy(Protocol):
    """Decides which GPU a trial gets now.

    The allocator asks for the trials that have waited longest, and also for several of them, to see
    which ones fit together: when one begins to wait, whenever a share is given back, and every
    second, because other sweeps use the GPUs as well. One call at a time.
    """

    def choose(self, spec: TrialSpec, need: GpuNeed, loads: Sequence[GpuLoad]) -> Gpu | None:
        """The GPU for a trial; None while it has to wait.

        Args:
            need: what the trial needs, as far as that is known now.
            loads: every GPU that this sweep may use.
        """


def choose_all(
    policy: GpuPolicy, spec: TrialSpec, need: GpuNeed, loads: Sequence[GpuLoad], n_gpus: int
) -> list[GpuLoad]:
    """As many GPUs as a trial takes, which it can have now; none while it has to wait."""
    chosen: list[GpuLoad] = []
    while len(chosen) < n_gpus:
        left = [load for load in loads if load not in chosen]
        gpu = policy.choose(spec, need, left)
        if gpu is None:
            return []
        chosen.append(next(load for load in left if load.gpu is gpu))
    return chosen


def next_to_go(
    policy: GpuPolicy,
    asking: Sequence[tuple[Waiting, GpuNeed]],
    loads: Sequence[GpuLoad],
    n_gpus: int,
    *,
    fills: bool,
    soon: Sequence[GpuLoad] = (),
) -> tuple[Waiting, list[GpuLoad]] | None:
    """The trial that gets a share now, with its GPUs; None while all have to wait.

    It is the one that has waited longest of those that fit, unless others that may ask pack clearly
    better together. All wait where it would be in the way of trials that pack clearly better once
    those have ended that are about to.

    Args:
        asking: the longest waiting first, with what each needs.
        n_gpus: how many each trial gets.
        fills: whether more memory that is in use means that more gets done.
        soon: the loads once those trials have ended; empty where none is about to.
    """
    chosen = [(it, choose_all(policy, it.spec, need, loads, n_gpus)) for it, need in asking]
    fitting = [(it, gpus) for it, gpus in chosen if gpus]
    if not fitting:
        return None
    if not fills or n_gpus > 1 or (len(fitting) == 1 and not soon):
        return fitting[0]
    first = _packing_best(policy, asking, loads)[0]
    if soon and first not in _packing_best(policy, asking, soon):
        return None
    return next((it, gpus) for it, gpus in fitting if it is first)


def _packing_best(
    policy: GpuPolicy, asking: Sequence[tuple[Waiting, GpuNeed]], loads: Sequence[GpuLoad]
) -> list[Waiting]:
    """The trials that go together: those that have waited longest, or others that pack better.

    Empty where none fits.
    """
    in_turn, packed = _packed(policy, asking, loads)
    clearly = _CLEARLY * sum((load.usable_bytes or 0) ** 2 for load in loads)
    best, most = in_turn, packed + clearly
    ask = [pair for pair in asking if pair[1].memory_bytes is not None]
    for n in range(1, len(ask) + 1):
        for together in itertools.combinations(ask, n):
            fitting, packed = _packed(policy, together, loads)
            if packed > most and len(fitting) == n:
                best, most = fitting, packed
    return best


def _packed(
    policy: GpuPolicy, trials: Sequence[tuple[Waiting, GpuNeed]], loads: Sequence[GpuLoad]
) -> tuple[list[Waiting], int]:
    """The trials that fit if they get their shares one after another, and how well they pack.

    That is the sum of the squares of what they claim. Of trials that fill a GPU equally well, those
    with a large one thus go first: small ones find room later, too.
    """
    left, fitting, packed = list(loads), [], 0
    for waiting, need in trials:
        gpu = policy.choose(waiting.spec, need, left)
        if gpu is not None:
            n_bytes = need.memory_bytes or 0
            left = [_with(load, n_bytes, need) if load.gpu is gpu else load for load in left]
            fitting.append(waiting)
            packed += n_bytes**2
    return fitting, packed


def _with(load: GpuLoad, n_bytes: int, need: GpuNeed) -> GpuLoad:
    """The load of a GPU with one more trial."""
    return replace(
        load,
        n_trials=load.n_trials + 1,
        free_bytes=None if load.free_bytes is None else load.free_bytes - n_bytes,
        claimed_bytes=load.claimed_bytes + n_bytes,
        is_closed=load.is_closed or need.is_alone,
    )


class FewestTrials:
    """Of the GPUs on which a trial fits, the one with the fewest trials, then with most memory."""

    def choose(self, spec: TrialSpec, need: GpuNeed, loads: Sequence[GpuLoad]) -> Gpu | None:
        """The GPU with the fewest trials on which this one fits; None while there is none."""
        fitting = [load for load in loads if _fits(need, load)]
        best = min(fitting, key=lambda it: (it.n_trials, -(it.free_bytes or 0)), default=None)
        return None if best is None else best.gpu


def _fits(need: GpuNeed, load: GpuLoad) -> bool:
    if load.is_closed:
        return False
    if load.free_bytes is None or load.usable_bytes is None:  # how many fit is nobody's knowledge
        return load.n_trials == 0 or not need.is_alone
    if need.memory_bytes is None or need.is_alone or need.memory_bytes > load.usable_bytes:
        return load.n_trials == 0
    return need.memory_bytes <= max(0, load.free_bytes)
