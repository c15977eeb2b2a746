"""Trials on this machine: threads that each drive one kernel at a time. The owner of joblib."""

from __future__ import annotations

from collections.abc import Sequence

from joblib import Parallel, delayed

from .capacity import read_jobs, refuse_small_address_space
from .executor import TrialSource
from .places import Places
from .worker import Worker, opened_worker
from .workload import Workload


class LocalExecutor:
    """Runs up to `jobs` trials at once on this machine.

    Args:
        workload: what its trials have in common.
        places: gives each trial its place on the machine.
        why: why there are so many slots, for people; empty where users have said how many.
    """

    def __init__(
        self,
        workload: Workload,
        *,
        places: Places,
        jobs: int,
        why: str = "",
    ) -> None:
        self._workload = workload
        self._places = places
        self._jobs = jobs
        self._why = why

    @classmethod
    def on_this_machine(cls, workload: Workload, jobs: int | str) -> LocalExecutor:
        """With the GPUs that the settings ask for and as many slots as this machine carries.

        Args:
            jobs: trials at once, or `"auto"` for as many as cores and memory carry.

        Raises:
            SettingsError: the machine has not what is asked for, `jobs` is no number of trials, or
                `ulimit -v` is too small for them.
        """
        resources = workload.settings.resources
        slots = read_jobs(jobs, resources.threads)
        refuse_small_address_space(slots.count)
        places = Places.of_machine(resources, jobs=slots.count)
        return cls(workload, places=places, jobs=slots.count, why=slots.why)

    @property
    def jobs(self) -> int:
        """How many trials run at once."""
        return self._jobs

    @property
    def description(self) -> str:
        """Why there are so many slots, and the number of GPUs; without what there is not."""
        gpus = f"{len(self._places.gpus)} GPU" if self._places.gpus else ""
        gpus += " with MPS" if self._places.mps is not None else ""
        why = f"({self._why})" if self._why else ""
        return ", ".join(part for part in (why, gpus) if part)

    @property
    def has_gpus(self) -> bool:
        """Whether trials get GPUs here."""
        return bool(self._places.gpus)

    def run(self, source: TrialSource) -> Sequence[str]:
        """Keep all slots busy until there are no more trials and the last one has ended.

        No process that a trial has started outlives this call, however it ends.
        """
        with opened_worker(
            self._workload,
            places=self._places,
            time_left=source,
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
