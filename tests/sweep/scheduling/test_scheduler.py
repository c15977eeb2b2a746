"""The scheduler chooses the next trial of a free slot and records outcomes, without any kernel."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any, NoReturn

import nbformat
import pytest
from opened_studies import counts_of
from optuna.storages import RDBStorage
from studies import PATIENCE_S, scored, small_settings, until

from sweeper.errors import StorageAwayError
from sweeper.notebook_api.messages import Point, StopReason
from sweeper.notebooks.executed import ExecutedNotebook
from sweeper.notebooks.metadata import BLANK, read_metadata
from sweeper.search.pruners import Curves, PredictivePruner
from sweeper.search.samplers import suggest
from sweeper.study.study import Study
from sweeper.study_folder.saved import saved_in
from sweeper.sweep.scheduling.decisions import Freeze
from sweeper.sweep.scheduling.scheduler import TrialScheduler
from sweeper.sweep.scheduling.stop_switch import StopSwitch
from sweeper.testing import InlineExecutor
from sweeper.tracking import Tracker
from sweeper.trials import (
    Events,
    Reason,
    RunningTrial,
    TrialOutcome,
    TrialRecord,
    TrialSpec,
    TrialState,
)

pytestmark = pytest.mark.slow  # MLflow is imported

Make = Callable[..., TrialScheduler]
RunTrial = Callable[[TrialSpec, RunningTrial], TrialOutcome]


def failed(reason: Reason = Reason.CELL_ERROR, message: str = "") -> TrialOutcome:
    return TrialOutcome(state=TrialState.FAILED, reason=reason, message=message)


@pytest.fixture
def swept(storage: RDBStorage, make_scheduler: Make) -> Callable[..., tuple[Study, TrialScheduler]]:
    """Return a function that runs all trials that a study still lacks, each as a function call."""

    def swept(
        name: str,
        run_trial: RunTrial,
        *,
        jobs: int = 1,
        stop_switch: StopSwitch | None = None,
        made: list[TrialScheduler] | None = None,
        **study: Any,
    ) -> tuple[Study, TrialScheduler]:
        settings = small_settings(name, study=study)
        opened = Study.open(storage, settings)
        scheduler = make_scheduler(opened, settings, jobs=jobs, stop_switch=stop_switch)
        if made is not None:
            made.append(scheduler)
        InlineExecutor(run_trial, jobs=jobs).run(scheduler)
        scheduler.close()
        return opened, scheduler

    return swept


Swept = Callable[..., tuple[Study, TrialScheduler]]


@pytest.mark.parametrize("jobs", [1, 4])
def test_a_sweep_runs_the_stated_number_of_trials_and_a_resumed_sweep_runs_only_missing_ones(
    swept: Swept, tracker: Tracker, jobs: int
) -> None:
    made: list[TrialScheduler] = []
    for trials, begun in ((5, 5), (8, 3), (8, 0)):
        specs: list[TrialSpec] = []

        def run(spec: TrialSpec, running: RunningTrial, specs: Any = specs) -> TrialOutcome:
            specs.append(spec)
            assert made[-1].ending() is None
            return scored(spec, running)

        study, scheduler = swept(f"counted{jobs}", run, jobs=jobs, trials=trials, made=made)
        assert len(specs) == begun
        assert counts_of(study) == {TrialState.COMPLETED: trials}
        assert scheduler.stopped_by is None
    (best,) = study.best()
    assert best.scores["val"] == max(record.scores["val"] for record in study.records())
    assert scheduler.snapshot().counts["completed"] == 8
    ending = scheduler.ending()
    assert ending is not None, "the sweep does not say that it waits for kernels to end"
    assert ending.since_s <= time.monotonic()
    tracker.close()
    assert sorted(tracker.mlflow_run_ids) == [f"{number:04d}" for number in range(8)]


def test_a_snapshot_of_the_scheduler_shows_the_best_trial_even_if_trials_end_meanwhile(
    swept: Swept,
) -> None:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    ended, is_over = threading.Event(), threading.Event()
    schedulers: list[TrialScheduler] = []

    def look() -> int:
        assert ended.wait(PATIENCE_S)
        looks = 0
        while not is_over.is_set():
            assert schedulers[0].snapshot().best, "a trial has completed"
            looks += 1
        return looks

    def run(spec: TrialSpec, running: RunningTrial) -> TrialOutcome:
        if spec.number == 3:  # With two slots, an earlier trial has completed by now.
            ended.set()
        return scored(spec, running)

    try:
        with ThreadPoolExecutor(2) as looking:
            looks = [looking.submit(look) for _ in range(2)]
            try:
                study, scheduler = swept("looked at", run, trials=60, jobs=2, made=schedulers)
            finally:
                ended.set()
                is_over.set()
            assert all(it.result() for it in looks)
    finally:
        sys.setswitchinterval(before)
    assert [it.number for it in scheduler.snapshot().best] == [it.number for it in study.best()]


@pytest.mark.parametrize(("jobs", "most"), [(1, 3), (5, 5)])
def test_a_sweep_ends_if_its_first_trials_fail_with_the_same_error(
    swept: Swept, jobs: int, most: int
) -> None:
    def run(spec: TrialSpec, running: RunningTrial) -> TrialOutcome:
        return failed(message="In [1]: ModuleNotFoundError: No module named 'mlx'")

    study, scheduler = swept(f"alike{jobs}", run, jobs=jobs, trials=20)
    assert most <= counts_of(study)[TrialState.FAILED] < most + jobs
    assert "No module named 'mlx'" in str(scheduler.stopped_by)


def test_a_sweep_ends_if_its_first_ten_trials_fail_with_different_errors(swept: Swept) -> None:
    def run(spec: TrialSpec, running: RunningTrial) -> TrialOutcome:
        return failed(message=f"ValueError: {spec.number}")

    study, _ = swept("unlike", run, trials=20)
    assert counts_of(study)[TrialState.FAILED] == 10


def test_failed_trials_in_a_row_end_the_sweep_and_a_completed_trial_restarts_the_count(
    swept: Swept,
) -> None:
    fails = iter([True, True, False, True, True, True, True])

    def run(spec: TrialSpec, running: RunningTrial) -> TrialOutcome:
        message = f"a failure of its own: {spec.params['x']}"
        return failed(message=message) if next(fails) else scored(spec, running)

    study, scheduler = swept("failing", run, stop_after_failures=3, trials=20)
    assert counts_of(study) == {TrialState.FAILED: 5, TrialState.COMPLETED: 1}
    assert scheduler.stopped_by == "3 failed trials in a row (study.stop_after_failures)"


def test_a_sweep_ends_if_several_trials_in_a_row_lack_memory_even_if_each_runs_alone(
    swept: Swept,
) -> None:
    def run(spec: TrialSpec, running: RunningTrial) -> TrialOutcome:
        return failed(Reason.OUT_OF_HOST_MEMORY, "no memory is left")

    study, scheduler = swept("no memory", run, jobs=2, stop_after_failures=3, trials=20)
    assert 3 <= counts_of(study)[TrialState.FAILED] <= 4
    assert scheduler.stopped_by == "3 failed trials in a row (study.stop_after_failures)"


def test_a_sweep_whose_last_gpu_has_failed_ends_and_its_trials_can_be_resumed(
    swept: Swept,
) -> None:
    lost = TrialOutcome(state=TrialState.STOPPED, reason=Reason.NO_GPU, message="no GPU is left")
    study, scheduler = swept("no gpu", lambda *_: lost, trials=20)
    assert counts_of(study) == {TrialState.STOPPED: 1}
    assert not study.records()[0].is_final
    assert scheduler.stopped_by == "no GPU is left"


def test_a_trial_that_lost_its_worker_is_run_again_with_the_same_params_and_seed(
    swept: Swept,
) -> None:
    specs: list[TrialSpec] = []

    def run(spec: TrialSpec, running: RunningTrial) -> TrialOutcome:
        specs.append(spec)
        if spec.number == 1 and spec.attempt == 1:
            return TrialOutcome(state=TrialState.STOPPED, reason=Reason.WORKER_LOST)
        return scored(spec, running)

    study, _ = swept("lost", run, trials=3)
    assert [(spec.number, spec.attempt) for spec in specs] == [(0, 1), (1, 1), (1, 2), (2, 1)]
    assert (specs[1].params, specs[1].seed) == (specs[2].params, specs[2].seed)
    assert specs[1].notebook == specs[2].notebook
    assert counts_of(study) == {TrialState.COMPLETED: 3}


def test_a_retry_uses_the_checkpoint_folder_of_the_failed_trial_that_it_repeats(
    swept: Swept,
) -> None:
    specs: list[TrialSpec] = []

    def run(spec: TrialSpec, running: RunningTrial) -> TrialOutcome:
        specs.append(spec)
        return failed() if spec.number == 0 else scored(spec, running)

    study, _ = swept("again", run, trials=1)
    (before,) = study.records()
    study.enqueue(before.params, again=before)
    swept("again", run, trials=1)
    first, second = specs
    assert (second.params, second.seed) == (first.params, first.seed)
    assert second.checkpoint_dir == first.checkpoint_dir


def test_a_trial_that_is_run_again_keeps_its_seed_and_the_fixed_value_of_a_name_that_is_swept_now(
    storage: RDBStorage, make_scheduler: Make
) -> None:
    specs: list[TrialSpec] = []

    def run(spec: TrialSpec, running: RunningTrial) -> TrialOutcome:
        specs.append(spec)
        if spec.attempt > 1:
            return scored(spec, running)
        ExecutedNotebook(nbformat.v4.new_notebook(), spec).write()
        return TrialOutcome(state=TrialState.STOPPED, reason=Reason.NO_GPU)

    unit = {"low": 0.0, "high": 1.0}
    both = {"space": {"x": unit, "y": unit}, "fixed": {"seed": 42}}
    for sections in ({"fixed": {"y": 0.25}}, both):
        settings = small_settings("swept since", study={"trials": 1}, **sections)
        scheduler = make_scheduler(Study.open(storage, settings), settings, jobs=1)
        InlineExecutor(run, jobs=1).run(scheduler)
        scheduler.close()
    first, again = specs
    assert (first.fixed, again.fixed) == ({"y": 0.25}, {"y": 0.25})
    assert (again.params, again.seed) == (first.params, first.seed)


@pytest.mark.parametrize(
    ("written", "continued"),
    [
        ([".attempt1", ""], ".attempt2"),  # the worker moves the second attempt's notebook there
        ([".attempt1"], ".attempt1"),
        ([], ".attempt2"),
    ],
)
def test_an_attempt_continues_the_newest_earlier_attempt_that_has_written_a_notebook(
    swept: Swept, written: list[str], continued: str
) -> None:
    specs: list[TrialSpec] = []

    def run(spec: TrialSpec, running: RunningTrial) -> TrialOutcome:
        specs.append(spec)
        for attempt in written if spec.attempt == 2 else ():
            spec.notebook.with_suffix(f"{attempt}.ipynb").touch()
        if spec.attempt < 3:
            return TrialOutcome(state=TrialState.STOPPED, reason=Reason.WORKER_LOST)
        return scored(spec, running)

    swept(f"newest {len(written)}", run, trials=1)
    wanted = specs[0].notebook.with_suffix(f"{continued}.ipynb")
    assert specs[-1].continues == wanted


@pytest.mark.parametrize("reason", [Reason.WORKER_LOST, Reason.OUT_OF_HOST_MEMORY])
def test_a_trial_that_loses_its_worker_or_runs_out_of_memory_three_times_has_failed(
    swept: Swept, reason: Reason
) -> None:
    def run(spec: TrialSpec, running: RunningTrial) -> TrialOutcome:
        if spec.number == 0:
            sweeper = {"study_id": spec.study_id, "attempt": spec.attempt, "state": "running"}
            node = nbformat.v4.new_notebook(metadata={"sweeper": sweeper})
            spec.notebook.write_text(nbformat.writes(node))  # as if it was copied from the worker
            return TrialOutcome(
                state=TrialState.STOPPED, reason=reason, message="the host has gone"
            )
        return scored(spec, running)

    study, _ = swept(f"{reason} again", run, trials=2)
    first, second = study.records()
    assert (first.state, first.reason, first.attempt) == (TrialState.FAILED, reason, 3)
    assert first.message == "the host has gone"
    metadata = read_metadata(first.notebook) or BLANK
    assert (metadata.state, metadata.message) == ("failed", "the host has gone")
    assert second.state is TrialState.COMPLETED


@pytest.mark.parametrize("has_artifacts", [True, False])
def test_after_a_worker_is_lost_the_outcome_in_the_notebook_counts_if_all_artifacts_are_there(
    swept: Swept, has_artifacts: bool
) -> None:
    specs: list[TrialSpec] = []

    def run(spec: TrialSpec, running: RunningTrial) -> TrialOutcome:
        specs.append(spec)
        spec.artifact_dir.mkdir(parents=True, exist_ok=True)
        saved = spec.artifact_dir / "model.pt"
        saved.write_bytes(b"weights")
        file = ExecutedNotebook(nbformat.v4.new_notebook(), spec)
        file.note(artifacts=saved_in(spec.artifact_dir))
        file.finish(scored(spec, running))
        file.write()
        if not has_artifacts:
            saved.unlink()
        return TrialOutcome(state=TrialState.STOPPED, reason=Reason.WORKER_LOST, message="gone")

    study, _ = swept(f"sent {has_artifacts}", run, trials=1)
    (record,) = study.records()
    metadata = read_metadata(record.notebook) or BLANK
    assert metadata.state is record.state
    if has_artifacts:
        assert (len(specs), record.state) == (1, TrialState.COMPLETED)
        assert record.scores == metadata.scores
    else:
        assert (len(specs), record.state) == (3, TrialState.FAILED)


def test_the_reason_why_an_executor_stopped_the_sweep_is_kept_even_if_no_trial_has_begun(
    storage: RDBStorage, make_scheduler: Make
) -> None:
    settings = small_settings("no host", study={"trials": 2})
    scheduler = make_scheduler(Study.open(storage, settings), settings)
    scheduler.stop("the host has no such kernel")  # no slot asks for a trial after this
    scheduler.close()
    assert scheduler.stopped_by == "the host has no such kernel"


def test_a_stop_reaches_the_trial_in_every_slot_and_the_next_sweep_runs_these_trials_first(
    swept: Swept,
) -> None:
    stop_switch = StopSwitch(Events())

    def stop_all() -> None:
        stop_switch.stop_all("the test")

    both = threading.Barrier(2, action=stop_all)

    def wait(_: TrialSpec, running: RunningTrial) -> TrialOutcome:
        stopped = threading.Event()
        running.control.on_stop(stopped.set)
        both.wait(PATIENCE_S)
        assert stopped.wait(PATIENCE_S)
        return TrialOutcome(state=TrialState.STOPPED, reason=Reason.INTERRUPTED)

    study, scheduler = swept("stopped", wait, jobs=2, stop_switch=stop_switch, trials=4)
    assert scheduler.stopped_by == "the test"
    assert counts_of(study) == {TrialState.STOPPED: 2}
    before = [record.params for record in study.records()]
    specs: list[TrialSpec] = []

    def run(spec: TrialSpec, running: RunningTrial) -> TrialOutcome:
        specs.append(spec)
        return scored(spec, running)

    swept("stopped", run, trials=4)
    assert [(spec.number, spec.attempt) for spec in specs] == [(0, 2), (1, 2), (2, 1), (3, 1)]
    assert [spec.params for spec in specs[:2]] == before


@pytest.mark.parametrize("waits", [False, True])
def test_no_trial_begins_if_the_sweep_is_stopped_while_its_params_are_proposed(
    storage: RDBStorage, make_scheduler: Make, monkeypatch: pytest.MonkeyPatch, waits: bool
) -> None:
    settings = small_settings(f"proposed{waits}", study={"trials": 3})
    study, stop_switch = Study.open(storage, settings), StopSwitch(Events())
    if waits:
        study.keep_order(1)
    scheduler = make_scheduler(study, settings, jobs=1, stop_switch=stop_switch)
    begun = scheduler.next_trial()
    assert begun is not None

    def suggest_slowly(*arguments: Any) -> Any:
        stop_switch.close("--timeout")
        return suggest(*arguments)

    monkeypatch.setattr("sweeper.study.proposals.suggest", suggest_slowly)
    with ThreadPoolExecutor(1) as slot:
        asked = slot.submit(scheduler.next_trial)
        if waits:
            threading.Event().wait(0.1)
            assert not asked.done()
            scheduler.finish_trial(begun[0], scored(*begun))
        assert asked.result(PATIENCE_S) is None
    scheduler.close()
    assert scheduler.stopped_by == "--timeout"
    assert len(study.records()) == 1


def test_with_order_fixed_a_waiting_slot_gets_a_lost_trial_or_the_next_one_or_none_after_a_stop(
    storage: RDBStorage, make_scheduler: Make
) -> None:
    settings = small_settings("waits", study={"order": "fixed"})
    study, stop_switch = Study.open(storage, settings), StopSwitch(Events())
    assert study.keep_order(3) == 3
    scheduler = make_scheduler(study, settings, stop_switch=stop_switch)
    specs = [given[0] for _ in range(3) if (given := scheduler.next_trial()) is not None]
    done = TrialOutcome(state=TrialState.COMPLETED, scores={"val": 0.5})
    with ThreadPoolExecutor(1) as slot:

        def waits() -> Future[Any]:
            """Ask for a trial in a thread. Check that this call waits, and return its future."""
            asked = slot.submit(scheduler.next_trial)
            until(scheduler._asking.locked)
            threading.Event().wait(0.1)
            assert not asked.done()
            return asked

        asked = waits()
        scheduler.finish_trial(specs[2], done)  # Trial 3 is proposed without the score of trial 2.
        threading.Event().wait(0.1)
        assert not asked.done()
        lost = TrialOutcome(state=TrialState.STOPPED, reason=Reason.WORKER_LOST)
        scheduler.finish_trial(specs[0], lost)
        again, _ = asked.result(PATIENCE_S)
        assert (again.number, again.attempt) == (0, 2)
        asked = waits()
        scheduler.finish_trial(again, done)
        assert asked.result(PATIENCE_S)[0].number == 3
        asked = waits()
        stop_switch.close("--timeout")
        assert asked.result(PATIENCE_S) is None
    scheduler.close()
    assert scheduler.stopped_by == "--timeout"


def test_a_report_reaches_the_pruner_and_the_pruners_decision_stops_the_trial(
    swept: Swept,
) -> None:
    def run(spec: TrialSpec, running: RunningTrial) -> TrialOutcome:
        if spec.number == 1:
            return scored(spec, running)
        stopped = threading.Event()
        running.control.on_stop(stopped.set)
        running.points.publish(Point(step=0, metrics={"val": 0.1}))
        assert stopped.wait(PATIENCE_S)
        return TrialOutcome(
            state=TrialState.PRUNED, reason=Reason.PRUNED, message=running.control.message
        )

    study, _ = swept("pruned", run, trials=2, pruner={"name": "threshold", "lower": 0.5})
    first, _ = study.records()
    assert first.state is TrialState.PRUNED
    assert "0.1" in first.message


def test_a_frozen_trial_that_is_stopped_just_before_it_is_thawed_gets_no_slot(
    storage: RDBStorage, make_scheduler: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = small_settings("stopped-meanwhile", study={"trials": 2, "pruner": "auto"})
    study = Study.open(storage, settings)
    scheduler = make_scheduler(study, settings, can_freeze=True)
    begun = scheduler.next_trial()
    assert begun is not None
    _, running = begun
    running.control.on_freeze(lambda _: True)
    assert running.control.freeze()

    def thaw(_: PredictivePruner, curves: Curves, *, to_begin: int) -> int:
        running.control.stop(StopReason.INTERRUPTED)
        return 0

    monkeypatch.setattr(PredictivePruner, "thaw", thaw)
    begun = scheduler.next_trial()
    scheduler.close()
    assert begun is not None and begun[0].number == 1


def test_a_frozen_trial_is_stopped_if_the_storage_is_unavailable_when_the_next_trial_is_chosen(
    storage: RDBStorage, make_scheduler: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = small_settings("away", study={"trials": 2, "pruner": "auto"})
    study = Study.open(storage, settings)
    scheduler = make_scheduler(study, settings, jobs=1, can_freeze=True)
    begun = scheduler.next_trial()
    assert begun is not None
    _, running = begun
    running.control.on_freeze(lambda _: True)
    assert running.control.freeze()

    def is_away(*_: Any) -> NoReturn:
        raise StorageAwayError("the server does not answer")

    monkeypatch.setattr(PredictivePruner, "thaw", lambda *_, **__: None)
    monkeypatch.setattr(study, "ask", is_away)
    assert scheduler.next_trial() is None, "the only slot gets no further trial"
    scheduler.close()
    assert running.control.stop_reason is StopReason.INTERRUPTED


@pytest.mark.parametrize(("left_s", "begins"), [(59.0, False), (61.0, True)])
def test_a_frozen_trial_is_continued_if_the_time_left_is_too_short_for_a_new_trial(
    storage: RDBStorage,
    make_scheduler: Make,
    monkeypatch: pytest.MonkeyPatch,
    left_s: float,
    begins: bool,
) -> None:
    settings = small_settings(f"late{begins}", study={"trials": 5, "pruner": "auto"})
    study = Study.open(storage, settings)
    scheduler = make_scheduler(study, settings, can_freeze=True, time_left_s=lambda: left_s)
    begun = scheduler.next_trial()
    assert begun is not None
    scheduler.finish_trial(begun[0], replace(scored(*begun), duration_s=60.0))
    frozen = scheduler.next_trial()
    assert frozen is not None
    frozen[1].control.on_freeze(lambda _: True)
    assert frozen[1].control.freeze()

    def thaw(_: PredictivePruner, curves: Curves, *, to_begin: int) -> int | None:
        return None if to_begin else frozen[0].number

    monkeypatch.setattr(PredictivePruner, "thaw", thaw)
    chosen = scheduler.next_trial()
    scheduler.close()
    assert chosen is not None and chosen[0].number == (2 if begins else 1)


def test_a_trial_is_not_frozen_after_a_stop_because_its_slot_would_get_no_other_trial(
    storage: RDBStorage, make_scheduler: Make
) -> None:
    settings = small_settings("closed", study={"trials": 2, "pruner": "auto"})
    stop_switch = StopSwitch(Events())
    study = Study.open(storage, settings)
    scheduler = make_scheduler(study, settings, can_freeze=True, stop_switch=stop_switch)
    begun = scheduler.next_trial()
    assert begun is not None
    control = begun[1].control
    control.on_freeze(lambda _: True)
    stop_switch.close("Ctrl-C")
    assert not scheduler._act(Freeze(0))
    assert scheduler.next_trial() is None
    scheduler.close()
    assert (control.is_frozen, control.stop_reason) == (False, None), (
        "the trial continues until it completes"
    )


def test_an_error_of_the_sampler_ends_the_sweep_and_is_kept_as_the_reason(
    storage: RDBStorage, make_scheduler: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = small_settings("broken", study={"trials": 3})
    study = Study.open(storage, settings)
    ask = study.ask

    def ask_once(*arguments: Any) -> TrialRecord | None:
        if study.records():
            raise ValueError("a covariance that is not positive definite")
        return ask(*arguments)

    monkeypatch.setattr(study, "ask", ask_once)
    scheduler = make_scheduler(study, settings)
    InlineExecutor(scored).run(scheduler)
    scheduler.close()
    assert isinstance(scheduler.broken, ValueError)
    assert counts_of(study) == {TrialState.COMPLETED: 1}


def test_each_trial_is_told_how_many_trials_remain_after_all_free_slots_are_filled(
    storage: RDBStorage, make_scheduler: Make
) -> None:
    settings = small_settings("free", study={"trials": 3})
    scheduler = make_scheduler(Study.open(storage, settings), settings, jobs=2)

    def begin() -> tuple[TrialSpec, RunningTrial]:
        begun = scheduler.next_trial()
        assert begun is not None
        return begun

    (spec, first), (_, second) = begin(), begin()
    scheduler.finish_trial(spec, replace(scored(spec, first), duration_s=7.0))
    _, third = begin()
    scheduler.close()
    assert [running.trials_left for running in (first, second, third)] == [1, 1, 0]
    assert [running.usual_s for running in (first, second, third)] == [None, None, 7.0]


def test_the_first_trials_know_the_duration_of_the_observed_run_before_the_sweep(
    storage: RDBStorage, make_scheduler: Make
) -> None:
    def adopt(spec: TrialSpec, _: Any) -> TrialOutcome | None:
        time.sleep(0.2)
        return replace(scored(spec, RunningTrial()), duration_s=7.0) if spec.number == 0 else None

    settings = small_settings("adopting", study={"trials": 3})
    study = Study.open(storage, settings)
    scheduler = make_scheduler(study, settings, jobs=2, adopt=adopt)
    with ThreadPoolExecutor() as slots:
        begun = [slots.submit(scheduler.next_trial) for _ in range(2)]
    scheduler.close()
    given = [trial for slot in begun if (trial := slot.result()) is not None]
    assert [running.usual_s for _, running in given] == [7.0, 7.0]


def test_after_a_stop_the_predicted_time_left_includes_only_running_trials(
    storage: RDBStorage, make_scheduler: Make
) -> None:
    settings = small_settings("left", study={"trials": 20})
    study, stop_switch = Study.open(storage, settings), StopSwitch(Events())
    scheduler = make_scheduler(study, settings, jobs=1, stop_switch=stop_switch)
    first = scheduler.next_trial()
    assert first is not None
    scheduler.finish_trial(first[0], replace(scored(*first), duration_s=60.0))
    assert scheduler.next_trial() is not None
    assert (scheduler.snapshot().left_s or 0) > 1000
    stop_switch.close("Ctrl-C")
    assert (scheduler.snapshot().left_s or 0) <= 60
    scheduler.close()


def test_an_error_while_a_trial_begins_stops_the_others_and_is_kept_as_the_reason(
    storage: RDBStorage, make_scheduler: Make
) -> None:
    def adopt(spec: TrialSpec, _: object) -> None:
        if spec.number == 1:
            raise OSError("the run before the sweep cannot be read")

    settings = small_settings("begun", study={"trials": 3})
    study = Study.open(storage, settings)
    scheduler = make_scheduler(study, settings, adopt=adopt)
    first = scheduler.next_trial()
    assert first is not None
    assert scheduler.next_trial() is None
    scheduler.close()
    assert isinstance(scheduler.broken, OSError)
    assert first[1].control.stop_reason is StopReason.INTERRUPTED
    assert [record.state for record in study.records()] == [TrialState.RUNNING] * 2
