"""Running trials that the pruner judges."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Any

import pytest
from optuna.storages import RDBStorage
from studies import small_settings, until

from sweeper.notebook_api.messages import Point, StopReason
from sweeper.study import SamplerFactory, Study
from sweeper.sweep.scheduling.pruning import PruningThread
from sweeper.trials import RunningTrial


def test_the_thread_ends_with_the_sweep(storage: RDBStorage) -> None:
    pruned = small_settings("judged", study={"pruner": {"name": "threshold", "lower": 0.5}})
    study = Study.open(storage, pruned)
    record = study.ask(SamplerFactory(pruned), lambda n: Path(f"{n}.ipynb"))
    assert record is not None
    before = threading.active_count()
    pruning = PruningThread(study, pruned)
    running = RunningTrial()
    pruning.consider(0, Point(step=0, metrics={"val": 0.1}), running)
    until(lambda: running.stop_reason is StopReason.PRUNED)
    pruning.close()
    assert threading.active_count() == before


def test_a_pruner_that_fails_is_logged_once_and_ends_no_trial(
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
    caplog.set_level(logging.WARNING, logger="sweeper.sweep.scheduling.pruning")
    pruning, running = PruningThread(study, pruned), RunningTrial()
    for step in range(3):
        pruning.consider(0, Point(step=step, metrics={"val": 0.1}), running)
    until(lambda: steps == [0, 1, 2])
    pruning.close()
    (record,) = [r for r in caplog.records if r.levelno >= logging.WARNING]
    assert not record.exc_info, "a traceback is for -v"
    assert "could not judge trial 0000 at step 0 (MemoryError: MemoryError)" in record.getMessage()
    assert running.stop_reason is None
