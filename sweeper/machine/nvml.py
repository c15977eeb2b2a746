"""NVIDIA's management library, by which a driver is asked without initialising CUDA."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pynvml
from pynvml import NVMLError

_log = logging.getLogger(__name__)

#: CUDA itself is taken to need half a GiB of a GPU in each process.
CONTEXT_BYTES = 512 * 1024**2
#: What NVML says on a machine without a GPU.
_NO_DRIVER = (pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, pynvml.NVML_ERROR_DRIVER_NOT_LOADED)


class GpuError(Exception):
    """A GPU does not answer as a sound one does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A GPU that trials may run on, or a part of one (MIG).

    Attributes:
        uuid: as the driver and CUDA_VISIBLE_DEVICES name it.
        memory_bytes: how much memory it has, without what its driver keeps for itself.
        model: such as `NVIDIA H200`; empty where the driver does not say.
        is_exclusive: whether its administrator lets one process at a time compute on it.
    """

    uuid: str
    memory_bytes: int
    model: str = ""
    is_exclusive: bool = False

    @property
    def is_part(self) -> bool:
        """Whether it is a part of a GPU (MIG)."""
        return self.uuid.startswith("MIG-")


class Nvml:
    """The GPUs of NVIDIA's driver; none where there is no such driver. No call initialises CUDA."""

    def installed(self) -> Sequence[Gpu]:
        """All GPUs by their places on the bus; of one that is split by MIG, its parts."""
        return [
            Gpu(
                uuid=uuid,
                memory_bytes=_memory_bytes(handle),
                model=str(_answer(pynvml.nvmlDeviceGetName, handle) or ""),
                is_exclusive=_answer(pynvml.nvmlDeviceGetComputeMode, handle)
                == pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS,
            )
            for uuid, handle in self._handles.items()
        ]

    def used_bytes(self, uuid: str) -> int | None:
        """How much memory of a GPU is in use, by anyone; None where that is not known.

        Raises:
            GpuError: the GPU has failed.
        """
        try:
            return int(_memory(self._handles[uuid]).used)
        except NVMLError as error:
            if error.value in (pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_NO_PERMISSION):
                return None
            raise GpuError(f"NVIDIA's driver says: {error}") from error

    def used_by(self, uuid: str) -> Mapping[int, int]:
        """How many bytes each process has, by its id; empty where that is not known.

        In a container the driver may name processes by the ids that they have outside of it.
        """
        used_by: dict[int, int] = {}
        # Processes below a server of MPS have a list of their own; the server is in the other one.
        for processes_on in (
            pynvml.nvmlDeviceGetComputeRunningProcesses,
            pynvml.nvmlDeviceGetMPSComputeRunningProcesses,
        ):
            for process in _answer(processes_on, self._handles[uuid]) or ():
                if process.usedGpuMemory is not None:
                    used_by[process.pid] = process.usedGpuMemory
        return used_by

    def busy_share(self, uuid: str) -> float | None:
        """The share of about the last second in which a GPU ran anything; None if not known."""
        rates = _answer(pynvml.nvmlDeviceGetUtilizationRates, self._handles[uuid])
        return None if rates is None else float(rates.gpu) / 100

    @cached_property
    def _handles(self) -> dict[str, Any]:
        """NVML's handle of each GPU, by its UUID."""
        try:
            pynvml.nvmlInit()
            count = pynvml.nvmlDeviceGetCount()
        except NVMLError as error:
            if error.value not in _NO_DRIVER:
                _log.warning(
                    "NVIDIA's driver does not answer (%s), so trials share its GPUs without regard "
                    "to memory; check it with nvidia-smi, or lower -j",
                    error,
                )
            return {}
        handles = (handle for index in range(count) for handle in _parts(index))
        return {str(pynvml.nvmlDeviceGetUUID(handle)): handle for handle in handles}


def driver_version() -> str | None:
    """The version of NVIDIA's driver, once it was asked for GPUs; None where there is none."""
    version: str | None = _answer(pynvml.nvmlSystemGetDriverVersion)
    return version


def _parts(index: int) -> Iterator[Any]:
    """The handle of a GPU, or those of its parts; none of one that has fallen off the bus."""
    try:
        whole = pynvml.nvmlDeviceGetHandleByIndex(index)
        pynvml.nvmlDeviceGetUUID(whole)
    except NVMLError as error:
        _log.warning("GPU %s cannot be used: %s", index, error)
        return
    mode = _answer(pynvml.nvmlDeviceGetMigMode, whole)
    if mode is None or mode[0] != pynvml.NVML_DEVICE_MIG_ENABLE:
        yield whole
        return
    for number in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(whole)):
        part = _answer(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, whole, number)
        if part is not None:  # fewer were made than could be
            yield part


def _answer(ask: Callable[..., Any], *about: Any) -> Any | None:
    """What a function of NVML returns; None where the driver does not say."""
    try:
        return ask(*about)
    except NVMLError:
        return None


def _memory(handle: Any) -> Any:
    """NVML's figures, in which what the driver keeps for itself is not in use by anyone."""
    return pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)


def _memory_bytes(handle: Any) -> int:
    try:
        memory = _memory(handle)
        return int(memory.total - memory.reserved)
    except NVMLError:  # a GPU without memory of its own (GB10, Jetson) takes the machine's
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
