"""Run one sweep from its first trial to its result, and let other threads stop it."""

from __future__ import annotations

import logging
import math
import os
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from ..answer import answer_of_study, without_effect
from ..data.archive import Dataset
from ..display.in_jupyter import live_output
from ..errors import (
    BrokenError,
    StoppedError,
    StorageAwayError,
    StudyError,
    SweepError,
    first_line,
    root_cause,
)
from ..execution.disagreements import disagreements_in_words
from ..execution.executor import Executor
from ..execution.workload import Workload
from ..kernels import choose_kernel
from ..notebooks.fingerprint import fingerprint_of, tags_of
from ..notebooks.local_code import local_code
from ..notebooks.research import ResearchNotebook
from ..notebooks.seeds import own_seeds, replaceable
from ..notebooks.shared_cells import check_shared_cells
from ..page import shown_surfaces
from ..search.pruners import make_pruner
from ..search.samplers import SamplerFactory
from ..search.seeds import trial_seed
from ..settings import Settings
from ..settings.addresses import Address
from ..study.study import Study
from ..study_folder.notes import Notes
from ..study_folder.requests import ALL, NO_MORE
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
    count_by_state,
)
from .confirming import answered_again, confirming_plan, following_settings, with_confirmation
from .deadline import stopped_after
from .frozen_code import changed_meanwhile, snapshot_of
from .housekeeping import Housekeeping
from .notifying import Notifier
from .opening import opened
from .planning.kinds import check_kinds
from .planning.plan import Adopt, MakeExecutor, SweepPlan, executor_of, remote_copy
from .scheduling.scheduler import TrialScheduler
from .scheduling.stop_switch import StopSwitch
from .scheduling.trial_log import TrialLog
from .spending import Spending

_log = logging.getLogger(__name__)

#: The scores that are predicted over pairs of params, by objective.
_Surfaces = Mapping[str, Sequence[Mapping[str, Any]]]


class Sweep:
    """Runs the trials of one study. Made by `from_settings`, run once by `run`.

    All methods except `run` may be called from any thread and from signal handlers.

    Args:
        plan: Plan of the sweep.
        observer: Called with each event, one call at a time, from a thread of its own. It may stop
            the sweep. Its exceptions are logged.

    Attributes:
        plan: Plan of the sweep. While the best trials are confirmed (run again on fresh seeds), the
            plan of the study NAME-confirm, which runs them.
        data_lines: Lines of progress while the trials' data is verified or fetched. After each new
            line, the observer receives the event `DATA`.
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
        adopt: Adopt | None = None,
    ) -> Sweep:
        """Build a sweep after all checks that are possible before a kernel starts.

        Args:
            settings: Settings from the parameters file.
            notebook: Path of the research notebook, or the notebook if it was read already.
            output: Template of the executed notebooks' paths, such as `out/digits.{run_id}.ipynb`.
            jobs: Number of trials that run at once, or `"auto"` for as many as processors and
                memory allow. Default: 1; on a cluster, the number of slots of its workers.
            storage: URL of the Optuna storage. Default: a SQLite file next to the outputs.
            tracking_uri: MLflow tracking URI. Default: `MLFLOW_TRACKING_URI` if it is set, else a
                SQLite store next to the outputs.
            kernel: Name of the Jupyter kernel, folder of a Python environment, or path of an
                interpreter. Default: as `choose_kernel` describes it.
            trials: Number of trials of the study in all. Default: the number in the settings.
            timeout_s: Wall-clock limit of the whole sweep, in seconds. None for no limit.
            began_s: Time from which `timeout_s` counts, on the monotonic clock. Default: the time
                of this call.
            allow_changes: Whether to resume a study whose earlier trials ran with other code or
                settings.
            observer: Called with each event, one call at a time, from a thread of its own. It may
                stop the sweep. Its exceptions are logged.
            executor: Makes the executor from the workload of the trials. Default: the cluster of
                the settings, or this machine with `jobs` slots.
            adopt: Returns the outcome of a trial that was run before the sweep, so that it is not
                run again. Returns None for any other trial.

        Raises:
            SweepError: A check has failed. No kernel was started, and no file was written.
        """
        began_s = time.monotonic() if began_s is None else began_s
        settings = settings if trials is None else settings.with_overrides(trials=trials)
        research = (
            notebook if isinstance(notebook, ResearchNotebook) else ResearchNotebook(notebook)
        )
        research.check_names(settings.sources)
        check_kinds(research, settings)
        folder = research.path.parent
        chosen = choose_kernel(
            kernel,
            named=research.kernel_name,
            is_python=research.language == "python",
            folder=folder,
            notebook=research.display_name,
        )
        end_s = math.inf if timeout_s is None else began_s + timeout_s
        make_executor: MakeExecutor = (
            executor_of(settings, jobs, end_s=end_s)
            if executor is None
            else lambda workload, _: executor(workload)
        )
        make_pruner(settings)  # Refuse wrong options of the pruner before the sweep begins.
        paths = StudyPaths.parse(output, study=settings.name)
        if settings.confirm is not None:
            following_settings(settings, paths.following("confirm").study, spent=0.0, trials=1)
        storage_url = Address.of(storage or Address.of_file(paths.storage))
        uri = tracking_uri or os.environ.get("MLFLOW_TRACKING_URI")
        tracking = Address.of_tracking(uri or Address.of_file(paths.tracking))
        code = local_code(research.code, folder)
        data = None if settings.data is None else Dataset(settings.data, folder=folder)
        replaces_seeds = settings.repeat is not None and not settings.repeat.by_fold
        workload = Workload(
            notebook=research,
            settings=settings,
            kernel_name=chosen.name,
            cwd=folder,
            paths=paths,
            snapshot=snapshot_of(research, settings, code),
            data=data,
            tracking=tracking.full,
            random_seed=None if replaces_seeds else trial_seed(settings.study.seed, 0),
            replaces_seeds=replaces_seeds,
        )
        if research.language == "python":
            check_shared_cells(research, workload.own_names)
        samplers = SamplerFactory(settings)
        remote = remote_copy(settings, paths, storage_url, tracking)
        plan = SweepPlan(
            workload=workload,
            kernel=chosen,
            # Make the executor after all checks, because it may start the workers of a cluster.
            executor=make_executor(workload, lambda: False),
            make_executor=make_executor,
            samplers=samplers,
            storage_url=storage_url,
            tracking=tracking,
            tracks_by_default=not uri,
            began_s=began_s,
            timeout_s=timeout_s,
            fingerprint=fingerprint_of(research, settings, kernel_name=chosen.name, code=code),
            allow_changes=allow_changes,
            remote=remote,
            adopt=adopt,
        )
        return cls(plan, observer=observer)

    # --- calls from other threads ---------------------------------------------------------------

    @property
    def stopped_by(self) -> str | None:
        """Who stopped the sweep and why, in words. None as long as more trials may start."""
        return self._stop_switch.closed_by

    @property
    def is_stopping_all(self) -> bool:
        """Whether the running trials are being stopped, too."""
        return self._stop_switch.is_stopping_all

    @property
    def has_running(self) -> bool:
        """Whether trials run or are frozen."""
        return bool(self._stop_switch.running_trials())

    def stop(self, by: str, *, now: bool = False) -> None:
        """Start no more trials. With `now`, stop the running trials, too.

        Args:
            by: Who stops the sweep and why, in words for the summary.
            now: Whether to stop the running trials.
        """
        if now:
            self._stop_switch.stop_all(by)
        else:
            self._stop_switch.close(by)

    def preempt(self, by: str) -> None:
        """Stop all trials and end within `limits.grace`, because the machine will be taken away.

        The study's remote copy and MLflow may then lack data. The sweep that resumes the study adds
        the missing data.

        Args:
            by: Who announces the preemption, in words for the summary.
        """
        self._is_preempted = True
        self._stop_switch.end_within(self.plan.settings.limits.grace)
        if self.plan.remote is not None:
            self.plan.remote.hurry()
        self.stop(by, now=True)

    def snapshot(self) -> Snapshot | None:
        """Return the state of the study while `run` runs. Return None before the study is open."""
        scheduler = self._scheduler
        return None if scheduler is None else scheduler.snapshot(self.doing())

    def doing(self) -> tuple[Chore, ...]:
        """Return the work that the sweep does now in addition to running trials.

        Users see it, so that they know why they wait. An example is the check that forked kernels
        change no result.
        """
        chores = list(self._chores.now())
        for trial in self._stop_switch.running_trials().values():
            chore = trial.control.chore  # Read it once, because the trial's thread may replace it.
            if chore is not None:
                chores.append(chore)
        return tuple(chores)

    # --- the sweep itself -------------------------------------------------------------------------

    def run(self) -> SweepResult:
        """Run trials until the study has all its trials, or until the sweep is stopped.

        If `confirm` is set, a second study, `NAME-confirm`, then runs the best trials on fresh
        seeds. In a Jupyter notebook, the cell's output shows the live table meanwhile.

        Raises:
            SweepError: The outputs, the study or MLflow cannot be used. No kernel was started.
            BrokenError: The study's storage was lost, or its sampler failed, while trials ran.
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
            search, found = self.plan, self._run_study()
            try:
                plan = confirming_plan(self.plan, found, is_stopped=self._is_stopped)
                if plan is None:
                    return found
                self.plan = plan
                self._stop_switch.drop_requests()
                found = with_confirmation(found, self._run_study())
            except BrokenError:
                answered_again(search, found)
                raise
            except StoppedError:
                cause = self._stop_switch.cause
                found = replace(found, stopped_by=self.stopped_by, stop_cause=cause)
            except SweepError as error:  # Only the confirmation failed: return the search's result.
                found = replace(found, not_confirmed=str(error))
            if self._stop_switch.left_s is not None:
                # The machine is about to be taken away. To write the answer takes seconds, so the
                # sweep that resumes the study does it.
                return found
            return answered_again(search, found)

    def _is_stopped(self) -> bool:
        return self.stopped_by is not None

    def _kind_of_end(self, result: SweepResult) -> str:
        """Return how the sweep has ended: `preemption`, `budget` or `end`, as in `notify.on`."""
        if self._is_preempted:
            return "preemption"
        return "budget" if result.stop_cause is StopCause.BUDGET else "end"

    def _run_study(self) -> SweepResult:
        """Open the study of the plan, run its trials, and close it."""
        began_s = time.monotonic()
        with (
            closing(self.plan),
            opened(
                self.plan,
                on_request=self._carry_out,
                on_restore=lambda: self._events.announce(Event.BRINGING_BACK),
                on_data=self._announce_data,
                is_stopped=self._is_stopped,
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
        plan, stop_switch, chores = self.plan, self._stop_switch, self._chores
        spending = Spending(study, plan.settings.cost, since=began_s)
        tags = tags_of(plan.settings, plan.fingerprint, plan.notebook.path, plan.samplers.name)
        log = TrialLog(study, tracker, plan.settings, paths=plan.paths, tags=tags)
        scheduler = self._scheduler = TrialScheduler(
            plan,
            study,
            log=log,
            stop_switch=stop_switch,
            events=self._events,
            time_left_s=partial(_time_left_s, plan, spending),
        )
        study.be_patient(stop_switch.patience_s)
        if plan.remote is not None:
            # If another machine resumes the study from its remote copy, end this sweep.
            plan.remote.when_lost(scheduler.lose)
        # If no trial has completed since the importances were stored, read the predicted scores
        # from the page. To compute them imports torch, and a call that runs no trial need not wait
        # for that.
        is_known = study.known_importances() is not None
        shown = shown_surfaces(plan.paths.page_files, plan.settings) if is_known else None
        located = plan.located(study)
        house = Housekeeping(plan, study, scheduler=scheduler, spending=spending, chores=chores)
        with closing(house), closing(scheduler):
            self._events.announce(Event.SWEEP_STARTED)
            why = "cost.budget, which this study has spent"
            stop = partial(stop_switch.stop_all, why, StopCause.BUDGET)
            limited = stopped_after(spending.left_s, stop)
            with limited, chores.watched(scheduler.ending):
                findings = plan.executor.run(scheduler)
            # If another sweep has taken over the study, end here, so that MLflow gets no old state
            # of its runs.
            study.check_held()
            with chores.during(ChoreKind.TRACKING, tracker.progress):
                with chores.during(ChoreKind.IMPORTANCES):
                    # Compute these while another process still writes the last trials to MLflow.
                    shown = None if scheduler.ended else shown
                    importances, surfaces = self._modelled(study, shown)
                # An earlier sweep may have confirmed the best trials of this search.
                confirmation = located.confirmation()
                has_all = scheduler.stopped_by is None
                is_confirming = has_all and plan.settings.confirm is not None
                is_confirming = is_confirming and bool(located.best(confirmation))
                answer = partial(
                    answer_of_study,
                    located,
                    plan.settings,
                    confirmation=confirmation,
                    importances=importances,
                    is_confirming=is_confirming,
                )
                insights = answer()
                if insights is not None:
                    tracker.describe(insights.sentences)
                undelivered = log.finish(lambda: stop_switch.left_s, self._patience_with_mlflow_s)
        insights = answer()  # The answer states the study's cost, which has grown meanwhile.
        compare_url = tracker.compare_url()
        if scheduler.broken is None:
            study.note_facts(
                mlflow_run_ids=tracker.mlflow_run_ids,
                compare_url=compare_url,
                tracking_is_behind=undelivered > 0,
            )
            if importances is not None:
                study.note_importances(importances, study.noise())
            house.write_page(
                is_running=False,
                is_confirming=is_confirming,
                insights=insights,
                importances=importances,
                surfaces=surfaces,
                confirmation=confirmation,
            )
        lag_s = None
        if plan.remote is not None:
            copying = partial(self._events.announce, Event.COPYING)
            lag_s = plan.remote.end(left_s=stop_switch.left_s, on_wait=copying)
        result = SweepResult(
            study=study.name,
            study_id=study.study_id,
            storage=str(plan.storage_url),
            tracking_uri=tracker.uri,
            experiment_id=tracker.experiment_id,
            objectives=list(plan.settings.objective),
            records=study.records(),
            counts_here=count_by_state(scheduler.ended.values()),
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
            findings=[*findings, *self._remarks(study, scheduler)],
            confirmation=confirmation,
            importances=importances or {},
            insights=insights,
            notes=Notes(plan.paths.notes).read(),
            duration_s=time.monotonic() - began_s,
        )
        return scheduler, result

    def _patience_with_mlflow_s(self) -> float:
        """Return how many seconds to wait for an answer of MLflow at the end of the sweep."""
        if not self._stop_switch.is_stopping_all:
            return PATIENCE_S
        return min(PATIENCE_S, self.plan.settings.limits.grace / 2)

    def _carry_out(self, request: str) -> None:
        """Carry out a request of another process.

        Args:
            request: `ALL` to start no more trials and stop the running ones, `NO_MORE` to start no
                more trials and let the running ones finish, or the run id of a trial to stop.
        """
        if request in (ALL, NO_MORE):
            self.stop("the command stop", now=request == ALL)
        elif request.isdigit():
            self._stop_switch.stop(int(request), "stopped by the command stop")

    def _remarks(self, study: Study, scheduler: TrialScheduler) -> list[str]:
        """Return what users should check in the notebook or the settings, as sentences."""
        plan = self.plan
        found: list[str] = []
        if plan.workload.snapshot is not None:
            found += changed_meanwhile(plan.workload.snapshot, plan.notebook)
        names = [*plan.settings.search_space, *plan.settings.fixed]
        used = ", ".join(plan.notebook.used_in_parameters_cell(names))
        if used:
            found.append(f"the parameters cell uses {used}, so the value is replaced in that cell")
        # No remark is needed if the notebook sets seeds in libraries: runs on several seeds replace
        # these.
        replaces = replaceable(own_seeds(plan.notebook.assignments.cells), plan.notebook.node)
        no_seed = None if "seed" in names or replaces else plan.notebook.why_no_seed()
        if no_seed:
            found.append(f"no trial got its own seed: {no_seed}")
        return [
            *found,
            *plan.doubts,
            *disagreements_in_words(scheduler.disagreements),
            *without_effect(study.records()),
            *scheduler.overwritten.remarks,
        ]

    def _modelled(
        self, study: Study, shown: _Surfaces | None
    ) -> tuple[Mapping[str, Mapping[str, Importance]] | None, _Surfaces]:
        """Return the importances of params and the predicted scores, by models of the scores.

        If importances cannot be computed, they are None. If predicted scores cannot be computed,
        they are empty. Nothing more is computed once the machine is about to be taken away. Nothing
        is computed for a study that runs given params, such as NAME-confirm.

        Args:
            study: The study, open.
            shown: Predicted scores that the page shows, if they are up to date. Else None.

        Returns:
            The importance of each param, by objective, then by param, and the scores that are
            predicted over pairs of params.
        """
        if self.plan.confirming is not None:
            return None, {}
        space, importances = self.plan.settings.search_space, None
        try:
            self._check_time()
            importances = study.importances(space, self._check_time)
            if shown is None:
                shown = study.surfaces(space, importances, self._check_time)
        except _NoTimeLeftError:
            pass
        except Exception as error:  # noqa: BLE001  the models of the scores may raise anything
            _log.warning(
                "importances of params or predicted scores are missing: %s", first_line(error)
            )
        return importances, shown or {}

    def _check_time(self) -> None:
        """Raise `_NoTimeLeftError` if the machine is about to be taken away."""
        if self._stop_switch.left_s is not None:
            raise _NoTimeLeftError


class _NoTimeLeftError(Exception):
    """Raised if the machine is about to be taken away, to skip what can be computed later."""


def _time_left_s(plan: SweepPlan, spending: Spending) -> float:
    """Return the seconds until the time limit or the end of the budget, whichever comes first.

    Return infinity if the sweep has neither.
    """
    limits = (plan.left_s, spending.left_s)
    return min((left_s for left_s in limits if left_s is not None), default=math.inf)


def _why_ended(error: Exception, storage_url: Address) -> str:
    """Return one line about the error that ended a sweep, and what to do about it."""
    if isinstance(error, StorageAwayError):
        return (
            f"{error}; it stayed unavailable, so the sweep has ended; when it is available again, "
            "the same command resumes the sweep, and runs no ended trial again"
        )
    return str(error) if isinstance(error, SweepError) else f"{storage_url}: {root_cause(error)}"
