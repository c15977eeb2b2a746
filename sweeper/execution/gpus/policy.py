"""Which GPU a trial gets: one class for each policy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ...trials import GpuNeed, TrialSpec
from .driver import Gpu
from .loads import GpuLoad


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
