"""What a driver knows of the GPUs of a machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

#: CUDA itself is taken to need half a GiB of a GPU in each process.
CONTEXT_BYTES = 512 * 1024**2


class GpuError(Exception):
    """A GPU does not answer as a sound one does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A GPU that trials may run on, or a part of one (MIG).

    Attributes:
        name: as CUDA_VISIBLE_DEVICES names it.
        uuid: as the driver names it.
        memory_bytes: how much memory it has.
        mode: how many processes its administrator lets compute on it: any number, one, or none.
    """

    name: str
    uuid: str
    memory_bytes: int
    mode: Literal["default", "exclusive", "prohibited"] = "default"

    @property
    def is_part(self) -> bool:
        """Whether it is a part of a GPU (MIG)."""
        return self.uuid.startswith("MIG-")


class GpuDriver(Protocol):
    """Answers what is on a machine and who uses it; no call initialises CUDA."""

    def installed(self) -> Sequence[Gpu]:
        """All GPUs of the machine by their places on the bus; the parts of those that are split."""

    def used_bytes(self, uuid: str) -> int | None:
        """How much memory of a GPU is in use, by anyone; None where that is not known.

        Raises:
            GpuError: the GPU has failed.
        """

    def used_by(self, uuid: str) -> Mapping[int, int]:
        """How many bytes of a GPU's memory each process has, by its id; empty if unknown.

        In a container the driver may name processes by the ids that they have outside of it.
        """

    def busy_share(self, uuid: str) -> float | None:
        """The share of about the last second in which a GPU worked; None if not known."""
