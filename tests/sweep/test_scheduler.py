"""The loop and the threads beside it, over a real study."""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from optuna.storages import RDBStorage

from sweeper.notebook_api.messages import Point, StopReason
from sweeper.settings import Settings
from sweeper.settings.sections import Cost
from sweeper.study import SamplerFactory, Study
from sweeper.sweep.pruning import ProposalPrefetcher, PruningThread
from sweeper.sweep.scheduler import TrialScheduler
from sweeper.sweep.spending import Spending
from sweeper.sweep.stop_switch import StopSwitch
from sweeper.tracking import Tracker
from sweeper.trials import Events, RunningTrial, StudyPaths, TrialOutcome, TrialRecord, TrialState


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> RDBStorage:
    return RDBStorage(f"sqlite:///{tmp_path_factory.mktemp('storage') / 'study.db'}")


def settings(name: str, **changes: Any) -> Settings:
    data = {"objective": {"val": "maximize"}, "space": {"x": {"low": 0.0, "high": 1.0}}, **changes}
    study = {"name": name, "trials": 9, "sampler": "random", **data.get("study", {})}
    return Settings.from_mapping({**data, "study": study})


def until(holds: Callable[[], object], limit_s: float = 20.0) -> None:
    deadline = time.monotonic() + limit_s
    while not holds():
        assert time.monotonic() < deadline, "it has not happened"
        time.sleep(0.002)


# --- beside the trials ---------------------------------------------------------------------------


def test_closing_never_waits_for_a_wish_that_got_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    clear = threading.Event.clear

    def clear_late(event: threading.Event) -> None:
        time.sleep(0.02)  # a thread may be put aside at any moment, also before it clears an event
        clear(event)

    monkeypatch.setattr(threading.Event, "clear", clear_late)
    for n in range(50):
        ahead = ProposalPrefetcher(lambda: None)
        ahead.want()
        time.sleep(n * 1e-5)
        closing = threading.Thread(target=ahead.close, daemon=True)
        closing.start()
        closing.join(10)
        assert not closing.is_alive(), "it waits for a wake-up that has come and gone"


def test_each_wish_is_followed_by_a_proposal_and_none_comes_after_the_end() -> None:
    made: list[int] = []
    ahead = ProposalPrefetcher(lambda: made.append(1))
    for n in range(1, 4):
        ahead.want()
        until(lambda n=n: len(made) == n)  # type: ignore[misc]
    ahead.close()
    ahead.want()
    assert len(made) == 3


def test_the_judge_ends_with_the_sweep(storage: RDBStorage) -> None:
    pruned = settings("judged", study={"pruner": {"name": "threshold", "lower": 0.5}})
    study = Study.open(storage, pruned)
    record = study.ask(pruned, SamplerFactory(pruned), lambda n: Path(f"{n}.ipynb"))
    assert record is not None
    before = threading.active_count()
    judge = PruningThread(study, pruned)
    channel = RunningTrial()
    judge.hear(0, Point(step=0, metrics={"val": 0.1}), channel)
    until(lambda: channel.stop_reason is StopReason.PRUNED)
    judge.close()
    assert threading.active_count() == before


def test_a_pruner_that_fails_is_told_of_once_and_ends_no_trial(
    storage: RDBStorage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pruned = settings("misjudged", study={"pruner": {"name": "threshold", "lower": 0.5}})
    study = Study.open(storage, pruned)
    assert study.ask(pruned, SamplerFactory(pruned), lambda n: Path(f"{n}.ipynb")) is not None
    steps: list[int] = []

    def fails(_number: int, step: int, *_: Any) -> None:
        steps.append(step)
        raise MemoryError

    monkeypatch.setattr(study, "report", fails)
    caplog.set_level(logging.WARNING, logger="sweeper.sweep.pruning")
    judge, channel = PruningThread(study, pruned), RunningTrial()
    for step in range(3):
        judge.hear(0, Point(step=step, metrics={"val": 0.1}), channel)
    until(lambda: steps == [0, 1, 2])
    judge.close()
    (record,) = [r for r in caplog.records if r.levelno >= logging.WARNING]
    assert not record.exc_info, "a traceback is for -v"
    assert "could not judge trial 0000 at step 0 (MemoryError: MemoryError)" in record.getMessage()
    assert channel.stop_reason is None


# --- stops --------------------------------------------------------------------------------------


def test_a_trial_that_is_to_be_stopped_before_it_has_begun_is_stopped_as_it_begins() -> None:
    stop_switch = StopSwitch()
    stop_switch.stop(3, "stopped by the command stop")
    others, wanted = RunningTrial(), RunningTrial()
    stop_switch.enter(2, others)
    stop_switch.enter(3, wanted)
    assert others.stop_reason is None
    assert (wanted.stop_reason, wanted.message) == (
        StopReason.BY_HAND,
        "stopped by the command stop",
    )


_STOPPED_MEANWHILE = """
import signal
from sweeper.sweep.stop_switch import StopSwitch
from sweeper.trials import RunningTrial

class Interrupted(RunningTrial):
    def __setattr__(self, name, value):
        super().__setattr__(name, value)
        if name == "_stop_reason" and value is not None:
            signal.raise_signal(signal.SIGTERM)

stop_switch = StopSwitch()
signal.signal(signal.SIGTERM, lambda *_: stop_switch.stop_all("a signal"))
stop_switch.enter(0, Interrupted(lambda _: None))
stop_switch.stop_all("the end")
"""


def test_a_signal_may_stop_the_trial_that_is_just_being_stopped() -> None:
    # In a process of its own: one that waits for itself could not be ended here.
    subprocess.run([sys.executable, "-c", _STOPPED_MEANWHILE], check=True, timeout=30)


# --- time that was spent -------------------------------------------------------------------------


def test_time_is_written_down_while_a_sweep_runs_and_counted_once(
    storage: RDBStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sweeper.sweep.spending._SAVE_S", 60.0)
    monkeypatch.setattr("sweeper.sweep.spending._PAUSE_S", 0.0)
    named, cost = settings("spent"), Cost(price_per_hour=3600.0, budget=100.0)
    study = Study.open(storage, named)
    first = Spending(study, cost, since=time.monotonic() - 10)

    def written_s() -> float:
        return Study.load(str(storage.url), "spent").spent_s

    with first.written_down():
        until(lambda: 10 <= written_s() < 20)
        before_s = written_s()
        first.trial_ended()
        until(lambda: written_s() > before_s)
        assert first.cost == pytest.approx(first.spent_s, abs=1)
    total_s = written_s()
    assert before_s < total_s < 30
    second = Spending(Study.open(storage, named), cost, since=time.monotonic() - 20)
    assert second.spent_s == pytest.approx(total_s + 20, abs=2)
    assert second.left_s == pytest.approx(80 - total_s, abs=2)
    assert Spending(study, None, since=time.monotonic()).left_s is None


@pytest.mark.slow  # it imports Optuna anew
def test_what_a_sweep_has_spent_survives_its_kill(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'study.db'}"
    code = (
        "import sys, time; from sweeper.settings import Settings; from sweeper.study import Study;"
        "from sweeper.sweep.spending import Spending;"
        "data = {'objective': {'val': 'maximize'}, 'space': {'x': [1, 2]}, 'study': {'name': 'k'}};"
        "study = Study.open(sys.argv[1], Settings.from_mapping(data));"
        "spending = Spending(study, None, since=time.monotonic() - 7);\n"
        "with spending.written_down():\n"
        "    time.sleep(1.5); spending.trial_ended(); print('ended', flush=True); time.sleep(60)"
    )
    sweep = subprocess.Popen([sys.executable, "-c", code, url], stdout=subprocess.PIPE)
    assert sweep.stdout is not None
    assert sweep.stdout.readline()
    until(lambda: Study.load(url, "k").spent_s > 8.5)
    sweep.send_signal(signal.SIGKILL)
    sweep.wait()
    sweep.stdout.close()
    assert 8.5 < Study.load(url, "k").spent_s < 30


# --- checkpoints that are cleaned ----------------------------------------------------------------


class Ending(Study):
    """A study in which another trial ends while it is asked for the best one."""

    meanwhile: Callable[[], None] | None = None

    def best(self) -> list[TrialRecord]:
        best = super().best()
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
        return best


@pytest.fixture(scope="module")
def tracker(tmp_path_factory: pytest.TempPathFactory) -> Tracker:
    folder = tmp_path_factory.mktemp("tracked")
    return Tracker.open(
        None, study="s", study_id="1", embedded=folder / "mlflow.db", artifacts=folder / "artifacts"
    )


def begun(study: Study, told: Settings, tracker: Tracker, folder: Path) -> TrialScheduler:
    return TrialScheduler(
        settings=told,
        samplers=SamplerFactory(told),
        paths=StudyPaths.parse(f"{folder}/{{study}}.{{run_id}}.ipynb", study=told.name),
        study=study,
        tracker=tracker,
        tags={},
        stop_switch=StopSwitch(),
        events=Events(None),
        spending=Spending(study, None, since=time.monotonic()),
        jobs=2,
    )


def completed(val: float) -> TrialOutcome:
    return TrialOutcome(state=TrialState.COMPLETED, scores={"val": val})


def make_checkpoints(loop: TrialScheduler) -> Any:
    given = loop.next()
    assert given is not None
    spec, _ = given
    spec.checkpoint_dir.mkdir(parents=True)
    (spec.checkpoint_dir / "000001.ckpt").write_bytes(b"x" * 1000)
    return spec


@pytest.mark.slow  # MLflow makes its tables
def test_of_two_trials_that_end_together_the_better_one_keeps_its_checkpoints(
    storage: RDBStorage, tracker: Tracker, tmp_path: Path
) -> None:
    told = settings("together", checkpoints={"completed": "best"})
    study = Ending.open(storage, told)
    assert isinstance(study, Ending)
    loop = begun(study, told, tracker, tmp_path)
    good, better = make_checkpoints(loop), make_checkpoints(loop)
    ends = threading.Thread(target=loop.done, args=[better, completed(2.0)])

    def end_another() -> None:
        ends.start()
        until(lambda: study.records()[1].state is TrialState.COMPLETED)
        time.sleep(0.05)

    study.meanwhile = end_another
    loop.done(good, completed(1.0))
    ends.join(20)
    loop.close()
    assert better.checkpoint_dir.is_dir()
    assert not good.checkpoint_dir.exists()


@pytest.mark.slow  # likewise
def test_whatever_happens_in_cleaning_costs_no_trial(
    storage: RDBStorage,
    tracker: Tracker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    told = settings("unclean", checkpoints={"completed": "best"})
    study = Study.open(storage, told)
    loop = begun(study, told, tracker, tmp_path)
    specs = [make_checkpoints(loop), make_checkpoints(loop)]

    def fails(*_: Any, **__: Any) -> None:
        raise MemoryError

    monkeypatch.setattr("sweeper.sweep.scheduler.clean", fails)
    caplog.set_level(logging.WARNING, logger="sweeper.sweep.scheduler")
    for spec in specs:
        loop.done(spec, completed(1.0))
    loop.close()
    assert loop.broken is None
    assert [record.state for record in study.records()] == [TrialState.COMPLETED] * 2
    (record,) = caplog.records
    assert "checkpoints could not be removed: MemoryError" in record.getMessage()
    tracker._queue.put(None)
    tracker._thread.join(30)
    assert sorted(tracker.mlflow_run_ids) == ["0000", "0001"]
