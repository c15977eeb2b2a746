"""Which GPU and how many threads a trial gets. Never initialises CUDA itself."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from .errors import SettingsError

#: Read by the libraries that compute when they are imported; the number of threads changes the
#: last bits of a result, so it is fixed for the whole study.
_THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)
_MEMORY_PER_TRIAL_BYTES = 2 * 1024**3


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A share of a device, held by a running trial: what its kernel finds in its environment."""

    gpu: str | None
    env: Mapping[str, str]


class Devices:
    """Hands each trial the GPU with the fewest trials on it; several share one."""

    def __init__(self, gpus: Sequence[str], *, threads: int) -> None:
        self._load = dict.fromkeys(gpus, 0)
        self._threads = threads
        self._lock = threading.Lock()

    @property
    def gpus(self) -> list[str]:
        """The GPUs that trials run on, as CUDA_VISIBLE_DEVICES names them."""
        return list(self._load)

    @property
    def env(self) -> dict[str, str]:
        """What all kernels find in their environment, before they import anything."""
        return {
            **{name: str(self._threads) for name in _THREAD_VARIABLES},
            "PYTHONHASHSEED": "0",
            # cuBLAS is deterministic only with a workspace of fixed size.
            "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
            # Until a trial's lease says otherwise: nothing may take a GPU before.
            "CUDA_VISIBLE_DEVICES": "",
        }

    @classmethod
    def find(cls, wanted: str | Sequence[int], *, threads: int) -> Devices:
        """The GPUs of this machine that a parameters file asks for.

        Args:
            wanted: `"auto"` for all, `"none"`, or their numbers.
            threads: that each kernel computes with.

        Raises:
            SettingsError: a number is asked for that this machine does not have.
        """
        if wanted == "none":
            return cls((), threads=threads)
        present = _present_gpus()
        if isinstance(wanted, str):
            return cls(present, threads=threads)
        missing = [index for index in wanted if index >= len(present)]
        if missing:
            there = f"0 to {len(present) - 1}" if present else "none"
            raise SettingsError(
                f"resources.gpus: there is no GPU {missing[0]} on this machine; there are: {there}"
            )
        return cls([present[index] for index in wanted], threads=threads)

    @contextmanager
    def lease(self) -> Iterator[Lease]:
        """A share for one trial, given back at the end."""
        with self._lock:
            gpu = min(self._load, key=self._load.__getitem__, default=None)
            if gpu is not None:
                self._load[gpu] += 1
        try:
            yield Lease(gpu=gpu, env={"CUDA_VISIBLE_DEVICES": gpu or ""})
        finally:
            if gpu is not None:
                with self._lock:
                    self._load[gpu] -= 1


def _present_gpus() -> list[str]:
    """The GPUs that this process may use, asked of the driver's own tool."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    try:
        asked = subprocess.run(
            [tool, "--query-gpu=uuid", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return []
    uuids = asked.stdout.split()
    allowed = os.environ.get("CUDA_VISIBLE_DEVICES")
    if allowed is None:
        return uuids
    names = [name.strip() for name in allowed.split(",") if name.strip()]
    visible = []
    for name in names:
        if name.isdigit() and int(name) < len(uuids):
            visible.append(uuids[int(name)])
        elif name.startswith(("GPU-", "MIG-")):
            visible.append(name)
        else:
            break  # CUDA sees nothing of what follows an index that it does not have, such as -1
    return visible


def usable_cores() -> int:
    """Cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def as_many_as_fit(threads: int) -> int:
    """Trials at once that this machine's cores and free memory carry; what `-j auto` means."""
    by_cores = usable_cores() // threads
    try:
        free_bytes = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):  # not told by this system
        return max(1, by_cores)
    return max(1, min(by_cores, free_bytes // _MEMORY_PER_TRIAL_BYTES))
