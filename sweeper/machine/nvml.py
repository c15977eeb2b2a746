"""Read facts about GPUs with NVIDIA's management library (NVML), which does not initialise CUDA."""

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

#: Bytes of GPU memory that CUDA itself is assumed to use in each process (chosen, not measured).
CONTEXT_BYTES = 512 * 1024**2
#: Error codes of NVML on a machine without an NVIDIA GPU.
_NO_DRIVER = (pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, pynvml.NVML_ERROR_DRIVER_NOT_LOADED)


class GpuError(Exception):
    """A GPU has failed: its driver reports an error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A GPU that trials may use, or a part of a GPU (MIG).

    Attributes:
        uuid: UUID by which the driver and CUDA_VISIBLE_DEVICES name the GPU.
        memory_bytes: Size of the memory, without the part that the driver reserves.
        model: Model, such as `NVIDIA H200`. Empty if the driver does not state it.
        number: Number of the GPU in nvidia-smi. The parts of a GPU have its number.
        is_exclusive: Whether only one process at a time can use the GPU (EXCLUSIVE_PROCESS).
    """

    uuid: str
    memory_bytes: int
    model: str = ""
    number: int = 0
    is_exclusive: bool = False

    @property
    def is_part(self) -> bool:
        """Whether this is a part of a GPU (MIG)."""
        return self.uuid.startswith("MIG-")


class Nvml:
    """The GPUs that NVIDIA's driver knows: none if there is no driver. Does not initialise CUDA."""

    def installed(self) -> Sequence[Gpu]:
        """Return the working GPUs in the order of nvidia-smi.

        For a GPU that MIG has split, return its parts instead.
        """
        return [
            Gpu(
                uuid=uuid,
                memory_bytes=_memory_bytes(handle),
                model=str(_answer(pynvml.nvmlDeviceGetName, handle) or ""),
                number=number,
                is_exclusive=_answer(pynvml.nvmlDeviceGetComputeMode, handle)
                == pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS,
            )
            for uuid, (number, handle) in self._found.items()
        ]

    def used_bytes(self, uuid: str) -> int | None:
        """Return how many bytes of a GPU all processes together use, or None if that is not known.

        Raises:
            GpuError: The GPU has failed.
        """
        try:
            return int(_memory(self._handle(uuid)).used)
        except NVMLError as error:
            if error.value in (pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_NO_PERMISSION):
                return None
            raise GpuError(f"NVIDIA's driver says: {error}") from error

    def used_by(self, uuid: str) -> Mapping[int, int]:
        """Return how many bytes of a GPU each process uses, by process id. Empty if not known.

        In a container, the driver may report process ids that are only valid on the host.
        """
        used_by: dict[int, int] = {}
        # NVML lists the clients of an MPS server separately. The list of ordinary processes
        # contains only the server.
        for processes_on in (
            pynvml.nvmlDeviceGetComputeRunningProcesses,
            pynvml.nvmlDeviceGetMPSComputeRunningProcesses,
        ):
            for process in _answer(processes_on, self._handle(uuid)) or ():
                if process.usedGpuMemory is not None:
                    used_by[process.pid] = process.usedGpuMemory
        return used_by

    def busy_share(self, uuid: str) -> float | None:
        """Return the share of about the last second in which a GPU was busy. None if not known."""
        rates = _answer(pynvml.nvmlDeviceGetUtilizationRates, self._handle(uuid))
        return None if rates is None else float(rates.gpu) / 100

    def _handle(self, uuid: str) -> Any:
        """Return NVML's handle of a GPU."""
        return self._found[uuid][1]

    @cached_property
    def _found(self) -> dict[str, tuple[int, Any]]:
        """Numbers of nvidia-smi and handles of NVML, by the UUID of the GPU."""
        try:
            pynvml.nvmlInit()
            count = pynvml.nvmlDeviceGetCount()
        except NVMLError as error:
            if error.value not in _NO_DRIVER:
                _log.warning(
                    "NVIDIA's driver does not answer (%s), so trials share its GPUs, and nothing "
                    "checks whether they fit into memory; run nvidia-smi to see why, or lower -j",
                    error,
                )
            return {}
        found: dict[str, tuple[int, Any]] = {}
        for number in range(count):
            for handle in _parts(number):
                found[str(pynvml.nvmlDeviceGetUUID(handle))] = number, handle
        return found


def driver_version() -> str | None:
    """Return the version of NVIDIA's driver, or None if there is none.

    Call this only after `Nvml.installed`, which initialises NVML.
    """
    version: str | None = _answer(pynvml.nvmlSystemGetDriverVersion)
    return version


def _parts(index: int) -> Iterator[Any]:
    """Yield the handle of a GPU, or the handles of its parts (MIG). Yield none for a failed GPU.

    Args:
        index: Number of the GPU in nvidia-smi.
    """
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
        if part is not None:  # None means that the GPU has fewer parts than the maximum.
            yield part


def _answer(ask: Callable[..., Any], *about: Any) -> Any | None:
    """Call a function of NVML. Return its result, or None if NVML reports an error.

    Args:
        ask: The function.
        *about: Arguments of the function, such as the handle of a GPU.
    """
    try:
        return ask(*about)
    except NVMLError:
        return None


def _memory(handle: Any) -> Any:
    """Return NVML's memory figures. `used` excludes the memory that the driver reserves.

    Drivers before 510 have only the first version of the call, which counts that memory as used.
    """
    try:
        return pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
    except NVMLError as error:
        if error.value != pynvml.NVML_ERROR_FUNCTION_NOT_FOUND:
            raise
        return pynvml.nvmlDeviceGetMemoryInfo(handle)


def _memory_bytes(handle: Any) -> int:
    try:
        memory = _memory(handle)
        return int(memory.total - getattr(memory, "reserved", 0))
    except NVMLError:  # A GPU without own memory (GB10, Jetson) uses that of the machine.
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
