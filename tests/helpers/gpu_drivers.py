"""A GPU driver for tests, with values that a test states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sweeper.machine.nvml import Gpu, GpuError, Nvml

GIB = 1024**3


class StatedDriver(Nvml):
    """GPUs of 40 GiB each, whose memory in use a test states.

    Attributes:
        used: Bytes in use on each GPU, by UUID.
        by_process: Bytes in use by process id, for each GPU.
        lost: UUIDs of GPUs that do not answer.
        busy: Share of the time in which each GPU works.
    """

    def __init__(self, *names: str, memory_bytes: int = 40 * GIB) -> None:
        self.gpus = [
            Gpu(uuid=name, memory_bytes=memory_bytes, number=number)
            for number, name in enumerate(names)
        ]
        self.used = dict.fromkeys(names, 0)
        self.lost: set[str] = set()
        self.busy: dict[str, float | None] = dict.fromkeys(names)
        self.by_process: dict[str, dict[int, int]] = {name: {} for name in names}

    def installed(self) -> Sequence[Gpu]:
        return self.gpus

    def used_bytes(self, uuid: str) -> int | None:
        if uuid in self.lost:
            raise GpuError("GPU is lost")
        return self.used[uuid]

    def used_by(self, uuid: str) -> Mapping[int, int]:
        return self.by_process[uuid]

    def busy_share(self, uuid: str) -> float | None:
        return self.busy[uuid]
