"""The trials of a sweep: which one a free slot gets next, and where its outcome goes."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from ...errors import StorageAwayError, first_line
from ...machine.capacity import memory_of
from ...notebook_api.messages import Point, StopReason
from ...notebooks.executed import mark_ended
from ...notebooks.metadata import read_metadata
from ...search.pruners import PredictivePruner, make_pruner
from ...study.access import LostFileError
from ...study.study import Study
from ...trials import (
    Chore,
    ChoreKind,
    Control,
    Disagreement,
    Event,
    Events,
    KernelUse,
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
from .decisions import Decision, Freeze, Prune, Thaw
from .freezing import Freezer
from .overwritten import OverwrittenRule
from .shortages import Shortages, run_again
from .stop_rules import PruneRule, StopRule, StopRules
from .stop_switch import StopSwitch
from .trial_log import TrialLog
from .worthless import Tied, Worthless, WorthlessRule

_log = logging.getLogger(__name__)

#: A trial that loses its worker so often in one sweep has failed.
_MOST_LOSSES = 3
#: A study whose first trials fail in such a row has a cause that its params do not change.
_FIRST_FAILURES = 10
#: So many first trials that fail alike, or one in each slot: params do not change the cause.
_FAILURES_ALIKE = 3
#: Why a trial did not come to its end through no fault of its own, when no other would.
_OF_THE_MACHINE = (Reason.NO_GPU, Reason.KERNEL_START, Reason.INTERNAL)
#: A slot that waits for the end of a trial looks so often whether the sweep is being stopped.
_LOOK_S = 0.5


@dataclass(frozen=True, kw_only=True)
class _Best:
    """The best trials of a study in which so many trials had ended."""

    n_ended: int
    records: Sequence[TrialRecord]


class TrialScheduler:
    """Gives out trials and records their outcomes: the `TrialSource` of an executor.

    Safe to call from any thread.

    Args:
        log: where MLflow gets the trials from.

    Attributes:
        broken: what ended the sweep, where its storage or its sampler failed.
        kernels: how the kernels of the trials that have ended came to be.
        overwritten: Rule that watches for names which the notebook overwrites.
        stopped_by: why there were no more trials before the study had enough; None if it has.
    """

    def __init__(
        self,
        plan: SweepPlan,
        study: Study,
        *,
        log: TrialLog,
        stop_switch: StopSwitch,
        events: Events,
    ) -> None:
        settings = self._settings = plan.settings
        self._inputs, self._samplers, self._paths = plan.inputs, plan.samplers, plan.paths
        self._executor = plan.executor
        self._study = study
        self._log = log
        self._stop_switch = stop_switch
        self._events = events
        self.overwritten = OverwrittenRule(
            lambda: plan.notebook.code, is_allowed=plan.allow_changes
        )
        self._failures_in_a_row = 0
        self._failures_alike = 0
        self._last_failure: tuple[Reason | None, str] | None = None
        self._losses: Counter[int] = Counter()
        self._asking, self._lock = threading.Lock(), threading.Lock()
        self._cleaner = CheckpointCleaner(study, settings, plan.paths.all_checkpoints)
        self._records = {record.number: record for record in study.records()}
        self._shortages = Shortages(self._records.values())
        self._best = _Best(n_ended=0, records=())
        pruner = make_pruner(settings)
        rules: list[StopRule] = []
        self._freezer = None
        if plan.executor.can_freeze and isinstance(pruner, PredictivePruner):
            self._freezer = Freezer(
                study, pruner, running=stop_switch.running_trials, to_begin=self._to_begin
            )
            rules.append(self._freezer)
        elif settings.study.pruner.name != "none":
            rules.append(PruneRule(study, pruner))
        # From a decision until it is carried out no other one is made.
        self._deciding = threading.RLock()
        self._rules = StopRules(
            study,
            rules,
            objective=next(iter(settings.objective)),
            act=self._act,
            lock=self._deciding,
        )
        may_be_worthless = plan.confirming is None and not plan.allow_changes
        self._worthless_rule = WorthlessRule() if may_be_worthless else None
        self._given: dict[int, tuple[TrialSpec, RunningTrial]] = {}
        self._has_begun_all = False
        self._last_end_s = time.monotonic()
        self._ahead = ThreadPoolExecutor(1, thread_name_prefix="proposals")
        self._has_trial_ended = threading.Event()
        self.broken: Exception | None = None
        self.kernels: list[KernelUse] = []
        self.disagreements: dict[str, Sequence[Disagreement]] = {}
        self.stopped_by: str | None = None

    def next_trial(self) -> tuple[TrialSpec, RunningTrial] | None:
        """Return the next trial, or a frozen one that continues; None when there are no more.

        It may wait for the end of a trial that runs: where the order of trials is fixed, or where
        that end decides which frozen trial can still win.
        """
        with self._asking:
            try:
                chosen = self._choose()
            except Exception as error:  # noqa: BLE001  whatever it is, running trials are ended first
                self.lose(error)
                return None
            if not isinstance(chosen, TrialRecord):
                return chosen
            given = self._begin(chosen)
        # One slot alone has its proposal made when the last trial is known: what a trial tries then
        # depends on nothing but the study, and not on when things happen.
        if self._executor.jobs > 1:
            # Its error is dropped: the slot that asks next meets the same one.
            self._ahead.submit(self._study.prepare, self._samplers)
        self._log.started(chosen)
        self._events.announce(Event.TRIAL_STARTED, chosen)
        return given

    def _choose(self) -> TrialRecord | tuple[TrialSpec, RunningTrial] | None:
        """Choose what a free slot gets: a new trial, by its record, or one that has been thawed."""
        while self._stop_switch.closed_by is None:
            thawed = self._thawed()
            if thawed is not None:
                return thawed
            record = self._study.ask(self._samplers, self._notebook_of, self._wait_for_end)
            self._has_begun_all = record is None
            if record is not None:
                return record
            thawed = self._thawed()
            if thawed is not None:
                return thawed
            if self._freezer is None or not self._freezer.frozen:
                self.stopped_by = self._stop_switch.closed_by
                return None
            self._wait_for_end()  # it decides which frozen trial can still win
        self.stopped_by = self._stop_switch.closed_by
        self._stop_frozen()
        return None

    def _begin(self, record: TrialRecord) -> tuple[TrialSpec, RunningTrial]:
        """Connect a new trial with the sweep, before a slot gets it."""
        self._records[record.number] = record
        control = Control() if self._freezer is None else Control(self._make_room)
        running = RunningTrial(control=control, trials_left=self._trials_left())
        running.points.subscribe(partial(self._on_point, record))
        self._stop_switch.enter(record.number, running)
        spec = self._spec(record)
        self._given[record.number] = spec, running
        return spec, running

    def _thawed(self) -> tuple[TrialSpec, RunningTrial] | None:
        """Thaw a frozen trial for a free slot; None where a new one should begin."""
        if self._freezer is None:
            return None
        given = dict(self._given)  # before, as it may end at once
        with self._deciding:
            for decision in self._freezer.fill_slot(has_begun_all=self._has_begun_all):
                if self._act(decision) and isinstance(decision, Thaw):
                    return given[decision.number]
        return None

    def _make_room(self) -> None:
        """Prune a frozen trial if one should go, as another trial waits for its place."""
        with self._deciding:
            decision = None if self._freezer is None else self._freezer.make_room()
            if decision is not None:
                self._act(decision)

    def _act(self, decision: Decision) -> bool:
        """Carry out a decision; False where the trial can no longer do so, and is left alone."""
        trial = self._stop_switch.running_trials().get(decision.number)
        if trial is None:
            return False
        match decision:
            case Prune(message=message):
                trial.control.stop(StopReason.PRUNED, message)
                return True
            case Freeze():
                has_changed, state = trial.control.freeze(), TrialState.FROZEN
            case Thaw():
                has_changed, state = trial.control.thaw(), TrialState.RUNNING
        if has_changed:
            self._note_state(decision.number, state)
        return has_changed

    def _stop_frozen(self) -> None:
        """Stop what is frozen: it comes first in the next sweep."""
        for trial in {} if self._freezer is None else self._freezer.frozen.values():
            trial.control.stop(StopReason.INTERRUPTED)

    def _note_state(self, number: int, state: TrialState) -> None:
        with self._lock:  # or it would replace the record of an end
            self._records[number] = self._study.note_state(number, state)
        self._has_trial_ended.set()

    def _wait_for_end(self) -> bool:
        """Wait until a trial has ended, or a moment; whether more trials may start."""
        self._has_trial_ended.wait(_LOOK_S)
        self._has_trial_ended.clear()
        return not self.is_closed()

    def _on_point(self, record: TrialRecord, point: Point) -> None:
        self._log.reported(record.run_id, point)
        if record.repeat_of is None:  # of a further run the score counts, as of the others
            self._rules.consider(record.number, point)

    def close(self) -> None:
        """End the threads beside the trials, of which none runs any more."""
        self._ahead.shutdown(cancel_futures=True)
        self._rules.close()

    def is_closed(self) -> bool:
        """Whether no more trials are given out, because the sweep is being stopped."""
        return self._stop_switch.closed_by is not None

    def stop(self, reason: str) -> None:
        """Give out no more trials, and stop those that run: the executor cannot go on."""
        self._stop_switch.stop_all(reason)
        self.stopped_by = self._stop_switch.closed_by

    def patience_s(self) -> float:
        """How long to wait for a storage or a disk that is away, in seconds."""
        return self._stop_switch.patience_s()

    def left_s(self) -> float | None:
        """How long the sweep still has, in seconds; None for as long as it takes."""
        return self._stop_switch.left_s

    def finish_trial(self, spec: TrialSpec, outcome: TrialOutcome) -> None:
        """Record how a trial ended: in the study, in MLflow, for the observer."""
        self._stop_switch.leave(spec.number)
        self._given.pop(spec.number, None)
        self._rules.forget(spec.number)
        is_lost = _is_lost(outcome)
        with self._lock:
            if is_lost:
                # Attempts would also count the preemptions of earlier sweeps.
                self._losses[spec.number] += 1
                if self._losses[spec.number] >= _MOST_LOSSES:
                    outcome = replace(outcome, state=TrialState.FAILED)
                _mark_lost(spec, outcome)
            again = run_again(spec, outcome)
            if again is not None:
                self._shortages.note(spec.number, again)
                message = f"{outcome.message}; it is run again {again.value}"
                outcome = replace(outcome, state=TrialState.STOPPED, message=message)
            try:
                record = self._study.tell(spec.number, outcome)
            except Exception as error:  # noqa: BLE001  as in next_trial
                # The executed notebook has the trial's end, and the next sweep reads it there.
                self.lose(error)
                record = self._study.ended(spec.number, outcome)
            self._stop_for_failures(record)
            if (why := self.overwritten.consider(spec, outcome)) is not None:
                self._stop_switch.close(why, StopCause.WORTHLESS)
        self._stop_if_worthless(record)
        if again is not None or (is_lost and record.state is TrialState.STOPPED):
            self._study.queue_again(record)
        self._has_trial_ended.set()
        self._last_end_s = time.monotonic()
        self._records[record.number] = record
        if self.broken is None:
            self._cleaner.clean(self._records)
        if outcome.kernel is not None:
            self.kernels.append(outcome.kernel)
        if outcome.disagreements:
            self.disagreements[record.run_id] = outcome.disagreements
        self._log.ended(record, outcome)
        self._events.announce(Event.TRIAL_ENDED, record)

    def snapshot(self, doing: Sequence[Chore] = ()) -> Snapshot:
        """How the study stands now.

        Args:
            doing: what the sweep does beside the trials.
        """
        records = dict(self._records)
        running_trials = self._stop_switch.running_trials()
        running = [
            _progress(records[number], trial)
            for number, trial in sorted(running_trials.items())
            if number in records
        ]
        ended = [record for record in records.values() if record.is_final]
        trials = self._settings.study.trials
        to_start = left_to_begin(records.values(), trials=trials)
        return Snapshot(
            study=self._study.name,
            trials=trials,
            counts=count_by_state(records.values()),
            objectives=list(self._settings.objective),
            running=running,
            best=self._best_after(len(ended)),
            left_s=seconds_left(ended, running, to_start=to_start),
            doing=doing,
        )

    def ending(self) -> Chore | None:
        """The wait for the kernels' ends, once the last trial has ended; None before."""
        is_last = self._has_begun_all or self.is_closed()
        if not is_last or self._stop_switch.running_trials():
            return None
        return Chore(kind=ChoreKind.ENDING, since_s=self._last_end_s)

    def _best_after(self, n_ended: int) -> Sequence[TrialRecord]:
        """The best trials, which are searched again only when a further trial has ended.

        Args:
            n_ended: how many trials had ended before this call.
        """
        known = self._best  # read once: another thread may replace it meanwhile
        if known.n_ended != n_ended:
            known = self._best = _Best(n_ended=n_ended, records=tuple(self._study.best()))
        return known.records

    def lose(self, error: Exception) -> None:
        """The study itself cannot go on: its storage is gone, or its sampler failed.

        While a storage is only away, or its file is damaged, the running trials come to their end:
        their executed notebooks keep it.
        """
        self.broken = self.broken or error
        if isinstance(error, StorageAwayError):
            self._stop_switch.close("the study's storage stays away")
        elif isinstance(error, LostFileError):
            self._stop_switch.close(str(error))
        else:
            self._stop_switch.stop_all(str(error))

    def _stop_for_failures(self, record: TrialRecord) -> None:
        """Stop the sweep where more trials would fare no better."""
        has_failed = record.state is TrialState.FAILED
        self._failures_in_a_row = self._failures_in_a_row + 1 if has_failed else 0
        if record.state is TrialState.STOPPED and record.reason is Reason.FILE:
            why = f"a file that cannot be written: {record.message}"
            self._stop_switch.close(why, StopCause.FAULT)
        if record.state is TrialState.STOPPED and record.reason in _OF_THE_MACHINE:
            self._stop_switch.close(record.message, StopCause.FAULT)
        failure = (record.reason, record.message) if has_failed else None
        self._failures_alike = self._failures_alike + 1 if failure == self._last_failure else 1
        self._last_failure = failure
        limit = self._settings.study.stop_after_failures
        if limit is None and has_failed and not self._has_trained():
            limit = _FIRST_FAILURES
            if self._failures_alike >= max(_FAILURES_ALIKE, self._executor.jobs):
                reason = record.message.strip().partition("\n")[0]
                why = f"the first {self._failures_alike} trials, which failed alike ({reason})"
                self._stop_switch.close(why)
        if limit is not None and self._failures_in_a_row >= limit:
            self._stop_switch.close(f"{limit} failed trials in a row (study.stop_after_failures)")

    def _stop_if_worthless(self, ended: TrialRecord) -> None:
        """Stop the sweep where params change nothing; only in a search, where they should."""
        if self._worthless_rule is None or ended.state is not TrialState.COMPLETED:
            return
        records = [*dict(self._records).values(), ended]  # a copy: other slots add to it
        try:
            found = self._worthless_rule.judge(records)
        except Exception as error:  # noqa: BLE001  a check that fails ends no sweep
            _log.info("the first trials were not compared: %s", first_line(error))
            return
        if isinstance(found, Worthless):
            self._stop_switch.close(str(found), StopCause.WORTHLESS)
        elif isinstance(found, Tied):
            _log.warning("%s", found)

    def _has_trained(self) -> bool:
        trained = (TrialState.COMPLETED, TrialState.PRUNED)
        return any(record.state in trained for record in dict(self._records).values())

    def _trials_left(self) -> int:
        """How many trials have not begun when each free slot has taken one, as far as is known."""
        running = self._stop_switch.running_trials().values()
        at_work = sum(not trial.control.is_frozen for trial in running)
        free = self._executor.jobs - at_work - 1  # of the trial that begins
        return max(0, self._to_begin() - free)

    def _to_begin(self) -> int:
        if self._has_begun_all:  # a grid may have fewer than are planned
            return 0
        records = dict(self._records).values()  # a copy: other slots add to it
        return left_to_begin(records, trials=self._settings.study.trials)

    def _spec(self, record: TrialRecord) -> TrialSpec:
        return TrialSpec(
            study=self._study.name,
            study_id=self._study.study_id,
            number=record.number,
            params=record.params,
            # A trial of an earlier call keeps the params with which it began.
            fixed={
                name: value
                for name, value in self._settings.fixed.items()
                if name not in record.params
            },
            seed=record.seed,
            attempt=record.attempt,
            notebook=record.notebook,
            checkpoint_dir=self._paths.checkpoints(run_id_of(record.first_number)),
            artifact_dir=self._paths.saved(run_id_of(record.first_number)),
            inputs=self._inputs,
            code=self._log.code,
            continues=self._earlier_try(record),
            alone_on=self._shortages.alone_on(record),
            proposal=self._study.proposal(record.number),
        )

    def _earlier_try(self, record: TrialRecord) -> Path | None:
        if record.attempt > 1:
            return attempt_path(record.notebook, record.attempt - 1)
        if record.retry_of is None:
            return None
        others = dict(self._records).values()  # a copy: other slots add to it
        tries = [
            other
            for other in others
            if other.first_number == record.first_number and other.number < record.number
        ]
        return max(tries, key=lambda record: record.number).notebook if tries else None

    def _notebook_of(self, number: int) -> Path:
        return self._paths.notebook(run_id_of(number))


def _is_lost(outcome: TrialOutcome) -> bool:
    """Whether the place of a trial failed, and not the trial."""
    lost = (Reason.WORKER_LOST, Reason.KERNEL_DIED)
    return outcome.state is TrialState.STOPPED and outcome.reason in lost


def _mark_lost(spec: TrialSpec, outcome: TrialOutcome) -> None:
    """Correct the notebook of a trial whose worker can write nothing more, if a copy is here."""
    try:
        metadata = read_metadata(spec.notebook)
        if metadata is None or metadata.study_id != spec.study_id:
            return
        if metadata.state in (TrialState.RUNNING, TrialState.STOPPED):
            mark_ended(spec.notebook, outcome.state, outcome.message)
    except Exception as error:  # noqa: BLE001  the record counts, and half a copy is no notebook
        _log.info("%s: %s", spec.notebook, first_line(error))


def _progress(record: TrialRecord, running: RunningTrial) -> Progress:
    pid = running.points.pid
    return Progress(
        run_id=record.run_id,
        params=record.params,
        attempt=record.attempt,
        cell=running.points.cell,
        cells=running.points.cells,
        step=running.points.step,
        metrics=dict(running.points.metrics),
        elapsed_s=running.control.own_s,
        memory_bytes=None if pid is None else memory_of(pid),
        host=running.points.host,
        waits_for=running.control.waits_for,
        is_frozen=running.control.is_frozen,
    )
