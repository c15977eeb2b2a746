"""Stop rules judge running trials, and an error of a rule ends no trial."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

import pytest
from optuna.storages import RDBStorage
from studies import small_settings, until

from sweeper.notebook_api.messages import Point, StopReason
from sweeper.search.pruners import Curves, PredictivePruner, Verdict, make_pruner
from sweeper.search.samplers import SamplerFactory
from sweeper.study.study import Study
from sweeper.sweep.scheduling.decisions import Decision, Freeze, Prune, TakeOff
from sweeper.sweep.scheduling.freezing import Freezer
from sweeper.sweep.scheduling.stop_rules import PruneRule, StopRules
from sweeper.trials import Blocked, Machine, RunningTrial


def test_a_stop_rule_that_raises_an_error_is_logged_once_and_ends_no_trial(
    storage: RDBStorage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pruned = small_settings("misjudged", study={"pruner": {"name": "threshold", "lower": 0.5}})
    study = Study.open(storage, pruned)
    assert study.ask(SamplerFactory(pruned), lambda n: Path(f"{n}.ipynb")) is not None
    steps: list[int] = []

    def fails(_number: int, step: int, _value: float) -> None:
        steps.append(step)
        raise MemoryError

    monkeypatch.setattr(study, "note_report", fails)
    caplog.set_level(logging.WARNING, logger="sweeper.sweep.scheduling.stop_rules")
    decided: list[Decision] = []
    rules = StopRules(
        study,
        [PruneRule(study, make_pruner(pruned))],
        objective="val",
        act=decided.append,
        lock=threading.RLock(),
    )
    for step in range(3):
        rules.consider(0, Point(step=step, metrics={"val": 0.1}))
    until(lambda: steps == [0, 1, 2])
    rules.close()
    (record,) = [r for r in caplog.records if r.levelno >= logging.WARNING]
    assert not record.exc_info, "the warning has a traceback, which is for -v only"
    assert all(part in record.getMessage() for part in ("trial 0000", "step 0", "MemoryError"))
    assert decided == []


class Freezes(PredictivePruner):
    """A rule that freezes each trial that reports, and thaws none."""

    def judge(self, curves: Curves, number: int, *, to_begin: int) -> Verdict:
        return Verdict.FREEZE

    def thaw(self, curves: Curves, *, to_begin: int) -> None:
        return None


@pytest.fixture
def running() -> dict[int, RunningTrial]:
    """Two trials that have a kernel. The first one is frozen."""
    trials = {n: RunningTrial() for n in range(2)}
    for trial in trials.values():
        trial.control.on_freeze(lambda _: True)
    assert trials[0].control.freeze()
    return trials


@pytest.fixture
def freezer(
    storage: RDBStorage, running: dict[int, RunningTrial], request: pytest.FixtureRequest
) -> Freezer:
    settings = small_settings(f"judged {abs(hash(request.node.nodeid))}", study={"pruner": "auto"})
    study, samplers = Study.open(storage, settings), SamplerFactory(settings)
    for number in running:
        assert study.ask(samplers, lambda n: Path(f"{n}.ipynb")) is not None
        study.note_report(number, 0, 0.5)
    return Freezer(study, Freezes(), running=lambda: running, to_begin=lambda: 0)


def test_a_frozen_trial_is_pruned_if_its_resources_keep_another_trial_from_beginning(
    freezer: Freezer, running: dict[int, RunningTrial]
) -> None:
    assert freezer.judge(0) is None, "trial 0 is frozen already"
    assert freezer.judge(1) == Freeze(1)
    blocked = Blocked(by=[running[0].control])
    running[1].control.note_machine(Machine(blocked=lambda: blocked))
    decision = freezer.judge(1)
    assert isinstance(decision, Prune) and decision.number == 0
    assert "step 0, where it was frozen" in decision.message
    assert freezer.make_room(blocked) == decision
    assert freezer.make_room(Blocked()) is None, "no frozen trial is in the way"
    assert running[0].control.stop_reason is None, "the decision itself stops no trial"


def test_no_second_frozen_trial_is_pruned_to_free_memory_while_the_first_one_is_ending(
    freezer: Freezer, running: dict[int, RunningTrial]
) -> None:
    assert running[1].control.freeze()
    both = Blocked(by=[trial.control for trial in running.values()])
    assert isinstance(freezer.make_room(both), Prune)
    running[0].control.stop(StopReason.PRUNED)
    assert freezer.make_room(both) is None


def test_a_frozen_trial_leaves_its_gpu_if_only_gpu_memory_is_missing_and_is_pruned_otherwise(
    freezer: Freezer, running: dict[int, RunningTrial]
) -> None:
    control = running[0].control
    control.note_machine(Machine(can_leave_gpu=lambda: True, leave_gpu=lambda: True))
    blocked = Blocked(by=[control], lacks_gpu=True)
    assert freezer.make_room(blocked) == TakeOff(0)
    assert isinstance(freezer.make_room(Blocked(by=[control])), Prune)
    assert control.leave_gpu()
    assert freezer.make_room(blocked) is None, "the frozen trial has left its GPU already"
    assert isinstance(freezer.make_room(Blocked(by=[control])), Prune)


@pytest.mark.parametrize("is_left", [False, True])
def test_a_trial_without_a_kernel_is_not_counted_as_running_when_a_frozen_one_is_thawed(
    freezer: Freezer, monkeypatch: pytest.MonkeyPatch, is_left: bool
) -> None:
    """A trial has no kernel if it was proposed ahead, or if a killed sweep left it as running."""
    study, samplers = freezer._study, SamplerFactory(small_settings("any"))
    if is_left:
        assert study.ask(samplers, lambda n: Path(f"{n}.ipynb")) is not None
        study.note_report(2, 0, 0.5)
    else:
        study.prepare(samplers)
    seen: list[Curves] = []
    monkeypatch.setattr(Freezes, "thaw", lambda _, curves, *, to_begin: seen.append(curves))
    freezer.fill_slot(has_begun_all=False)
    assert {number: curve.state for number, curve in seen[0].by_number.items()} == {
        0: "frozen",
        1: "running",
    }
    assert freezer.judge(2) is None, "trial 2 has no kernel"


def test_frozen_trials_are_pruned_when_no_trial_runs_and_none_is_left_to_begin(
    freezer: Freezer, running: dict[int, RunningTrial]
) -> None:
    assert freezer.fill_slot(has_begun_all=True) == []
    assert running[1].control.freeze()
    assert freezer.fill_slot(has_begun_all=False) == []
    assert {decision.number for decision in freezer.fill_slot(has_begun_all=True)} == {0, 1}
