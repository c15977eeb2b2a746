"""Trials on this machine: slots, and a thread for each trial. The owner of joblib."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

from joblib import Parallel, delayed

from ..machine.capacity import check_descriptors, read_jobs
from ..machine.places import Places
from ..trials import Phase, RunningTrial, TrialSpec
from .executor import TrialSource
from .worker import Worker, opened_worker
from .workload import Workload

#: A bound for the threads of trials, of which there are as many as trials that run or are frozen.
_MOST_TRIALS = 10_000


@dataclass(frozen=True, slots=True)
class LocalExecutor:
    """Runs up to `jobs` trials at once on this machine.

    Attributes:
        workload: what its trials have in common.
        places: gives each trial its place on the machine.
        jobs: how many trials run at once.
        why: why there are so many slots, for people; empty where users have said how many.
    """

    workload: Workload
    _: KW_ONLY
    places: Places
    jobs: int
    why: str = ""
    can_freeze: ClassVar = True  # its slot is free meanwhile

    @classmethod
    def on_this_machine(cls, workload: Workload, jobs: int | str) -> LocalExecutor:
        """With the GPUs that the settings ask for and as many slots as this machine carries.

        Args:
            jobs: trials at once, or `"auto"` for as many as cores and memory carry.

        Raises:
            SettingsError: the machine has not what is asked for, or `jobs` is no number of trials.
        """
        resources = workload.settings.resources
        count, why = read_jobs(jobs, resources.threads)
        check_descriptors(count)
        return cls(workload, places=Places.of_machine(resources, jobs=count), jobs=count, why=why)

    @property
    def description(self) -> str:
        """Why there are so many slots, and the number of GPUs; without what there is not."""
        gpus = f"{len(self.places.gpus)} GPU" if self.places.gpus else ""
        gpus += " with MPS" if self.places.mps is not None else ""
        return ", ".join(part for part in (self.why, gpus) if part)

    def run(self, source: TrialSource) -> Sequence[str]:
        """Keep all slots busy until there are no more trials and the last one has ended.

        No process that a trial has started outlives this call, however it ends.
        """
        with (
            opened_worker(self.workload, places=self.places, time_left=source) as worker,
            ThreadPoolExecutor(_MOST_TRIALS, thread_name_prefix="trial") as threads,
        ):
            trials = _Trials(worker, source, threads)
            # One thread more than slots: with a single one joblib would use the main thread, which
            # has to stay free for signals.
            pool = Parallel(n_jobs=self.jobs + 1, backend="threading", batch_size=1)
            try:
                is_over = False
                while not is_over:
                    pool(delayed(trials.serve)() for _ in range(self.jobs))
                    is_over = trials.all_ended_in_slots()
            except BaseException:
                source.stop("an interruption")
                raise
            return worker.findings


class _Trials:
    """The trials of one call: those that run, and those that are frozen."""

    def __init__(self, worker: Worker, source: TrialSource, threads: ThreadPoolExecutor) -> None:
        self._worker, self._source, self._threads = worker, source, threads
        self._begun: dict[RunningTrial, Future[None]] = {}

    def serve(self) -> None:
        """Run trials in one slot, each until it has ended or is frozen; then ask for the next."""
        while (trial := self._source.next_trial()) is not None:
            running = trial[1]
            begun = self._begun.get(running)
            if begun is None:
                if running.control.phase is Phase.ENDED:  # since this slot was to go on with it
                    continue
                begun = self._begun[running] = self._threads.submit(self._run, *trial)
            running.control.wait_for_rest()
            # Perhaps two slots see it: that before it, too.
            if running.control.phase is Phase.ENDED:
                self._begun.pop(running, None)
                begun.result()

    def all_ended_in_slots(self) -> bool:
        """Wait for the trials that end without a slot; False if there were any.

        One whose kernel died while it was frozen is to be run again.
        """
        ending = list(self._begun.values())
        self._begun.clear()
        for begun in ending:
            begun.result()
        return not ending

    def _run(self, spec: TrialSpec, running: RunningTrial) -> None:
        try:
            self._source.finish_trial(spec, self._worker.run_trial(spec, running))
        finally:
            running.control.end()
