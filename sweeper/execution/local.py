"""Run trials on this machine. Each slot is a thread of joblib that serves one trial at a time.

Each trial runs on a thread of its own, so that a frozen (paused) trial can leave its slot.
"""

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

#: Largest number of threads (chosen, not measured). Each running or frozen trial has one thread.
_MOST_TRIALS = 10_000


@dataclass(frozen=True, slots=True)
class LocalExecutor:
    """Runs up to `jobs` trials at once on this machine.

    Attributes:
        workload: What its trials have in common.
        places: Object that assigns memory and GPUs to trials.
        jobs: Number of slots, in each of which one trial runs at a time.
        why: Reason for the number of slots, for people. Empty if the user has set the number.
    """

    workload: Workload
    _: KW_ONLY
    places: Places
    jobs: int
    why: str = ""
    can_freeze: ClassVar = True  # A frozen trial frees its slot for other trials.

    @classmethod
    def on_this_machine(cls, workload: Workload, jobs: int | str) -> LocalExecutor:
        """Return an executor with the GPUs that the settings ask for.

        Args:
            workload: What its trials have in common.
            jobs: Number of trials that run at once, or `"auto"` for as many as processors and
                memory allow.

        Raises:
            SettingsError: The machine lacks what the settings ask for, or `jobs` is not a number of
                trials.
        """
        resources = workload.settings.resources
        count, why = read_jobs(jobs, resources.threads)
        check_descriptors(count)
        return cls(workload, places=Places.of_machine(resources, jobs=count), jobs=count, why=why)

    @property
    def description(self) -> str:
        """Reason for the number of slots, and number of GPUs. Empty parts are left out."""
        gpus = f"{len(self.places.gpus)} GPU" if self.places.gpus else ""
        gpus += " with MPS" if self.places.mps.is_on else ""
        return ", ".join(part for part in (self.why, gpus) if part)

    def run(self, source: TrialSource) -> Sequence[str]:
        """Keep all slots busy until there are no more trials and the last one has ended.

        No process of a trial outlives this call, even if the call raises an exception.
        """
        with (
            opened_worker(
                self.workload, places=self.places, time_left=source, slots=self.jobs
            ) as worker,
            ThreadPoolExecutor(_MOST_TRIALS, thread_name_prefix="trial") as threads,
        ):
            trials = _Trials(worker, source, threads)
            # Give joblib one more thread than slots. With a single thread, joblib would use the
            # main thread, which must be free for signals.
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
    """The running and the frozen (paused) trials of one call of `LocalExecutor.run`."""

    def __init__(self, worker: Worker, source: TrialSource, threads: ThreadPoolExecutor) -> None:
        self._worker, self._source, self._threads = worker, source, threads
        self._begun: dict[RunningTrial, Future[None]] = {}
        self._has_ended_elsewhere = False

    def serve(self) -> None:
        """Run one trial after another in a slot.

        The slot turns to the next trial when a trial ends, is frozen (paused), or has run in a
        forked kernel and waits for the proof that forked kernels give the same results.
        """
        while (trial := self._source.next_trial()) is not None:
            running = trial[1]
            begun = self._begun.get(running)
            if begun is None:
                # The trial may have ended before this slot could run it.
                if running.control.phase is Phase.ENDED:
                    continue
                begun = self._begun[running] = self._threads.submit(self._run, *trial)
            running.control.wait_for_rest()
            # Two slots may notice a trial's end: this slot, and the slot where the trial ran before
            # it was frozen. So the other slot may have removed the trial already.
            if running.control.phase is Phase.ENDED:
                self._begun.pop(running, None)
                begun.result()

    def all_ended_in_slots(self) -> bool:
        """Wait for trials that end without a slot. Return False if there were any.

        Such a trial may have to run again, for example if its kernel died while it was frozen. So
        the caller then calls `serve` for all slots once more.
        """
        ending, has_ended = list(self._begun.values()), self._has_ended_elsewhere
        self._begun.clear()
        self._has_ended_elsewhere = False
        for begun in ending:
            begun.result()
        return not (ending or has_ended)

    def _run(self, spec: TrialSpec, running: RunningTrial) -> None:
        try:
            self._source.finish_trial(spec, self._worker.run_trial(spec, running))
        finally:
            has_slot = running.control.phase is Phase.RUNNING
            running.control.end()
        # A trial without a slot has no thread in `serve` that would remove it, so remove it here.
        if not has_slot:
            self._has_ended_elsewhere = True
            self._begun.pop(running, None)
