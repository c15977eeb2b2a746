"""One sweep over a study: ask, run, tell, until the study has its trials or is stopped."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from ..errors import BrokenError, StudyError
from ..execution.executor import Executor
from ..execution.gpus import GpuAllocator
from ..execution.local import LocalExecutor
from ..execution.machine import read_jobs
from ..execution.workload import Workload
from ..kernels import check_kernel
from ..notebooks import ResearchNotebook
from ..notebooks.fingerprint import Fingerprint, fingerprint_of, tags_of
from ..settings import Settings
from ..settings.addresses import Address
from ..study import SamplerFactory, Study, make_pruner
from ..study_folder.loss import loss_message, watched
from ..study_folder.ownership import held_folder, held_outputs, held_storage
from ..study_folder.requests import ALL, NO_MORE, Requests
from ..sync import RemoteCopy
from ..tracking import Tracker, sqlite_file
from ..trials import (
    Event,
    Events,
    Observer,
    Snapshot,
    StudyPaths,
    SweepResult,
)
from .deadline import deadline
from .preemption import PREEMPTED, PreemptionWatcher, check_service
from .resume_checks import refuse_changes, refuse_files_in_the_way
from .scheduler import TrialScheduler
from .spending import Spending
from .stop_switch import StopSwitch


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """One call of the scheduler over a study. Made by `from_settings`, run once by `run`."""

    settings: Settings
    notebook: ResearchNotebook
    paths: StudyPaths
    kernel_name: str
    executor: Executor
    samplers: SamplerFactory
    storage_url: Address
    tracking_uri: Address | None
    timeout_s: float | None
    made_of: Fingerprint
    allow_changes: bool
    events: Events
    remote: RemoteCopy | None = None
    stop_switch: StopSwitch = field(default_factory=StopSwitch)

    @classmethod
    def from_settings(
        cls,
        settings: Settings,
        *,
        notebook: str | Path | ResearchNotebook,
        output: str,
        jobs: int | str = 1,
        storage: str | None = None,
        tracking_uri: str | None = None,
        kernel: str | None = None,
        timeout_s: float | None = None,
        allow_changes: bool = False,
        observer: Observer | None = None,
        executor: Callable[[Workload], Executor] | None = None,
    ) -> Sweep:
        """Check everything that can be known before a kernel starts, and build the parts.

        Args:
            notebook: the research notebook, with one cell tagged `parameters`; its path, or
                itself where it was read already.
            output: where executed notebooks go, such as `out/digits.{run_id}.ipynb`.
            jobs: trials at once, or `"auto"` for as many as cores and memory carry.
            storage: Optuna storage; default: a SQLite file beside the outputs.
            tracking_uri: MLflow; default: `MLFLOW_TRACKING_URI` if set, else a SQLite store
                beside the outputs.
            kernel: the kernel's name; default: the one that the notebook names.
            timeout_s: wall-clock limit of the whole sweep.
            allow_changes: go on with a study whose earlier trials were made of something else.
            observer: told of each event, one call at a time, from a thread of its own; it may stop
                the sweep, and what it raises is logged.
            executor: makes the place where trials run from what they have in common; default: this
                machine, with `jobs` slots.

        Raises:
            SweepError: whatever is wrong; nothing was started, nothing was written.
        """
        research = (
            notebook if isinstance(notebook, ResearchNotebook) else ResearchNotebook(notebook)
        )
        research.check_parameters(settings.sources)
        kernel_name = kernel or research.kernel_name
        asked_by = f"--kernel {kernel}" if kernel else research.display_name
        if executor is None:  # another place has kernels of its own
            check_kernel(kernel_name, asked_by=asked_by)
        make_pruner(settings)  # refuses wrong options now
        if settings.resources.preemption != "none":
            check_service(settings.resources.preemption)
        paths = StudyPaths.parse(output, study=settings.name)
        storage_url = Address.of(storage or f"sqlite:///{paths.storage}")
        workload = Workload(
            notebook=research, settings=settings, kernel_name=kernel_name, paths=paths
        )
        place = _this_machine(workload, jobs) if executor is None else executor(workload)
        tracking_uri = tracking_uri or os.environ.get("MLFLOW_TRACKING_URI") or None
        return cls(
            settings=settings,
            notebook=research,
            paths=paths,
            kernel_name=kernel_name,
            executor=place,
            samplers=SamplerFactory(settings),
            storage_url=storage_url,
            tracking_uri=None if tracking_uri is None else Address.of(tracking_uri),
            timeout_s=timeout_s,
            made_of=fingerprint_of(research, settings, kernel_name=kernel_name),
            allow_changes=allow_changes,
            events=Events(observer),
            remote=None
            if settings.sync is None
            else RemoteCopy(
                settings.sync.url,
                every_s=settings.sync.every,
                paths=paths,
                storage_url=str(storage_url),  # whose files are copied; those of servers are not
                tracking_uri=tracking_uri,
            ),
        )

    def stop(self, by: str, *, now: bool = False) -> None:
        """Start no more trials; with `now` also stop those that run. From any thread.

        Args:
            by: who stops it and why, for the summary.
        """
        is_new = self.stop_switch.stop_all(by) if now else self.stop_switch.close(by)
        if is_new:  # or an observer that stops the sweep at each event would be called for ever
            self.events.announce(Event.STOPPING)

    def preempt(self, by: str) -> None:
        """The machine is taken away: be gone within the grace time, `limits.grace`.

        From any thread. What the remote copy and MLflow do not take by then, they are given by the
        sweep that goes on.

        Args:
            by: who says so, for the summary.
        """
        self.stop_switch.end_within(self.settings.limits.grace)
        if self.remote is not None:
            self.remote.hurry()
        self.stop(by, now=True)

    def snapshot(self) -> Snapshot | None:
        """How the study stands while `run` is at work; None before it is open. From any thread."""
        seen = self.stop_switch.snapshot()
        if seen is None or self.remote is None:
            return seen
        return replace(seen, copy_late_s=self.remote.late_s)

    def run(self) -> SweepResult:
        """Run trials until the study has as many as it should, or the sweep is stopped.

        Raises:
            SweepError: the outputs, the study or MLflow cannot be used; no kernel was started.
        """
        started = time.monotonic()
        with self.events.delivering(), self._opened() as (study, tracker):
            file, storage = sqlite_file(tracker.uri), str(self.storage_url)
            words = partial(loss_message, storage=storage, tracking=file)
            try:
                scheduler, result = self._swept(study, tracker, started=started)
            except StudyError as error:
                raise BrokenError(words(error)) from error
            if scheduler.broken is not None:
                raise BrokenError(words(scheduler.broken)) from scheduler.broken
            return result

    def _swept(
        self, study: Study, tracker: Tracker, *, started: float
    ) -> tuple[TrialScheduler, SweepResult]:
        spending = Spending(study, self.settings.cost, since=started)
        scheduler = TrialScheduler(
            settings=self.settings,
            samplers=self.samplers,
            paths=self.paths,
            study=study,
            tracker=tracker,
            tags=tags_of(self.settings, self.made_of, self.notebook.path, self.samplers.name),
            stop_switch=self.stop_switch,
            events=self.events,
            spending=spending,
            jobs=self.executor.jobs,
        )
        study.be_patient(self.stop_switch.patience_s)
        files = [self.paths.lock, study.file, sqlite_file(tracker.uri)]
        with watched(files, scheduler.lose) as watch:
            with closing(scheduler), spending.written_down():
                tracker.watch(lambda run_id: self._carry_out(run_id, "the tag sweeper.stop"))
                scheduler.log_missed_trials()
                self.events.announce(Event.SWEEP_STARTED)
                with deadline(timeout_s=self.timeout_s, spending=spending, stop=self.stop):
                    findings = self.executor.run(scheduler)
                left_s = self.stop_switch.left_s
                unlogged = tracker.close(patience_s=None if left_s is None else left_s / 2)
            if not watch.look() and scheduler.broken is None:
                study.note_facts(
                    mlflow_run_ids=tracker.mlflow_run_ids,
                    compare_url=tracker.compare_url(),
                )
            lag_s = self._last_copy()
            watch.look()
        result = SweepResult(
            study=study.name,
            storage=str(self.storage_url),
            tracking_uri=tracker.uri,
            experiment_id=tracker.experiment_id,
            objectives=list(self.settings.objective),
            records=study.records(),
            best=study.best(),
            mlflow_run_ids=tracker.mlflow_run_ids,
            compare_url=tracker.compare_url(),
            stopped_by=scheduler.stopped_by,
            is_preempted=self.stop_switch.closed_by == PREEMPTED,
            unlogged=unlogged,
            cost=spending.cost,
            sync_lag_s=lag_s,
            findings=list(findings),
            duration_s=time.monotonic() - started,
        )
        return scheduler, result

    # --- before the first kernel ----------------------------------------------------------------

    @contextmanager
    def _opened(self) -> Iterator[tuple[Study, Tracker]]:
        """The study and its tracker, held by this process; nothing is left of a refused call."""
        # Heard from the moment on at which other commands see that the folder is held.
        with (
            held_folder(self.paths) as keep,
            held_outputs(self.paths),
            self._asked(),
            self._copied() as is_brought_back,
            held_storage(sqlite_file(self.storage_url.full), self.paths),
            closing(Study.open(self.storage_url, self.settings)) as study,
        ):
            if is_brought_back:
                keep()
            if not self.allow_changes:
                told_by = f"{self.notebook.display_name} and {self.settings.file or 'the settings'}"
                refuse_changes(study, self.made_of, told_by=told_by)
            refuse_files_in_the_way(study, self.paths, trials=self.settings.study.trials)
            if "template" not in study.facts:
                # Making an MLflow store may take a minute; other commands find the study meanwhile.
                uri = str(self.tracking_uri or f"sqlite:///{self.paths.tracking}")
                study.note_facts(template=self.paths.template, tracking_uri=uri)
            tracker = Tracker.open(
                self.tracking_uri,
                study=study.name,
                study_id=study.study_id,
                embedded=self.paths.tracking,
                artifacts=self.paths.artifacts,
                note=self._note(),
            )
            study.note_facts(
                template=self.paths.template,
                tracking_uri=tracker.uri,
                experiment_id=tracker.experiment_id,
                trials=self.settings.study.trials,
                settings=self.settings.as_mapping,
                made_of=self.made_of,
            )
            keep()
            if self.remote is not None:
                self.remote.start()
            try:
                yield study, tracker
            finally:
                tracker.close(patience_s=0.0)  # after an error; else it was closed by now

    def _copied(self) -> AbstractContextManager[bool]:
        """The remote copy, if there is to be one; whether the study was brought back from it."""
        if self.remote is None:
            return nullcontext(False)
        return self.remote.opened(lambda: self.events.announce(Event.BRINGING_BACK))

    def _note(self) -> str:
        objectives = ", ".join(f"{o.direction} {n}" for n, o in self.settings.objective.items())
        return f"Sweep over `{self.notebook.display_name}`: {objectives}."

    # --- around the trials ----------------------------------------------------------------------

    @contextmanager
    def _asked(self) -> Iterator[None]:
        """What other processes and the machine's owner ask for is done."""
        with ExitStack() as watched:
            obey = partial(self._carry_out, sender="the command stop")
            watched.callback(Requests(self.paths.requests, obey).close)
            cloud = self.settings.resources.preemption
            if cloud != "none":
                watched.callback(PreemptionWatcher(cloud, lambda: self.preempt(PREEMPTED)).close)
            yield

    def _carry_out(self, request: str, sender: str) -> None:
        """Do what another process asks for."""
        if request in (ALL, NO_MORE):
            self.stop(sender, now=request == ALL)
        elif request.isdigit():
            self.stop_switch.stop(int(request), f"stopped by {sender}")

    def _last_copy(self) -> float | None:
        """Copy what has changed since the last time; how far the copy is behind after that."""
        if self.remote is None:
            return None
        return self.remote.end(
            left_s=self.stop_switch.left_s, on_wait=lambda: self.events.announce(Event.COPYING)
        )


def _this_machine(workload: Workload, jobs: int | str) -> Executor:
    """The executor with slots on this machine.

    Raises:
        SettingsError: the machine lacks a GPU that is asked for, or `jobs` is no number of slots.
    """
    resources = workload.settings.resources
    gpus = GpuAllocator.find(
        resources.gpus, threads=resources.threads, memory_bytes=resources.gpu_memory
    )
    return LocalExecutor(workload, gpus=gpus, jobs=read_jobs(jobs, resources.threads))
