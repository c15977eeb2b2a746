"""Which GPU and how many threads a trial gets. Never initialises CUDA itself."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ..errors import SettingsError
from ..trials import RunningTrial

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
#: What CUDA itself takes of a GPU in each process.
_CONTEXT_BYTES = 512 * 1024**2


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A share of a device, held by a running trial: what its kernel finds in its environment."""

    gpu: str | None
    env: Mapping[str, str]


def memory_of(pid: int) -> int | None:
    """Memory of a process and all its children, in bytes; None when it cannot be known.

    Pages that several processes share count in equal parts (the kernel's PSS), so that forked
    kernels add up to what they really take.
    """
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
        kibibytes = next(int(line.split()[1]) for line in text.splitlines() if line[:4] == "Pss:")
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except (OSError, StopIteration, ValueError):
        return None
    return 1024 * kibibytes + sum(memory_of(int(child)) or 0 for child in children)


class StoppedWaiting(Exception):
    """A trial was stopped while it waited for a device."""


class GpuAllocator:
    """Hands each trial the GPU with the fewest trials on it; several share one."""

    def __init__(
        self,
        gpus: Sequence[str],
        *,
        threads: int,
        room: Mapping[str, int] | None = None,
        hidden: bool = False,
    ) -> None:
        self._load = dict.fromkeys(gpus, 0)
        self._threads = threads
        #: How many trials fit onto a GPU, where that is known.
        self._room = dict(room or {})
        #: Whether kernels must not see GPUs that we know nothing of: drivers without their tool.
        self._hidden = hidden
        #: One entry for each trial that waits, the longest first.
        self._queue: deque[object] = deque()
        self._changed = threading.Condition()

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
            **({"CUDA_VISIBLE_DEVICES": ""} if self._load or self._hidden else {}),
        }

    @classmethod
    def find(
        cls, wanted: str | Sequence[int], *, threads: int, memory_bytes: int | None = None
    ) -> GpuAllocator:
        """The GPUs of this machine that a parameters file asks for.

        Args:
            wanted: `"auto"` for all, `"none"`, or their numbers: in nvidia-smi's order, or in
                that of CUDA_VISIBLE_DEVICES where it is set.
            threads: that each kernel computes with.
            memory_bytes: of a GPU, that each trial takes; None when it is not known.

        Raises:
            SettingsError: a number is asked for that this machine does not have, or a GPU is too
                small for a single trial.
        """
        if wanted == "none":
            return cls((), threads=threads, hidden=True)
        present = _present_gpus(is_memory_asked=memory_bytes is not None)
        if isinstance(wanted, str):
            return cls(list(present), threads=threads, room=_room(present, memory_bytes))
        missing = [index for index in wanted if index >= len(present)]
        if missing:
            there = f"0 to {len(present) - 1}" if present else "none"
            raise SettingsError(
                f"resources.gpus: there is no GPU {missing[0]} on this machine; there are: {there}"
            )
        chosen = {name: present[name] for name in (list(present)[index] for index in wanted)}
        return cls(list(chosen), threads=threads, room=_room(chosen, memory_bytes))

    @property
    def waiting(self) -> int:
        """How many trials wait for a share."""
        return len(self._queue)

    @contextmanager
    def lease(self, channel: RunningTrial | None = None) -> Iterator[Lease]:
        """A share for one trial, given back at the end; waits in turn until there is one.

        Args:
            channel: of the trial, which may be stopped meanwhile, and is told how long it waits.

        Raises:
            StoppedWaiting: the trial was stopped before it had a share.
        """
        gpu = self._take(channel or RunningTrial()) if self._load else None
        try:
            yield Lease(gpu=gpu, env={} if gpu is None else {"CUDA_VISIBLE_DEVICES": gpu})
        finally:
            if gpu is not None:
                with self._changed:
                    self._load[gpu] -= 1
                    self._changed.notify_all()

    def _take(self, channel: RunningTrial) -> str:
        turn = object()
        self._queue.append(turn)
        channel.on_stop(self._wake)
        try:
            with channel.waiting(), self._changed:
                self._changed.wait_for(
                    lambda: channel.stop_reason or (self._queue[0] is turn and self._free())
                )
                if channel.stop_reason:
                    raise StoppedWaiting
                gpu = min(self._free(), key=self._load.__getitem__)
                self._load[gpu] += 1
                return gpu
        finally:
            channel.on_stop(None)
            self._queue.remove(turn)
            self._wake()  # it is another's turn

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _free(self) -> list[str]:
        return [gpu for gpu, load in self._load.items() if load < self._room.get(gpu, load + 1)]


def _room(gpus: Mapping[str, int | None], memory_bytes: int | None) -> dict[str, int]:
    """How many trials fit onto each GPU."""
    if memory_bytes is None:
        return {}
    known = {name: total for name, total in gpus.items() if total is not None}
    for name, total in known.items():
        if total < memory_bytes + _CONTEXT_BYTES:
            raise SettingsError(
                f"resources.gpu_memory: a trial takes {memory_bytes / 1e9:.1f} GB and "
                f"{_CONTEXT_BYTES / 1e9:.1f} GB for its context; {name} has {total / 1e9:.1f} GB"
            )
    return {name: total // (memory_bytes + _CONTEXT_BYTES) for name, total in known.items()}


def _present_gpus(*, is_memory_asked: bool) -> dict[str, int | None]:
    """The GPUs that this process may use and their memory in bytes, from the driver's own tool.

    A number in CUDA_VISIBLE_DEVICES stays one: CUDA counts the fastest GPU first where
    CUDA_DEVICE_ORDER does not say otherwise, and the tool counts by their places on the bus.
    """
    installed = _installed_gpus()
    allowed = os.environ.get("CUDA_VISIBLE_DEVICES")
    if allowed is None or not installed:
        return dict(installed)
    visible: dict[str, int | None] = {}
    for name in (part.strip() for part in allowed.split(",")):
        if name.lstrip("-").isdigit():
            if not 0 <= int(name) < len(installed):
                break  # as in CUDA: a number that does not exist hides those after it
            if is_memory_asked:
                visible[name] = _memory_of_number(int(name), list(installed.values()))
            else:
                visible[name] = None
        elif name:
            # CUDA takes the beginning of a name, too. Parts of a GPU (MIG) are not in the list.
            begins = (total for uuid, total in installed.items() if uuid.startswith(name))
            visible[name] = next(begins, None)
    return visible


def _installed_gpus() -> dict[str, int | None]:
    """All GPUs of the machine by UUID, in the order of their places on the bus."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return {}
    try:
        asked = subprocess.run(
            [tool, "--query-gpu=uuid,memory.total", "--format=csv,noheader,nounits"],
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return {}
    lines = [line.partition(",") for line in asked.stdout.splitlines()]
    # Between them the tool writes warnings, and in their place that there are none.
    return {uuid.strip(): _read_memory(said) for uuid, _, said in lines if uuid.startswith("GPU-")}


def _read_memory(said: str) -> int | None:
    """What the tool says of a GPU's memory, in bytes; None when it says nothing that is of use."""
    try:
        return int(said) * 1024**2
    except ValueError:
        pass
    # A GPU without memory of its own (GB10, Jetson) takes the machine's.
    is_shared = said.strip() in ("[N/A]", "[Not Supported]")
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if is_shared else None


def _memory_of_number(number: int, totals: Sequence[int | None]) -> int | None:
    """Memory of the GPU that CUDA calls by a number."""
    if len(set(totals)) == 1 or os.environ.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID":
        return totals[number]
    raise SettingsError(
        f"resources.gpu_memory: the GPUs of this machine differ, and which of them is number "
        f"{number} of CUDA_VISIBLE_DEVICES, only CUDA knows, which counts the fastest first; set "
        "CUDA_DEVICE_ORDER=PCI_BUS_ID as well, or give the UUIDs that `nvidia-smi -L` lists"
    )


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


def read_jobs(jobs: int | str, threads: int) -> int:
    """How many trials there are to be at once.

    Args:
        jobs: a number, or `"auto"` for as many as cores and memory carry.
        threads: of each trial.

    Raises:
        SettingsError: it is neither.
    """
    if jobs == "auto":
        return as_many_as_fit(threads)
    try:
        count = int(jobs)
    except ValueError:
        count = 0
    if count < 1:
        raise SettingsError(f"-j {jobs}: expected a whole number of 1 or more, or auto")
    return count
