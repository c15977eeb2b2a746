"""Choose the next trial for a free slot, and record the outcome of each trial.

A sweep has as many slots as trials may run at once (`-j`).
"""

from __future__ import annotations

import logging
import math
import statistics
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from ...errors import NotebookError, StorageAwayError, StudyError, first_line
from ...machine.capacity import memory_of
from ...notebook_api.messages import Point, StopReason
from ...notebooks.executed import mark_ended
from ...notebooks.metadata import BLANK, read_metadata
from ...notebooks.research import ResearchNotebook
from ...search.pruners import PredictivePruner, make_pruner
from ...settings.messages import as_yaml
from ...settings.space import SearchSpace
from ...study.access import LostFileError
from ...study.endings import sent_outcome
from ...study.study import Study
from ...trials import (
    Blocked,
    Chore,
    ChoreKind,
    Control,
    Disagreement,
    Event,
    Events,
    KernelUse,
    Params,
    Progress,
    Reason,
    RunningTrial,
    Snapshot,
    StopCause,
    TrialOutcome,
    TrialRecord,
    TrialSpec,
    TrialState,
    attempt_path,
    count_by_state,
    left_to_begin,
    run_id_of,
    seconds_left,
)
from ..planning.plan import SweepPlan
from .checkpoint_cleaner import CheckpointCleaner
from .decisions import Decision, Freeze, Prune, TakeOff, Thaw
from .freezing import Freezer
from .overwritten_names import OverwrittenNamesRule
from .shortages import Shortages, run_again
from .stop_rules import PruneRule, StopRule, StopRules
from .stop_switch import StopSwitch
from .trial_log import TrialLog
from .worthless import Tied, Worthless, WorthlessRule

_log = logging.getLogger(__name__)

#: A trial counts as failed if its worker or kernel was lost this many times in one sweep (chosen,
#: not measured).
_MOST_LOSSES = 3
#: If no trial of the study has completed or was pruned yet, the sweep ends after this number of
#: failures in a row (chosen, not measured), unless `study.stop_after_failures` is set.
_FIRST_FAILURES = 10
#: If these failures have the same error, the sweep ends already after this number of them (chosen,
#: not measured). If more trials can run at the same time than this number, it ends after as many
#: failures as trials can run at the same time, because these fail together.
_FAILURES_ALIKE = 3
#: A trial that was stopped for one of these reasons has met a fault of the machine that every trial
#: would meet.
_OF_THE_MACHINE = (Reason.FILE, Reason.NO_GPU, Reason.KERNEL_START, Reason.INTERNAL)
#: A slot that waits for the end of a trial checks at this interval, in seconds, whether more trials
#: may start.
_LOOK_S = 0.5


class TrialScheduler:
    """Hands out trials and records their outcomes: the `TrialSource` of an executor.

    Safe to call from any thread.

    Args:
        plan: Plan of the sweep.
        study: The study, open.
        log: Logs the trials to MLflow.
        stop_switch: Knows the running trials and whether more trials may start.
        events: Announces the events of the sweep to observers.
        time_left_s: Returns the seconds until the sweep's time limit, or until its budget is spent.

    Attributes:
        broken: Error that ended the sweep, if its storage was lost, its sampler failed or a trial
            could not begin. Else None.
        disagreements: Scores for which two sources in the notebook give different values, by run
            id.
        ended: Records of the trials that have ended in this sweep, by number.
        kernels: How the kernels of the ended trials were made: started or forked.
        overwritten: Rule that watches for swept names that the notebook overwrites.
        stopped_by: Why the sweep ended before the study had all its trials. None if it has them
            all.
    """

    def __init__(
        self,
        plan: SweepPlan,
        study: Study,
        *,
        log: TrialLog,
        stop_switch: StopSwitch,
        events: Events,
        time_left_s: Callable[[], float] = lambda: math.inf,
    ) -> None:
        settings = self._settings = plan.settings
        self._inputs, self._samplers, self._paths = plan.inputs, plan.samplers, plan.paths
        self._executor, self._plan = plan.executor, plan
        self._study = study
        self._log = log
        self._stop_switch = stop_switch
        self._events = events
        self._time_left_s = time_left_s
        self.overwritten = OverwrittenNamesRule(
            lambda: plan.notebook.code, is_allowed=plan.allow_changes
        )
        #: Reasons and messages of the failed trials since the last trial that did not fail.
        self._failures: list[tuple[Reason | None, str]] = []
        self._losses: Counter[int] = Counter()
        self._asking, self._lock = threading.Lock(), threading.Lock()
        self._cleaner = CheckpointCleaner(plan.located(study), settings)
        self._records = {record.number: record for record in study.records()}
        self._shortages = Shortages(self._records.values())
        #: The best trials, with the number of trials that had ended when they were found.
        self._best: tuple[int, Sequence[TrialRecord]] = (0, ())
        pruner = make_pruner(settings)
        rules: list[StopRule] = []
        self._freezer = None
        if plan.executor.can_freeze and isinstance(pruner, PredictivePruner):
            self._freezer = Freezer(
                study, pruner, running=stop_switch.running_trials, to_begin=self._to_begin_in_time
            )
            rules.append(self._freezer)
        elif settings.study.pruner.name != "none":
            rules.append(PruneRule(study, pruner))
        # This lock is held from a decision until it is carried out, so that no other decision comes
        # in between.
        self._deciding = threading.RLock()
        self._rules = StopRules(
            study,
            rules,
            objective=next(iter(settings.objective)),
            act=self._act,
            lock=self._deciding,
        )
        may_be_worthless = plan.confirming is None and not plan.allow_changes
        space = plan.settings.search_space
        varied = [name for name, dimension in space.items() if dimension.count() != 1]
        self._worthless_rule = WorthlessRule(log.code, varied) if may_be_worthless else None
        self._given: dict[int, tuple[TrialSpec, RunningTrial]] = {}
        self._has_begun_all = False
        self._last_end_s = time.monotonic()
        self._ahead = ThreadPoolExecutor(1, thread_name_prefix="proposals")
        self._has_trial_ended = threading.Event()
        self.broken: Exception | None = None
        self.ended: dict[int, TrialRecord] = {}
        self.kernels: list[KernelUse] = []
        self.disagreements: dict[str, Sequence[Disagreement]] = {}
        self.stopped_by: str | None = None

    def next_trial(self) -> tuple[TrialSpec, RunningTrial] | None:
        """Return the next trial for a free slot: a new one, or a frozen (paused) one to continue.

        Return None if there are no more trials. The call may wait until a running trial ends: if
        the order of trials is fixed, or if that end decides which frozen trial can still win.
        """
        with self._asking:
            try:
                return self._choose()
            except Exception as error:  # noqa: BLE001  running trials must end before the sweep
                self.lose(error)
                # If this is the only slot, no other thread would stop the frozen trials.
                self._stop_frozen()
                return None

    def _ends_at_once(self, spec: TrialSpec) -> bool:
        """End a trial that has just begun, if it cannot run or was run before the sweep.

        The caller holds the lock that a slot needs to get a trial. So other slots begin their
        trials after this call, and these trials know the duration of the run before the sweep.

        Returns:
            Whether the trial has ended.
        """
        outcome = without_param(spec, self._plan.notebook, self._settings.search_space)
        if outcome is None and self._plan.adopt is not None:
            outcome = self._plan.adopt(spec, self._plan.workload)
        if outcome is not None:
            self.finish_trial(spec, outcome)
        return outcome is not None

    def _choose(self) -> tuple[TrialSpec, RunningTrial] | None:
        """Choose a trial for a free slot: a new one, or a thawed one. None if there is none."""
        while self._stop_switch.closed_by is None:
            thawed = self._thawed()
            if thawed is not None:
                return thawed
            self._study.prepare(self._samplers)
            if self.is_closed():  # A proposal takes seconds, in which the sweep may be stopped.
                break
            record = self._study.ask(self._samplers, self._notebook_of, self._wait_to_propose)
            if record is None and self.is_closed():
                break
            self._has_begun_all = record is None
            if record is not None:
                begun = self._begin(record)
                if self._ends_at_once(begun[0]):
                    continue
                # With several slots, the next proposal is made while trials run. With one slot, it
                # is made only when the last trial has ended, so that the params of a trial depend
                # on the study alone, and not on timing.
                if self._executor.jobs > 1:
                    # An error in the thread of `_ahead` is dropped, because the next call of `ask`
                    # raises it again.
                    self._ahead.submit(self._study.prepare, self._samplers)
                return begun
            thawed = self._thawed()
            if thawed is not None:
                return thawed
            if self._freezer is None or not self._freezer.frozen:
                self.stopped_by = self._stop_switch.closed_by
                return None
            self._wait_for_end()  # The end of a trial decides which frozen trial can still win.
        self.stopped_by = self._stop_switch.closed_by
        self._stop_frozen()
        return None

    def _begin(self, record: TrialRecord) -> tuple[TrialSpec, RunningTrial]:
        """Let a new trial begin.

        Return its spec, and its `RunningTrial`, through which the sweep can stop it.
        """
        self._records[record.number] = record
        control = Control() if self._freezer is None else Control(self._make_room)
        running = RunningTrial(
            control=control, trials_left=self._trials_left(), usual_s=self._usual_s()
        )
        running.points.subscribe(partial(self._on_point, record))
        self._stop_switch.enter(record.number, running)
        spec = self._spec(record)
        self._given[record.number] = spec, running
        self._log.started(record)
        self._events.announce(Event.TRIAL_STARTED, record)
        return spec, running

    def _thawed(self) -> tuple[TrialSpec, RunningTrial] | None:
        """Let a frozen trial continue in a free slot. Return None if none should continue now.

        If no frozen trial can still win, and no other trial runs or is left, prune the frozen ones.
        """
        if self._freezer is None:
            return None
        given = dict(self._given)  # Copy first, because a trial that continues may end at once.
        with self._deciding:
            for decision in self._freezer.fill_slot(has_begun_all=self._has_begun_all):
                if self._act(decision) and isinstance(decision, Thaw):
                    return given[decision.number]
        return None

    def _make_room(self, blocked: Blocked) -> None:
        """Move a frozen trial off its GPU or prune it: another trial waits for memory or a GPU.

        `Freezer.make_room` chooses the trial. Do nothing if it chooses none.

        Args:
            blocked: What is missing, and which frozen trials use it.
        """
        with self._deciding:
            decision = None if self._freezer is None else self._freezer.make_room(blocked)
            if decision is not None:
                self._act(decision)

    def _act(self, decision: Decision) -> bool:
        """Carry out a decision.

        Return False if nothing was done: the trial has ended, it cannot be frozen, thawed or moved
        off its GPU now, or no new trial would use the slot that freezing it frees.
        """
        trial = self._stop_switch.running_trials().get(decision.number)
        if trial is None:
            return False
        match decision:
            case Prune(message=message):
                trial.control.stop(StopReason.PRUNED, message)
                return True
            case Freeze() if self.is_closed():
                return False  # No new trial would use its slot, so let the trial complete.
            case Freeze():
                has_changed, state = trial.control.freeze(), TrialState.FROZEN
            case Thaw():
                has_changed, state = trial.control.thaw(), TrialState.RUNNING
            case TakeOff():
                return trial.control.leave_gpu()
        if has_changed:
            self._note_state(decision.number, state)
        return has_changed

    def _stop_frozen(self) -> None:
        """Stop all frozen trials. The next sweep of the study runs them first."""
        for trial in {} if self._freezer is None else self._freezer.frozen.values():
            trial.control.stop(StopReason.INTERRUPTED)

    def _note_state(self, number: int, state: TrialState) -> None:
        with self._lock:  # If the trial ends now, its final record must not be overwritten.
            self._records[number] = self._study.note_state(number, state)
        self._has_trial_ended.set()

    def _wait_for_end(self) -> bool:
        """Wait until a trial ends, is frozen or continues, or 0.5 s pass.

        Return whether more trials may start.
        """
        self._has_trial_ended.wait(_LOOK_S)
        self._has_trial_ended.clear()
        return not self.is_closed()

    def _wait_to_propose(self) -> bool:
        """Wait as `_wait_for_end` does, then propose the next trial's params if this is possible.

        With `order: fixed`, these params may depend on a trial that still runs. Return whether more
        trials may start.
        """
        self._wait_for_end()
        self._study.prepare(self._samplers)
        return not self.is_closed()

    def _on_point(self, record: TrialRecord, point: Point) -> None:
        self._log.reported(record.run_id, point)
        if record.repeat_of is None:
            # A repeated run of a proposal is never pruned: the mean of the runs needs its score.
            self._rules.consider(record.number, point)

    def close(self) -> None:
        """End the scheduler's threads. Called when no trial runs any more."""
        self._ahead.shutdown(cancel_futures=True)
        self._rules.close()

    def is_closed(self) -> bool:
        """Return whether no more trials start, because the sweep is being stopped."""
        return self._stop_switch.closed_by is not None

    def stop(self, reason: str) -> None:
        """Stop the running trials and start no more, because the executor cannot continue."""
        self._stop_switch.stop_all(reason)
        self.stopped_by = self._stop_switch.closed_by

    def patience_s(self) -> float:
        """Return how many seconds to wait for a storage or a disk that is unavailable."""
        return self._stop_switch.patience_s()

    def left_s(self) -> float | None:
        """Return how many seconds a preempted sweep has left. None if it is not preempted."""
        return self._stop_switch.left_s

    def check_held(self) -> None:
        """Raise `StudyError` if another sweep has taken over the study. Then write nothing more."""
        self._study.check_held()

    def finish_trial(self, spec: TrialSpec, outcome: TrialOutcome) -> None:
        """Record the end of a trial in the study and in MLflow, and announce it to the observer.

        Args:
            spec: Spec of the trial.
            outcome: Outcome of its last attempt.
        """
        self._stop_switch.leave(spec.number)
        self._given.pop(spec.number, None)
        self._rules.forget(spec.number)
        if _is_lost(outcome):
            outcome = sent_outcome(spec, self._study.facts) or outcome
        with self._lock:
            if _is_lost(outcome):
                outcome = self._count_loss(spec, outcome)
            again = run_again(spec, outcome)
            if again is not None:
                self._shortages.note(spec.number, again)
                message = f"{outcome.message}; it is run again {again.value}"
                outcome = replace(outcome, state=TrialState.STOPPED, message=message)
            try:
                record = self._study.tell(spec.number, outcome)
            except Exception as error:  # noqa: BLE001  running trials must end before the sweep
                # The executed notebook has the trial's end. The next sweep reads it from there.
                self.lose(error)
                record = self._study.ended(spec.number, outcome)
            self._stop_for_failures(record)
            why = self.overwritten.consider(spec, outcome)
            if why is not None:
                self._stop_switch.close(why, StopCause.WORTHLESS)
        self._stop_if_worthless(record)
        self._records[record.number] = self.ended[record.number] = record
        if again is not None or _is_lost(outcome):
            self._study.queue_again(record)
        self._has_trial_ended.set()
        self._last_end_s = time.monotonic()
        if self.broken is None:
            self._cleaner.clean(self._records)
        if outcome.kernel is not None:
            self.kernels.append(outcome.kernel)
        if outcome.disagreements:
            self.disagreements[record.run_id] = outcome.disagreements
        # If another sweep has taken over the study, only that sweep writes to MLflow.
        with suppress(StudyError):
            self.check_held()
            self._log.ended(record, outcome)
        self._events.announce(Event.TRIAL_ENDED, record)

    def _count_loss(self, spec: TrialSpec, outcome: TrialOutcome) -> TrialOutcome:
        """Count that a trial was lost (see `_is_lost`), and write its outcome into its notebook.

        Return the outcome. It is a failure if the trial was lost too often.
        """
        # Losses are counted, not attempts, because attempts also count preemptions in earlier
        # sweeps.
        self._losses[spec.number] += 1
        if self._losses[spec.number] >= _MOST_LOSSES:
            outcome = replace(outcome, state=TrialState.FAILED)
        _mark_lost(spec, outcome)
        return outcome

    def snapshot(self, doing: Sequence[Chore] = ()) -> Snapshot:
        """Return the state of the study now.

        Args:
            doing: Chores of the sweep: work other than trials, such as writing the page.
        """
        records = self._records.copy()
        running = [
            progress_of(records[number], trial)
            for number, trial in sorted(self._stop_switch.running_trials().items())
            if number in records
        ]
        ended = [record for record in records.values() if record.is_final]
        to_start = 0 if self.is_closed() else self._to_begin()
        return Snapshot(
            study=self._study.name,
            trials=self._settings.study.trials,
            counts=count_by_state(records.values()),
            objectives=list(self._settings.objective),
            running=running,
            best=self._best_after(len(ended)),
            left_s=seconds_left(ended, running, to_start=to_start),
            doing=doing,
        )

    def ending(self) -> Chore | None:
        """Return the chore of ending the kernels, for which users wait after the last trial.

        None while trials run or more may begin.
        """
        is_last = self._has_begun_all or self.is_closed()
        if not is_last or self._stop_switch.running_trials():
            return None
        return Chore(kind=ChoreKind.ENDING, since_s=self._last_end_s)

    def _best_after(self, n_ended: int) -> Sequence[TrialRecord]:
        """Return the best trials. Search them again only if another trial has ended.

        Args:
            n_ended: Number of trials that had ended before this call.
        """
        n_known, best = self._best
        if n_known != n_ended:
            best = self._study.best()
            self._best = n_ended, best
        return best

    def lose(self, error: Exception) -> None:
        """End the sweep, because the study's storage is lost or its sampler failed.

        Running trials are stopped, with one exception: if the storage is only unavailable or its
        file is lost, they run until they complete, and their executed notebooks keep their
        outcomes.
        """
        self.broken = self.broken or error
        if isinstance(error, StorageAwayError):
            self._stop_switch.close("the study's storage is unavailable")
        elif isinstance(error, LostFileError):
            self._stop_switch.close(str(error))
        else:
            self._stop_switch.stop_all(str(error))

    def _stop_for_failures(self, record: TrialRecord) -> None:
        """Start no more trials if the end of a trial suggests that further trials would fail, too.

        That is so if the machine is the cause, such as a full disk, if too many trials have failed
        in a row, or if the first trials have failed with the same error.

        Args:
            record: Record of the trial that has just ended.
        """
        if record.state is TrialState.STOPPED and record.reason in _OF_THE_MACHINE:
            is_file = record.reason is Reason.FILE
            prefix = "a file that cannot be written: " if is_file else ""
            self._stop_switch.close(f"{prefix}{record.message}", StopCause.FAULT)
        # Two kinds of trials neither extend nor end a row of failures: those that are run again,
        # and those that could not run because the notebook no longer assigns one of their params.
        if not record.is_final or record.reason is Reason.PARAM_LOST:
            return
        if record.state is not TrialState.FAILED:
            self._failures.clear()
            return
        self._failures.append((record.reason, record.message))
        limit = self._settings.study.stop_after_failures
        if limit is None and not self._has_trained():
            limit = _FIRST_FAILURES
            n_alike = max(_FAILURES_ALIKE, self._executor.jobs)
            if self._failures[-n_alike:] == [self._failures[-1]] * n_alike:
                reason = record.first_line
                why = f"the first {n_alike} trials, which failed with the same error ({reason})"
                self._stop_switch.close(why)
        if limit is not None and len(self._failures) >= limit:
            self._stop_switch.close(f"{limit} failed trials in a row (study.stop_after_failures)")

    def _stop_if_worthless(self, ended: TrialRecord) -> None:
        """Start no more trials if three trials with different params have equal results.

        `WorthlessRule` compares the last three completed trials, and decides once. If equal scores
        may be a coincidence (`Tied`), log a warning instead.

        Args:
            ended: Record of the trial that has just ended. Nothing is done unless it has completed.
        """
        if self._worthless_rule is None or ended.state is not TrialState.COMPLETED:
            return
        try:
            found = self._worthless_rule.judge([*self._known_records(), ended])
        except Exception as error:  # noqa: BLE001  an error of this check must not end the sweep
            _log.warning("not checked whether params have any effect: %s", first_line(error))
            return
        if isinstance(found, Worthless):
            self._stop_switch.close(str(found), StopCause.WORTHLESS)
        elif isinstance(found, Tied):
            _log.warning("%s", found)

    def _has_trained(self) -> bool:
        trained = (TrialState.COMPLETED, TrialState.PRUNED)
        return any(record.state in trained for record in self._known_records())

    def _known_records(self) -> Sequence[TrialRecord]:
        """Return a copy of the records, because threads of other slots add records meanwhile."""
        return list(self._records.copy().values())

    def _trials_left(self) -> int:
        """Return how many trials are left to begin after each free slot has got a trial.

        The number is too high if the study will have fewer trials than planned.
        """
        running = self._stop_switch.running_trials().values()
        at_work = sum(not trial.control.is_frozen for trial in running)
        free = self._executor.jobs - at_work - 1  # One slot goes to the trial that begins now.
        return max(0, self._to_begin() - free)

    def _to_begin(self) -> int:
        if self._has_begun_all:  # A grid may have fewer trials than planned.
            return 0
        return left_to_begin(self._known_records(), trials=self._settings.study.trials)

    def _to_begin_in_time(self) -> int:
        """Return how many trials are left to begin. 0 if too little time is left for a new trial.

        In that case, frozen trials continue first, because the rest of their training is shorter.
        """
        usual_s = self._usual_s()
        is_too_late = usual_s is not None and self._time_left_s() < usual_s
        return 0 if is_too_late else self._to_begin()

    def _usual_s(self) -> float | None:
        """Return the completed trials' median duration in seconds. None if none has completed."""
        took_s = [
            record.duration_s
            for record in self._known_records()
            if record.state is TrialState.COMPLETED
        ]
        return statistics.median(took_s) if took_s else None

    def _spec(self, record: TrialRecord) -> TrialSpec:
        earlier = self._earlier_try(record)
        return TrialSpec(
            study=self._study.name,
            study_id=self._study.study_id,
            number=record.number,
            params=record.params,
            fixed=self._fixed(record, earlier),
            seed=record.seed,
            attempt=record.attempt,
            notebook=record.notebook,
            checkpoint_dir=self._paths.checkpoints(run_id_of(record.first_number)),
            artifact_dir=self._paths.saved(run_id_of(record.first_number)),
            inputs=self._inputs,
            code=self._log.code,
            continues=earlier,
            alone_on=self._shortages.alone_on(record),
            proposal=self._study.proposal(record.number),
        )

    def _fixed(self, record: TrialRecord, earlier: Path | None) -> Params:
        """Return the fixed params of a trial, which have the same values in all trials.

        The parameters file may have changed since an earlier sweep began this trial, or the trial
        that it retries. A name that was swept then and is fixed now keeps the value of the trial. A
        name that was fixed then and is swept now keeps the fixed value. The trial also keeps its
        seed: another fixed `seed` is left out.

        Args:
            record: Record of the trial.
            earlier: Executed notebook of an earlier attempt at the trial, or at the trial that it
                retries. None if there is none.
        """
        fixed = {**self._settings.fixed}
        swept_since = self._settings.search_space.missing(record.params)
        if earlier is not None and swept_since:
            # Read the trial's own path first: the worker moves an earlier attempt's notebook away
            # only when the new attempt begins.
            begun = read_metadata(record.notebook) or read_metadata(earlier) or BLANK
            fixed |= {name: begun.fixed[name] for name in swept_since if name in begun.fixed}
        if isinstance(fixed.get("seed"), int) and fixed["seed"] != record.seed:
            del fixed["seed"]
        return {name: value for name, value in fixed.items() if name not in record.params}

    def _earlier_try(self, record: TrialRecord) -> Path | None:
        """Return the path of the newest notebook of an earlier attempt at a trial.

        The last attempts at failed trials that it retries count, too. If no attempt has written a
        notebook, return the path of the newest attempt. None if there was no earlier attempt.
        """
        earlier = [attempt_path(record.notebook, n) for n in range(record.attempt - 1, 0, -1)]
        if earlier and record.notebook.exists():
            return earlier[0]  # The worker will move the last attempt's notebook to this path.
        retried = [
            other.number
            for other in self._known_records()
            if other.first_number == record.first_number and other.number < record.number
        ]
        earlier += map(self._notebook_of, sorted(retried, reverse=True))
        for path in earlier:
            if path.exists():
                return path
        return earlier[0] if earlier else None

    def _notebook_of(self, number: int) -> Path:
        return self._paths.notebook(run_id_of(number))


def without_param(
    spec: TrialSpec, notebook: ResearchNotebook, space: SearchSpace
) -> TrialOutcome | None:
    """Return a failure for a trial that began with a param which can no longer be set.

    Such a trial would run with the value in the notebook, but be recorded with the param's value.
    Return None for any other trial.
    """
    # Check only names that are no longer swept: the others were checked before the sweep.
    left = {name: value for name, value in spec.params.items() if name not in space}
    if not left:
        return None
    try:
        notebook.check_names(
            {name: f"it began with {name}: {as_yaml(value)}" for name, value in left.items()}
        )
    except NotebookError as error:
        why = f"{error}; to run this trial, undo the change of the name, and give `retry`"
        return TrialOutcome(state=TrialState.FAILED, reason=Reason.PARAM_LOST, message=why)
    return None


def _is_lost(outcome: TrialOutcome) -> bool:
    """Return whether a trial lost its worker or its kernel, or its machine ran out of memory.

    Such a trial is stopped and runs again, unless it was lost too often (`_MOST_LOSSES`).
    """
    lost = (Reason.WORKER_LOST, Reason.KERNEL_DIED, Reason.OUT_OF_HOST_MEMORY)
    return outcome.state is TrialState.STOPPED and outcome.reason in lost


def _mark_lost(spec: TrialSpec, outcome: TrialOutcome) -> None:
    """Write into the notebook of a lost trial (see `_is_lost`) how the trial has ended.

    Do nothing if this machine has no copy of the notebook that this attempt has written.
    """
    try:
        metadata = read_metadata(spec.notebook)
        if metadata is None or metadata.study_id != spec.study_id:
            return
        if metadata.attempt == spec.attempt:
            reason = outcome.reason
            mark_ended(spec.notebook, outcome.state, outcome.message, reason=reason)
    except Exception as error:  # noqa: BLE001
        # Only log this error, because the notebook may be an incomplete copy. The study's record
        # counts.
        _log.info("%s: %s", spec.notebook, first_line(error))


def progress_of(trial: TrialRecord | TrialSpec, running: RunningTrial) -> Progress:
    """Return the progress of a running trial."""
    pid = running.points.pid
    return Progress(
        run_id=trial.run_id,
        params=trial.params,
        attempt=trial.attempt,
        cell=running.points.cell,
        cells=running.points.cells,
        step=running.points.step,
        metrics=dict(running.points.metrics),
        elapsed_s=running.control.own_s,
        # No table shows the memory of frozen trials, of which there may be hundreds.
        memory_bytes=None if pid is None or running.control.is_frozen else memory_of(pid),
        host=running.points.host,
        waits_for=running.control.waits_for,
        is_frozen=running.control.is_frozen,
    )
