"""Hand each trial its share of a GPU, in turn, and its number of threads."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from ...errors import SettingsError
from ...trials import RunningTrial, TrialSpec
from .policy import GpuPolicy, LeastLoaded
from .present import present_gpus

#: Read by the libraries that compute when they are imported; the number of threads changes the
#: last bits of a result, so it is fixed for the whole study.
_THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A share of a device, held by a running trial.

    Attributes:
        gpu: as CUDA_VISIBLE_DEVICES names it; None on a machine without one.
        env: what it adds to the environment of the trial's kernel.
    """

    gpu: str | None
    env: Mapping[str, str]


class StoppedWaiting(Exception):
    """A trial was stopped while it waited for a device."""


class GpuAllocator:
    """Gives each trial a share of a GPU, the one that has waited longest first.

    Args:
        gpus: as CUDA_VISIBLE_DEVICES names them; empty on a machine without any.
        threads: that each kernel computes with.
        policy: which GPU a trial gets; default: the one with the fewest trials.
        hidden: whether kernels must not see GPUs that are not in `gpus`, such as those of a
            machine whose driver has no tool.
    """

    def __init__(
        self,
        gpus: Sequence[str],
        *,
        threads: int,
        policy: GpuPolicy | None = None,
        hidden: bool = False,
    ) -> None:
        self._leases: dict[str, list[TrialSpec]] = {gpu: [] for gpu in gpus}
        self._threads = threads
        self._policy = policy or LeastLoaded()
        self._hidden = hidden
        #: The trials that wait, the longest first.
        self._queue: deque[TrialSpec] = deque()
        self._changed = threading.Condition()

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
        present = present_gpus(is_memory_asked=memory_bytes is not None)
        chosen = present
        if not isinstance(wanted, str):
            missing = [index for index in wanted if index >= len(present)]
            if missing:
                there = f"0 to {len(present) - 1}" if present else "none"
                raise SettingsError(
                    f"resources.gpus: there is no GPU {missing[0]} on this machine; there are: "
                    f"{there}"
                )
            chosen = {name: present[name] for name in (list(present)[index] for index in wanted)}
        policy = LeastLoaded.by_memory(chosen, memory_bytes=memory_bytes)
        return cls(list(chosen), threads=threads, policy=policy)

    @property
    def gpus(self) -> list[str]:
        """The GPUs that trials run on, as CUDA_VISIBLE_DEVICES names them."""
        return list(self._leases)

    @property
    def env(self) -> dict[str, str]:
        """What all kernels find in their environment, before they import anything."""
        return {
            **{name: str(self._threads) for name in _THREAD_VARIABLES},
            "PYTHONHASHSEED": "0",
            # cuBLAS is deterministic only with a workspace of fixed size.
            "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
            # Until a trial's lease says otherwise: nothing may take a GPU before.
            **({"CUDA_VISIBLE_DEVICES": ""} if self._leases or self._hidden else {}),
        }

    @property
    def waiting(self) -> int:
        """How many trials wait for a share."""
        return len(self._queue)

    @contextmanager
    def allocate(self, spec: TrialSpec, stop: RunningTrial) -> Iterator[Lease]:
        """A share for one trial, given back at the end of the block.

        Args:
            stop: the same trial as it runs: a stop ends the wait at once, and the time that the
                trial waits does not count as its own.

        Raises:
            StoppedWaiting: the trial was stopped before it had a share.
        """
        gpu = self._take(spec, stop) if self._leases else None
        try:
            yield Lease(gpu=gpu, env={} if gpu is None else {"CUDA_VISIBLE_DEVICES": gpu})
        finally:
            if gpu is not None:
                self._give_back(spec, gpu)

    def _take(self, spec: TrialSpec, stop: RunningTrial) -> str:
        with self._changed:
            self._queue.append(spec)
        stop.on_stop(self._wake)
        try:
            with stop.waiting(), self._changed:
                while not stop.stop_reason:
                    is_first = self._queue[0] is spec
                    gpu = self._policy.choose(spec, self._leases) if is_first else None
                    if gpu is not None:
                        self._leases[gpu].append(spec)
                        return gpu
                    self._changed.wait()
                raise StoppedWaiting
        finally:
            stop.on_stop(None)
            with self._changed:
                _remove(self._queue, spec)
                self._changed.notify_all()  # the next trial is the first now

    def _give_back(self, spec: TrialSpec, gpu: str) -> None:
        with self._changed:
            _remove(self._leases[gpu], spec)
            self._changed.notify_all()

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()


def _remove(specs: deque[TrialSpec] | list[TrialSpec], spec: TrialSpec) -> None:
    """Remove this very spec: a proof runs a trial's spec again, perhaps beside the trial itself."""
    del specs[next(index for index, other in enumerate(specs) if other is spec)]
