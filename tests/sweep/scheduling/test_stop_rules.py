"""Running trials that rules judge."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from optuna.storages import RDBStorage
from studies import small_settings, until

from sweeper.notebook_api.messages import Point, StopReason
from sweeper.search.pruners import Curves, Outlook, PredictivePruner
from sweeper.search.samplers import SamplerFactory
from sweeper.study.study import Study
from sweeper.sweep.scheduling.freezing import Freezer
from sweeper.sweep.scheduling.stop_rules import StopRules
from sweeper.trials import RunningTrial


def test_a_rule_that_fails_is_logged_once_and_ends_no_trial(
    storage: RDBStorage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pruned = small_settings("misjudged", study={"pruner": {"name": "threshold", "lower": 0.5}})
    study = Study.open(storage, pruned)
    assert study.ask(SamplerFactory(pruned), lambda n: Path(f"{n}.ipynb")) is not None
    steps: list[int] = []

    def fails(_number: int, step: int, *_: Any) -> None:
        steps.append(step)
        raise MemoryError

    monkeypatch.setattr(study, "report", fails)
    caplog.set_level(logging.WARNING, logger="sweeper.sweep.scheduling.stop_rules")
    rules, running = StopRules(study, pruned), RunningTrial()
    for step in range(3):
        rules.consider(0, Point(step=step, metrics={"val": 0.1}), running)
    until(lambda: steps == [0, 1, 2])
    rules.close()
    (record,) = [r for r in caplog.records if r.levelno >= logging.WARNING]
    assert not record.exc_info, "a traceback is for -v"
    assert (
        "trial 0000 could not be judged at step 0 (MemoryError: MemoryError)" in record.getMessage()
    )
    assert running.stop_reason is None


class Interrupted(PredictivePruner):
    """Something else stops a trial while it is judged."""

    def __init__(self, stopped: RunningTrial) -> None:
        super().__init__()
        self.stopped = stopped

    def order(self, curves: Curves) -> Sequence[Outlook]:
        found = super().order(curves)
        self.stopped.stop(StopReason.INTERRUPTED)
        return found

    def thaw(self, curves: Curves, *, to_begin: int) -> int | None:
        self.stopped.stop(StopReason.INTERRUPTED)
        return 0


@pytest.mark.parametrize("act", [Freezer.make_room, Freezer.thaw, Freezer.end])
def test_a_frozen_trial_that_is_stopped_meanwhile_is_left_alone(
    storage: RDBStorage, act: Callable[[Freezer], object]
) -> None:
    settings = small_settings(f"judged-{act.__name__}", study={"pruner": "auto"})
    study, trial = Study.open(storage, settings), RunningTrial()
    assert study.ask(SamplerFactory(settings), lambda n: Path(f"{n}.ipynb")) is not None
    study.note_report(0, 0, 0.5)
    freezer = Freezer(
        study,
        Interrupted(trial),
        "val",
        running=lambda: {0: trial},
        note=lambda *_: None,
        to_begin=lambda: 0,
    )
    trial.on_freeze(lambda _: True)
    assert trial.freeze()
    assert act(freezer) is None
    assert trial.stop_reason is StopReason.INTERRUPTED


def test_a_frozen_trial_is_pruned_for_want_of_room_and_for_nothing_else(
    storage: RDBStorage,
) -> None:
    settings = small_settings("crowded", study={"pruner": "auto"})
    study, samplers = Study.open(storage, settings), SamplerFactory(settings)
    running = {n: RunningTrial() for n in range(2)}
    for number in running:
        assert study.ask(samplers, lambda n: Path(f"{n}.ipynb")) is not None
        study.note_report(number, 0, 0.5)
    freezer = Freezer(
        study,
        PredictivePruner(),
        "val",
        running=lambda: running,
        note=lambda *_: None,
        to_begin=lambda: 3,
    )
    running[0].on_freeze(lambda _: True)
    assert running[0].freeze()
    freezer._freeze(1)  # it has no kernel yet
    assert running[0].stop_reason is None
    running[1].has_room = lambda: False
    freezer._freeze(1)
    assert running[0].stop_reason is StopReason.PRUNED
