"""Which GPU a trial gets: one class for each policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from ...errors import SettingsError
from ...trials import TrialSpec

#: What CUDA itself takes of a GPU in each process.
_CONTEXT_BYTES = 512 * 1024**2


class GpuPolicy(Protocol):
    """Decides which GPU a trial gets now.

    The allocator asks for the trial that has waited longest, when it begins to wait and whenever a
    share is given back; one call at a time.
    """

    def choose(self, spec: TrialSpec, leases: Mapping[str, Sequence[TrialSpec]]) -> str | None:
        """The GPU for a trial; None while it has to wait.

        Args:
            leases: every GPU, with the trials that have a share of it.
        """


class LeastLoaded:
    """The GPU with the fewest trials on it.

    Args:
        room: how many trials fit onto a GPU; any number where it is not in there.
    """

    def __init__(self, room: Mapping[str, int] | None = None) -> None:
        self._room = dict(room or {})

    @classmethod
    def by_memory(cls, gpus: Mapping[str, int | None], *, memory_bytes: int | None) -> LeastLoaded:
        """As many trials on each GPU as its memory holds.

        Args:
            gpus: each GPU's memory, in bytes; None where it is not known.
            memory_bytes: what a trial takes, in bytes; None for any number of trials.

        Raises:
            SettingsError: a GPU is too small for a single trial.
        """
        if memory_bytes is None:
            return cls()
        known = {gpu: total for gpu, total in gpus.items() if total is not None}
        for gpu, total in known.items():
            if total < memory_bytes + _CONTEXT_BYTES:
                raise SettingsError(
                    f"resources.gpu_memory: a trial takes {memory_bytes / 1e9:.1f} GB and "
                    f"{_CONTEXT_BYTES / 1e9:.1f} GB for its context; {gpu} has {total / 1e9:.1f} GB"
                )
        return cls({gpu: total // (memory_bytes + _CONTEXT_BYTES) for gpu, total in known.items()})

    def choose(self, spec: TrialSpec, leases: Mapping[str, Sequence[TrialSpec]]) -> str | None:
        """The GPU with the fewest trials of those with room; None while there is none."""
        free = [gpu for gpu, specs in leases.items() if len(specs) < self._room_on(gpu, specs)]
        return min(free, key=lambda gpu: len(leases[gpu]), default=None)

    def _room_on(self, gpu: str, specs: Sequence[TrialSpec]) -> int:
        return self._room.get(gpu, len(specs) + 1)
