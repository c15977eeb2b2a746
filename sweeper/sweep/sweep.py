"""One sweep: its trials from the first to the last, what stops it, and its result."""

from __future__ import annotations

import logging
import os
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

from ..display.in_jupyter import live_output
from ..errors import BrokenError, StorageAwayError, StudyError, SweepError, first_line, root_cause
from ..execution.disagreements import disagreements_in_words
from ..execution.executor import Executor
from ..execution.workload import Workload
from ..notebooks.fingerprint import fingerprint_of, local_code, tags_of
from ..notebooks.research import ResearchNotebook
from ..notebooks.shared_cells import check_shared_cells
from ..search.pruners import make_pruner
from ..search.samplers import SamplerFactory
from ..settings import Settings
from ..settings.addresses import Address
from ..study.located import LocatedStudy
from ..study.study import Study
from ..study_folder.requests import ALL, NO_MORE
from ..sync.archive import Dataset
from ..tracking import PATIENCE_S, Tracker
from ..trials import (
    Chore,
    ChoreKind,
    Chores,
    Event,
    Events,
    Importance,
    Observer,
    Snapshot,
    StopCause,
    StudyPaths,
    SweepResult,
    without_effect,
)
from .confirming import confirming_plan, with_confirmation
from .deadline import stopped_after
from .frozen_code import changed_meanwhile, snapshot_of
from .housekeeping import Housekeeping
from .notifying import Notifier
from .opening import opened
from .planning.kinds import check_kinds
from .planning.plan import SweepPlan, executor_of, remote_copy
from .scheduling.scheduler import TrialScheduler
from .scheduling.stop_switch import StopSwitch
from .scheduling.trial_log import TrialLog
from .spending import Spending

_log = logging.getLogger(__name__)


class Sweep:
    """Runs trials of one study. Made by `from_settings`, run once by `run`.

    All methods but `run` may be called from any thread and from signal handlers.

    Args:
        observer: called with each event, one call at a time, from a thread of its own; it may stop
            the sweep. What it raises is logged.

    Attributes:
        plan: what the sweep is made of.
        data_lines: what is done about the data of the trials; a new line comes before its event.
    """

    def __init__(self, plan: SweepPlan, *, observer: Observer | None = None) -> None:
        self.plan = plan
        self._notifier = Notifier(plan.settings.notify, plan.settings.name)
        self._is_preempted = False
        self._events = Events(self._notifier.observe, *([observer] if observer else []))
        self._stop_switch = StopSwitch(self._events)
        self._chores = Chores()
        self._scheduler: TrialScheduler | None = None
        self.data_lines: deque[str] = deque()

    @classmethod
    def from_settings(
        cls,
        settings: Settings,
        *,
        notebook: str | Path | ResearchNotebook,
        output: str,
        jobs: int | str | None = None,
        storage: str | None = None,
        tracking_uri: str | None = None,
        kernel: str | None = None,
        trials: int | None = None,
        timeout_s: float | None = None,
        began_s: float | None = None,
        allow_changes: bool = False,
        observer: Observer | None = None,
        executor: Callable[[Workload], Executor] | None = None,
    ) -> Sweep:
        """Check everything that can be known before a kernel starts, and build the parts.

        Args:
            notebook: the path of the research notebook, or itself where it was read already.
            output: where executed notebooks go, such as `out/digits.{run_id}.ipynb`.
            jobs: trials at once, or `"auto"` for as many as cores and memory carry; default: 1, on
                a cluster as many as its workers offer.
            storage: Optuna storage; default: a SQLite file beside the outputs.
            tracking_uri: MLflow; default: `MLFLOW_TRACKING_URI` if set, else a SQLite store
                beside the outputs.
            kernel: the kernel's name; default: the one that the notebook names.
            trials: of the study in all; default: as the settings say.
            timeout_s: wall-clock limit of the whole sweep.
            began_s: when it began to count, on the monotonic clock; default: with this call.
            allow_changes: go on with a study whose earlier trials were made of something else.
            observer: called with each event, one call at a time, from a thread of its own; it may
                stop the sweep, and what it raises is logged.
            executor: makes the place where trials run from what they have in common; default: the
                cluster of the settings, else this machine, with `jobs` slots.

        Raises:
            SweepError: whatever is wrong; nothing was started, nothing was written.
        """
        began_s = time.monotonic() if began_s is None else began_s
        settings = settings if trials is None else settings.with_overrides(trials=trials)
        research = (
            notebook if isinstance(notebook, ResearchNotebook) else ResearchNotebook(notebook)
        )
        research.check_names(settings.sources)
        check_kinds(research, settings)
        make_executor = executor or executor_of(settings, research, kernel=kernel, jobs=jobs)
        kernel_name, folder = kernel or research.kernel_name, research.path.parent
        make_pruner(settings)  # refuses wrong options now
        paths = StudyPaths.parse(output, study=settings.name)
        storage_url = Address.of(storage or Address.of_file(paths.storage))
        uri = tracking_uri or os.environ.get("MLFLOW_TRACKING_URI")
        tracking = Address.of(uri or Address.of_file(paths.tracking))
        code = local_code(research.code, folder)
        data = None if settings.data is None else Dataset(settings.data, folder=folder)
        workload = Workload(
            notebook=research,
            settings=settings,
            kernel_name=kernel_name,
            cwd=folder,
            paths=paths,
            snapshot=snapshot_of(research, settings, code),
            data=data,
            tracking=tracking.full,
            replaces_seeds=settings.repeat is not None and not settings.repeat.by_fold,
        )
        if research.language == "python":
            check_shared_cells(research, workload.own_names)
        samplers = SamplerFactory(settings)
        remote = remote_copy(settings, paths, storage_url, tracking)
        plan = SweepPlan(
            workload=workload,
            # The last, because a cluster's workers may already be at work when it is there.
            executor=make_executor(workload),
            make_executor=make_executor,
            samplers=samplers,
            storage_url=storage_url,
            tracking=tracking,
            began_s=began_s,
            timeout_s=timeout_s,
            fingerprint=fingerprint_of(research, settings, kernel_name=kernel_name, code=code),
            allow_changes=allow_changes,
            remote=remote,
        )
        return cls(plan, observer=observer)

    # --- from other threads -----------------------------------------------------------------------

    @property
    def stopped_by(self) -> str | None:
        """Who has stopped the sweep and why; None as long as trials may start."""
        return self._stop_switch.closed_by

    @property
    def is_stopping_all(self) -> bool:
        """Whether the running trials are being stopped as well."""
        return self._stop_switch.is_stopping_all

    def stop(self, by: str, *, now: bool = False) -> None:
        """Start no more trials; with `now` also stop those that run.

        Args:
            by: who stops it and why, for the summary.
        """
        if now:
            self._stop_switch.stop_all(by)
        else:
            self._stop_switch.close(by)

    def preempt(self, by: str) -> None:
        """End within the grace time, `limits.grace`: the machine is taken away.

        The sweep that resumes the study delivers what the remote copy and MLflow lack by then.

        Args:
            by: who announces it, for the summary.
        """
        self._is_preempted = True
        self._stop_switch.end_within(self.plan.settings.limits.grace)
        if self.plan.remote is not None:
            self.plan.remote.hurry()
        self.stop(by, now=True)

    def snapshot(self) -> Snapshot | None:
        """How the study stands while `run` is at work; None before the study is open."""
        scheduler = self._scheduler
        return None if scheduler is None else scheduler.snapshot(self.doing())

    def doing(self) -> tuple[Chore, ...]:
        """What the sweep does beside its trials."""
        running = self._stop_switch.running_trials().values()
        of_trials = (trial.control.chore for trial in running)
        return (*self._chores.now(), *(chore for chore in of_trials if chore is not None))

    # --- the sweep itself -------------------------------------------------------------------------

    def run(self) -> SweepResult:
        """Run trials until the study has as many as it should, or the sweep is stopped.

        With `confirm` a second study, `NAME-confirm`, then runs the best trials again. In a Jupyter
        notebook the cell displays the live table meanwhile.

        Raises:
            SweepError: the outputs, the study or MLflow cannot be used; no kernel was started.
            BrokenError: the study's storage was lost, or its sampler failed, while trials ran.
        """
        try:
            result = self._run()
        except SweepError as error:
            self._notifier.send("failure", str(error))
            raise
        else:
            self._notifier.ended(self._kind_of_end(result), result)
            return result
        finally:
            self._notifier.close()

    def _run(self) -> SweepResult:
        limit = f"--timeout after {round(self.plan.timeout_s or 0, 1):g} s"
        with (
            self._events.delivering(),
            live_output(self.snapshot),
            stopped_after(self.plan.left_s, partial(self.stop, limit, now=True)),
        ):
            found = self._run_study()
            try:
                plan = confirming_plan(self.plan, found)
                if plan is None:
                    return found
                self.plan = plan
                return with_confirmation(found, self._run_study())
            except BrokenError:
                raise
            except SweepError as error:  # the search has its result all the same
                refused = f"the best trials were not confirmed: {error}"
                return replace(found, findings=[*found.findings, refused])

    def _kind_of_end(self, result: SweepResult) -> str:
        """Name the end of a sweep as `notify.on` has it."""
        if self._is_preempted:
            return "preemption"
        return "budget" if result.stop_cause is StopCause.BUDGET else "end"

    def _run_study(self) -> SweepResult:
        """Run the trials of the plan's study, which it opens and closes."""
        began_s = time.monotonic()
        with (
            closing(self.plan),
            opened(
                self.plan,
                on_request=self._carry_out,
                on_restore=lambda: self._events.announce(Event.BRINGING_BACK),
                on_data=self._announce_data,
                is_stopped=lambda: self.stopped_by is not None,
            ) as (self.plan, study, tracker),
        ):
            try:
                scheduler, result = self._run_trials(study, tracker, began_s=began_s)
            except (StudyError, BrokenError) as error:
                raise BrokenError(_why_ended(error, self.plan.storage_url)) from error
            if (broken := scheduler.broken) is not None:
                raise BrokenError(_why_ended(broken, self.plan.storage_url)) from broken
            return result

    def _announce_data(self, line: str) -> None:
        self.data_lines.append(line)
        self._events.announce(Event.DATA)

    def _run_trials(
        self, study: Study, tracker: Tracker, *, began_s: float
    ) -> tuple[TrialScheduler, SweepResult]:
        plan, stop_switch = self.plan, self._stop_switch
        spending = Spending(study, plan.settings.cost, since=began_s)
        tags = tags_of(plan.settings, plan.fingerprint, plan.notebook.path, plan.samplers.name)
        log = TrialLog(study, tracker, plan.settings, paths=plan.paths, tags=tags)
        scheduler = self._scheduler = TrialScheduler(
            plan, study, log=log, stop_switch=stop_switch, events=self._events
        )
        study.be_patient(stop_switch.patience_s)
        if plan.remote is not None:  # another machine goes on with the study
            plan.remote.when_lost(scheduler.lose)
        chores = self._chores
        house = Housekeeping(plan, study, scheduler=scheduler, spending=spending, chores=chores)
        with closing(house), closing(scheduler):
            self._events.announce(Event.SWEEP_STARTED)
            why = "cost.budget, which the study's sweeps have spent"
            stop = partial(stop_switch.stop_all, why, StopCause.BUDGET)
            limited = stopped_after(spending.left_s, stop)
            with limited, chores.watched(scheduler.ending):
                findings = plan.executor.run(scheduler)
            with chores.during(ChoreKind.TRACKING, tracker.progress):
                with chores.during(ChoreKind.IMPORTANCES):
                    importances = self._importances(study)  # while MLflow gets the last trials
                undelivered = log.finish(lambda: stop_switch.left_s, self._patience_with_mlflow_s)
        compare_url = tracker.compare_url()
        if scheduler.broken is None:
            study.note_facts(
                mlflow_run_ids=tracker.mlflow_run_ids,
                compare_url=compare_url,
                tracking_is_behind=undelivered > 0,
            )
            house.write_page(importances)
        lag_s = None
        if plan.remote is not None:
            copying = partial(self._events.announce, Event.COPYING)
            lag_s = plan.remote.end(left_s=stop_switch.left_s, on_wait=copying)
        records = study.records()
        # An earlier sweep may have confirmed the best trials of this search.
        located = LocatedStudy(study=study, paths=plan.paths, storage_url=plan.storage_url)
        confirmation = located.confirmation()
        changed: Sequence[str] = ()
        if (snapshot := plan.workload.snapshot) is not None:
            changed = changed_meanwhile(snapshot, plan.notebook)
        remarks = [*self._remarks(), *disagreements_in_words(scheduler.disagreements)]
        result = SweepResult(
            study=study.name,
            storage=str(plan.storage_url),
            tracking_uri=tracker.uri,
            experiment_id=tracker.experiment_id,
            objectives=list(plan.settings.objective),
            records=records,
            best=located.best(confirmation),
            mlflow_run_ids=tracker.mlflow_run_ids,
            page=plan.paths.page if plan.paths.page.exists() else None,
            compare_url=compare_url,
            stopped_by=scheduler.stopped_by,
            stop_cause=None if scheduler.stopped_by is None else stop_switch.cause,
            undelivered=undelivered,
            undelivered_because=tracker.problem if undelivered else None,
            cost=spending.cost,
            sync_lag_s=lag_s,
            kernels=list(scheduler.kernels),
            findings=[
                *findings,
                *changed,
                *remarks,
                *without_effect(records),
                *scheduler.overwritten.remarks,
            ],
            confirmation=confirmation,
            importances=importances,
            duration_s=time.monotonic() - began_s,
        )
        return scheduler, result

    def _patience_with_mlflow_s(self) -> float:
        """How many seconds an answer of MLflow is waited for at the sweep's end."""
        if not self._stop_switch.is_stopping_all:
            return PATIENCE_S
        return min(PATIENCE_S, self.plan.settings.limits.grace / 2)

    def _carry_out(self, request: str) -> None:
        """Stop what another process names: all trials, only further ones, or one by its number."""
        if request in (ALL, NO_MORE):
            self.stop("the command stop", now=request == ALL)
        elif request.isdigit():
            self._stop_switch.stop(int(request), "stopped by the command stop")

    def _remarks(self) -> list[str]:
        names = [*self.plan.settings.search_space, *self.plan.settings.fixed]
        used = ", ".join(self.plan.notebook.used_in_parameters_cell(names))
        no_seed = "" if "seed" in names else self.plan.notebook.why_no_seed()
        return [
            *([f"the parameters cell uses {used}, whose value is replaced in it"] if used else []),
            *([f"no trial got a seed of its own: {no_seed}"] if no_seed else []),
            *self.plan.doubts,
        ]

    def _importances(self, study: Study) -> Mapping[str, Mapping[str, Importance]]:
        """How much each param matters; nothing for chosen ones, or with the machine about to go."""
        if self._stop_switch.left_s is not None or self.plan.confirming is not None:
            return {}
        try:
            return study.importances()
        except Exception as error:  # noqa: BLE001  whatever a model of scores may raise
            _log.warning("how much each param matters is not known: %s", first_line(error))
            return {}


def _why_ended(error: Exception, storage_url: Address) -> str:
    """One line about the error that ended a sweep, with the remedy."""
    if isinstance(error, StorageAwayError):
        return (
            f"{error}; it stayed away, so the sweep has ended; when it is back, the same command "
            "goes on, and runs no trial again that has come to its end"
        )
    return str(error) if isinstance(error, SweepError) else f"{storage_url}: {root_cause(error)}"
