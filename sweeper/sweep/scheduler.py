"""The loop over a study's trials: what the executor is given, and where its outcomes go."""

from __future__ import annotations

import logging
import math
import statistics
import threading
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from ..errors import StorageAwayError, first_line
from ..execution.gpu_allocator import memory_of
from ..notebook_api.messages import Point
from ..notebooks import read_executed
from ..notebooks.fingerprint import CODE_TAG
from ..notebooks.scores import scrape
from ..settings import Settings
from ..study import SamplerFactory, Study
from ..study_folder.cleaning import clean
from ..tracking import Tracker
from ..trials import (
    Event,
    Events,
    Params,
    Progress,
    Reason,
    RunningTrial,
    Snapshot,
    StudyPaths,
    TrialOutcome,
    TrialRecord,
    TrialSpec,
    TrialState,
    attempt_path,
    count_by_state,
    display_path,
    run_id_of,
    value_text,
)
from .futility import FirstFailures
from .pruning import ProposalPrefetcher, PruningThread
from .spending import Spending
from .stop_switch import StopSwitch

_log = logging.getLogger(__name__)


class TrialScheduler:
    """Gives trials to the executor and takes their outcomes; called from the slots' threads."""

    def __init__(
        self,
        *,
        settings: Settings,
        samplers: SamplerFactory,
        paths: StudyPaths,
        study: Study,
        tracker: Tracker,
        tags: Mapping[str, str],
        stop_switch: StopSwitch,
        events: Events,
        spending: Spending,
        jobs: int,
    ) -> None:
        self._settings = settings
        self._samplers = samplers
        self._paths = paths
        self._study = study
        self._tracker = tracker
        self._tags = tags
        self._stop_switch = stop_switch
        self._events = events
        self._spending = spending
        self._failures_in_a_row = 0
        self._begun = 0
        self._asking, self._lock = threading.Lock(), threading.Lock()
        self._cleaning, self._has_cleaning_failed = threading.Lock(), False
        self._records = {record.number: record for record in study.records()}
        self._first_failures = FirstFailures(
            [*settings.search_space, *({"seed", "run_id"} - settings.fixed.keys())],
            list(self._records.values()),
        )
        self._best: Sequence[TrialRecord] | None = None
        self._judge = (
            PruningThread(study, settings) if settings.study.pruner.name != "none" else None
        )
        # One slot alone has its proposal made when the last trial is known: what a trial tries then
        # depends on nothing but the study, and not on when things happen.
        prepare = partial(study.prepare, settings, samplers)
        self._ahead = ProposalPrefetcher(prepare) if jobs > 1 else None
        self._jobs = jobs
        self.broken: Exception | None = None
        self.stopped_by: str | None = None
        stop_switch.show(self.snapshot)

    def next(self) -> tuple[TrialSpec, RunningTrial] | None:
        """A trial to run now; None when the study has enough, or the sweep is being stopped."""
        with self._asking:
            if self._stop_switch.closed_by is not None:
                self.stopped_by = self._stop_switch.closed_by
                return None
            try:
                record = self._study.ask(self._settings, self._samplers, self._paths_of)
            except Exception as error:  # noqa: BLE001  whatever it is, running trials are ended first
                self._break(error)
                return None
        if record is None:
            return None
        self._records[record.number] = record
        self._begun = max(self._begun, record.number + 1)
        if self._ahead is not None:
            self._ahead.want()
        spec = self._spec(record)
        self._tracker.started(record, self._described(record.params))
        self._events.announce(Event.TRIAL_STARTED, record)

        def on_point(point: Point) -> None:
            self._tracker.reported(spec.run_id, point)
            if self._judge is not None:
                self._judge.hear(spec.number, point, channel)

        channel = RunningTrial(on_point)
        self._stop_switch.enter(spec.number, channel)
        return spec, channel

    def lose(self, error: Exception) -> None:
        """The sweep has lost what it needs; from any thread."""
        self._break(error)

    def close(self) -> None:
        """Nobody asks for a trial any more, and none runs."""
        for thread in (self._ahead, self._judge):
            if thread is not None:
                thread.close()

    def trials_left(self) -> int:
        """How many trials have not begun yet, as far as is known."""
        if self._stop_switch.closed_by is not None:
            return 0
        return max(0, self._settings.study.trials - self._begun)

    def done(self, spec: TrialSpec, outcome: TrialOutcome) -> None:
        """Record an outcome."""
        self._stop_switch.leave(spec.number)
        if self._judge is not None:
            self._judge.forget(spec.number)
        with self._lock:
            try:
                record = self._study.tell(spec.number, outcome)
            except Exception as error:  # noqa: BLE001  as above
                # The next sweep finds in the executed notebook how it ended.
                self._break(error)
                record = self._study.ended(spec.number, outcome)
            self._count_failures(record)
            is_unwritable = record.state is TrialState.STOPPED and record.reason is Reason.FILE
            why = f"a file that cannot be written: {record.message}"
            if is_unwritable and self._stop_switch.close(why):
                self._events.announce(Event.STOPPING)
        self._records[record.number] = record
        self._best = None
        self._spending.trial_ended()
        self._clean()
        self._tracker.ended(record, outcome.series, self._tags)
        self._events.announce(Event.TRIAL_ENDED, record)

    def _clean(self) -> None:
        """Remove the checkpoints of ended trials that are not to be kept.

        Slots that end together clean one after the other, and whatever goes wrong costs disk space,
        not a trial.
        """
        policy, folder = self._settings.checkpoints, self._paths.all_checkpoints
        with self._cleaning:
            try:
                if self.broken is not None or not folder.is_dir():
                    return
                # First: one that ends between the two may be the best, and counts as running.
                records = dict(self._records).values()
                needs_best = policy.completed == "best" or policy.limit is not None
                best = {record.number for record in self._study.best()} if needs_best else ()
                clean(folder, records, best=best, policy=policy)
            except Exception as error:  # noqa: BLE001  see above
                if not self._has_cleaning_failed:
                    _log.warning(
                        "%s: old checkpoints could not be removed: %s; the sweep goes on",
                        display_path(folder),
                        first_line(error),
                    )
                self._has_cleaning_failed = True

    def snapshot(self) -> Snapshot:
        """How the study stands now; from any thread."""
        if self._best is None:
            self._best = self._study.best()
        records = dict(self._records)
        channels = self._stop_switch.channels()
        running = [
            _progress(records[number], channel)
            for number, channel in sorted(channels.items())
            if number in records
        ]
        ended = [record for record in records.values() if record.is_final]
        took_s = [r.duration_s for r in ended if r.state is not TrialState.FAILED]
        left = self._settings.study.trials - len(ended) - len(running)
        # Those that run are half done, as far as anybody knows.
        to_run = max(0, left) + len(running) / 2
        return Snapshot(
            study=self._study.name,
            trials=self._settings.study.trials,
            counts=count_by_state(records.values()),
            objectives=list(self._settings.objective),
            running=running,
            best=self._best,
            left_s=statistics.fmean(took_s) * to_run / self._jobs if took_s else None,
        )

    def tell_what_was_missed(self) -> None:
        """Tell MLflow of trials that ended while it could not be told, from their notebooks."""
        for record in self._study.records():
            if record.is_final and not self._tracker.has_end_of(record):
                self._tracker.started(record, self._described(record.params))
                self._tracker.ended(record, self._series_of(record), self._tags)

    def _series_of(self, record: TrialRecord) -> Mapping[str, list[tuple[int, float]]]:
        """The series of a trial that ended earlier, as far as its notebook still has them."""
        sources, objectives = self._settings.scores, self._settings.objective
        try:
            if not record.notebook.exists():
                return {}
            node = read_executed(record.notebook)
            return scrape(node, sources=sources, objectives=objectives).series
        except Exception as error:  # noqa: BLE001  one old file must not keep the study from going on
            _log.warning(
                "trial %s: MLflow is given its scores, but not its series: %s",
                record.run_id,
                first_line(error),
            )
            return {}

    def _break(self, error: Exception) -> None:
        """The study itself cannot go on: its storage is gone, or its sampler failed.

        While a storage is only away, the running trials come to their end: their executed
        notebooks keep it.
        """
        is_news, self.broken = self.broken is None, self.broken or error
        if isinstance(error, StorageAwayError):
            self._stop_switch.close("the study's storage stays away")
        else:
            self._stop_switch.stop_all(str(error))
        if is_news:
            self._events.announce(Event.STOPPING)

    def _count_failures(self, record: TrialRecord) -> None:
        failed = record.state is TrialState.FAILED
        self._failures_in_a_row = self._failures_in_a_row + 1 if failed else 0
        limit = self._settings.study.stop_after_failures
        why = f"{limit} failed trials in a row (study.stop_after_failures)"
        has_enough = limit is not None and self._failures_in_a_row >= limit
        if has_enough and self._stop_switch.close(why):
            self._events.announce(Event.STOPPING)
        futile = self._first_failures.note(record)
        if futile is not None and self._stop_switch.close(futile):
            self._stop_switch.stop_all(futile)
            self._events.announce(Event.STOPPING)

    def _spec(self, record: TrialRecord) -> TrialSpec:
        return TrialSpec(
            study=self._study.name,
            study_id=self._study.study_id,
            number=record.number,
            params=record.params,
            fixed=self._settings.fixed,
            seed=record.seed,
            attempt=record.attempt,
            notebook=record.notebook,
            continues=self._earlier_try(record),
            code=self._tags.get(CODE_TAG, ""),
            checkpoint_dir=self._paths.checkpoints(run_id_of(record.first_number)),
        )

    def _earlier_try(self, record: TrialRecord) -> Path | None:
        if record.attempt > 1:
            return attempt_path(record.notebook, record.attempt - 1)
        if record.retry_of is None:
            return None
        others = dict(self._records).values()  # a copy: other slots add to it
        same = (r for r in others if r.first_number == record.first_number)
        tries = [r for r in same if r.number < record.number]
        return max(tries, key=lambda r: r.number).notebook if tries else None

    def _paths_of(self, number: int) -> Path:
        return self._paths.notebook(run_id_of(number))

    def _described(self, params: Params) -> dict[str, str]:
        """The params of a trial as MLflow shows them."""
        space = self._settings.search_space
        described = {name: value_text(params[name]) if name in params else "n/a" for name in space}
        for name in space.log_names:
            value = params.get(name)
            described[f"log10_{name}"] = (
                f"{math.log10(value):.6f}" if isinstance(value, int | float) else "n/a"
            )
        return described


def _progress(record: TrialRecord, channel: RunningTrial) -> Progress:
    return Progress(
        run_id=record.run_id,
        params=record.params,
        attempt=record.attempt,
        cell=channel.cell,
        cells=channel.cells,
        step=channel.step,
        metrics=dict(channel.metrics),
        elapsed_s=time.time() - record.started_at_s - channel.waited_s,
        memory_bytes=None if channel.pid is None else memory_of(channel.pid),
    )
