"""Whose turn it is to ask for a GPU, and which one a trial gets: one class for each policy."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ...trials import GpuNeed, TrialSpec
from .driver import Gpu
from .loads import GpuLoad

#: How many of those that wait may ask, and how often one of them may be passed by a smaller one.
_ASKING, _PASSES = 4, 4


@dataclass(slots=True, eq=False)
class Waiting:
    """A trial that waits for a share.

    Attributes:
        n_passed: how many trials have got a share before it that came later.
        since_s: when it began to wait, on the monotonic clock.
    """

    spec: TrialSpec
    n_passed: int = 0
    since_s: float = field(default_factory=time.monotonic)


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

    def add(self, spec: TrialSpec) -> Waiting:
        """A trial begins to wait."""
        self._trials.append(waiting := Waiting(spec))
        return waiting

    def remove(self, waiting: Waiting) -> None:
        """It has a share, or was stopped."""
        self._trials.remove(waiting)

    def may_ask(self, waiting: Waiting) -> bool:
        """Whether it is a trial's turn: those before it may be too large for what is free now."""
        before = self._before(waiting)
        return len(before) < _ASKING and all(other.n_passed < _PASSES for other in before)

    def passed_by(self, waiting: Waiting) -> None:
        """A trial gets a share before those that have waited longer."""
        for other in self._before(waiting):
            other.n_passed += 1

    def before(self, spec: TrialSpec) -> Iterator[TrialSpec]:
        """Those that have waited longer than this very spec: a proof runs a trial's spec again."""
        specs = (waiting.spec for waiting in self._trials)
        return itertools.takewhile(lambda other: other is not spec, specs)

    def _before(self, waiting: Waiting) -> list[Waiting]:
        return self._trials[: self._trials.index(waiting)]


class GpuPolicy(Protocol):
    """Decides which GPU a trial gets now.

    The allocator asks for the trials that have waited longest, one after another: when one begins
    to wait, whenever a share is given back, and every second, because other sweeps use the GPUs as
    well. One call at a time.
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
