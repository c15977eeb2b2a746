"""Trials on this machine: threads that each drive one kernel at a time. The owner of joblib."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from joblib import Parallel, delayed

from ..settings.machines import Resources
from .executor import TrialSource
from .gpus import GpuAllocator, Mps
from .gpus.mps import why_not
from .gpus.present import gpus_shared_by_count
from .machine.capacity import read_jobs
from .machine.host_memory import HostMemory
from .machine.shared_memory import advice
from .worker import Worker, opened_worker
from .workload import Workload

_log = logging.getLogger(__name__)


class LocalExecutor:
    """Runs up to `jobs` trials at once on this machine.

    Args:
        workload: what its trials have in common.
        gpus: gives each trial its share of a GPU.
        why: why there are so many slots, for people; empty where users have said how many.
        memory: of the machine; default: this machine's.
        other_gpus: of another make than NVIDIA's, in words; trials share them by count.
        mps: lets trials on one GPU compute at the same time; None where they take turns.
    """

    def __init__(
        self,
        workload: Workload,
        *,
        gpus: GpuAllocator,
        jobs: int,
        why: str = "",
        memory: HostMemory | None = None,
        other_gpus: str = "",
        mps: Mps | None = None,
    ) -> None:
        self._workload = workload
        self._gpus = gpus
        self._memory = memory
        self._jobs = jobs
        self._why = why
        self._other_gpus = other_gpus
        self._mps = mps

    @classmethod
    def on_this_machine(cls, workload: Workload, jobs: int | str) -> LocalExecutor:
        """With the GPUs that the settings ask for and as many slots as this machine carries.

        Args:
            jobs: trials at once, or `"auto"` for as many as cores and memory carry.

        Raises:
            SettingsError: the machine has not what is asked for, or `jobs` is no number of trials.
        """
        resources = workload.settings.resources
        gpus = GpuAllocator.find(
            resources.gpus,
            threads=resources.threads,
            memory_bytes=resources.gpu_memory,
            per_trial=resources.gpus_per_trial,
            holds_back=jobs == "auto",
        )
        workers = workload.loader_workers
        slots = read_jobs(jobs, resources.threads, workers=workers)
        if shortage := advice(workers, slots.count):
            _log.warning("%s", shortage)
        return cls(
            workload,
            gpus=gpus,
            jobs=slots.count,
            why=slots.why,
            other_gpus=_other_gpus(resources, gpus),
            mps=_mps(resources, gpus, jobs=slots.count),
        )

    @property
    def jobs(self) -> int:
        """How many trials run at once."""
        return self._jobs

    @property
    def description(self) -> str:
        """Why there are so many slots, and the number of GPUs; without what there is not."""
        gpus = f"{len(self._gpus.gpus)} GPU" if self._gpus.gpus else self._other_gpus
        if self._other_gpus and self._jobs > 1:
            gpus += " shared by count (-j), not by memory"
        gpus += " with MPS" if self._mps is not None else ""
        why = f"({self._why})" if self._why else ""
        return ", ".join(part for part in (why, gpus) if part)

    @property
    def has_gpus(self) -> bool:
        """Whether trials get shares of GPUs here."""
        return bool(self._gpus.gpus)

    def run(self, source: TrialSource) -> Sequence[str]:
        """Keep all slots busy until there are no more trials and the last one has ended.

        No process that a trial has started outlives this call, however it ends.
        """
        with opened_worker(
            self._workload,
            gpus=self._gpus,
            time_left=source,
            memory=self._memory,
            mps=self._mps,
        ) as worker:
            # One thread more than slots: with a single one joblib would use the main thread, which
            # has to stay free for signals.
            pool = Parallel(n_jobs=self._jobs + 1, backend="threading", batch_size=1)
            try:
                pool(delayed(_serve)(worker, source) for _ in range(self._jobs))
            except BaseException:
                source.stop("an interruption")
                raise
            return worker.findings


def _serve(worker: Worker, source: TrialSource) -> None:
    """Run trials in one slot; its next one is asked for when the last has ended, never before."""
    while (trial := source.next_trial()) is not None:
        spec, running = trial
        source.finish_trial(spec, worker.run_trial(spec, running))


def _other_gpus(resources: Resources, gpus: GpuAllocator) -> str:
    """The GPUs of another make than NVIDIA's that trials share by count; empty for none."""
    others = gpus_shared_by_count() if resources.gpus == "auto" and not gpus.gpus else ""
    if others and resources.gpu_memory is not None:
        _log.warning(
            "resources.gpu_memory: only memory of NVIDIA's GPUs is counted; choose -j so that all "
            "trials together fit onto the %s",
            others.partition(" ")[2],
        )
    return others


def _mps(resources: Resources, gpus: GpuAllocator, *, jobs: int) -> Mps | None:
    if resources.mps != "auto":
        return None
    why = why_not(gpus.devices, jobs=jobs, per_trial=resources.gpus_per_trial)
    if why:
        _log.warning("resources.mps: auto: MPS is not used: %s", why)
    return None if why else Mps()
