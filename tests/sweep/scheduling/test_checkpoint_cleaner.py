"""Checkpoints of ended trials that are removed while a sweep runs."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from optuna.storages import RDBStorage
from studies import PATIENCE_S, small_settings, until

from sweeper.study.study import Study
from sweeper.sweep.scheduling.scheduler import TrialScheduler
from sweeper.trials import TrialOutcome, TrialRecord, TrialState


class Ending(Study):
    """A study in which another trial ends while it is asked for the best one."""

    meanwhile: Callable[[], None] | None = None

    def best(self) -> list[TrialRecord]:
        best = super().best()
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
        return best


def completed(val: float) -> TrialOutcome:
    return TrialOutcome(state=TrialState.COMPLETED, scores={"val": val})


def make_checkpoints(scheduler: TrialScheduler) -> Any:
    trial = scheduler.next_trial()
    assert trial is not None
    spec, _ = trial
    spec.checkpoint_dir.mkdir(parents=True)
    (spec.checkpoint_dir / "000001.ckpt").write_bytes(b"x" * 1000)
    return spec


@pytest.mark.slow  # MLflow makes its tables
def test_of_two_trials_that_end_together_the_better_one_keeps_its_checkpoints(
    storage: RDBStorage, make_scheduler: Callable[..., TrialScheduler]
) -> None:
    read = small_settings("together", checkpoints={"completed": "best"})
    study = Ending.open(storage, read)
    assert isinstance(study, Ending)
    scheduler = make_scheduler(study, read)
    good, better = make_checkpoints(scheduler), make_checkpoints(scheduler)
    ends = threading.Thread(target=scheduler.finish_trial, args=[better, completed(2.0)])

    def end_another() -> None:
        ends.start()
        until(lambda: study.records()[1].state is TrialState.COMPLETED)
        time.sleep(0.05)

    study.meanwhile = end_another
    scheduler.finish_trial(good, completed(1.0))
    ends.join(PATIENCE_S)
    scheduler.close()
    assert better.checkpoint_dir.is_dir()
    assert not good.checkpoint_dir.exists()


@pytest.mark.slow  # likewise
def test_whatever_happens_in_cleaning_costs_no_trial(
    storage: RDBStorage,
    make_scheduler: Callable[..., TrialScheduler],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    read = small_settings("unclean", checkpoints={"completed": "best"})
    study = Study.open(storage, read)
    scheduler = make_scheduler(study, read)
    specs = [make_checkpoints(scheduler), make_checkpoints(scheduler)]

    def fails(*_: Any, **__: Any) -> None:
        raise MemoryError

    monkeypatch.setattr("sweeper.sweep.scheduling.checkpoint_cleaner.clean", fails)
    caplog.set_level(logging.WARNING, logger="sweeper.sweep.scheduling.checkpoint_cleaner")
    for spec in specs:
        scheduler.finish_trial(spec, completed(1.0))
    scheduler.close()
    assert scheduler.broken is None
    assert [record.state for record in study.records()] == [TrialState.COMPLETED] * 2
    (record,) = [r for r in caplog.records if r.levelno >= logging.WARNING]
    assert "checkpoints could not be removed: MemoryError" in record.getMessage()
