"""A slot that waits for an earlier trial, because the order of trials is fixed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from optuna.storages import RDBStorage
from studies import PATIENCE_S, small_settings, until

from sweeper.study import Study
from sweeper.sweep.scheduling.next_end import NextEnd
from sweeper.sweep.scheduling.scheduler import TrialScheduler
from sweeper.sweep.stop_switch import StopSwitch
from sweeper.trials import Reason, TrialOutcome, TrialState

COMPLETED = TrialOutcome(state=TrialState.COMPLETED, scores={"val": 0.5})
LOST = TrialOutcome(state=TrialState.STOPPED, reason=Reason.WORKER_LOST)


@pytest.mark.slow  # MLflow is imported
def test_a_slot_that_waits_goes_on_with_an_end_with_a_trial_that_is_run_again_and_with_a_stop(
    storage: RDBStorage, make_scheduler: Callable[..., TrialScheduler]
) -> None:
    settings = small_settings("waits", study={"order": "fixed"})
    study, stop_switch = Study.open(storage, settings), StopSwitch()
    assert study.keep_order(3) == 3
    scheduler = make_scheduler(study, settings, stop_switch=stop_switch)
    specs = [given[0] for _ in range(3) if (given := scheduler.next_trial()) is not None]
    with ThreadPoolExecutor(1) as slot:

        def waits() -> Future[Any]:
            """A slot that has asked for a trial and got none so far."""
            asked = slot.submit(scheduler.next_trial)
            until(scheduler._asking.locked)
            threading.Event().wait(0.1)
            assert not asked.done()
            return asked

        asked = waits()
        scheduler.finish_trial(specs[2], COMPLETED)  # trial 3 does not consider its end
        threading.Event().wait(0.1)
        assert not asked.done()
        scheduler.finish_trial(specs[0], LOST)
        again, _ = asked.result(PATIENCE_S)
        assert (again.number, again.attempt) == (0, 2)
        asked = waits()
        scheduler.finish_trial(again, COMPLETED)
        assert asked.result(PATIENCE_S)[0].number == 3
        asked = waits()
        stop_switch.close("--timeout")
        assert asked.result(PATIENCE_S) is None
    scheduler.close()
    assert scheduler.stopped_by == "--timeout"


def test_ends_that_nobody_waited_for_cost_the_next_wait_one_look() -> None:
    next_end = NextEnd(StopSwitch())
    for _ in range(1000):
        next_end.announce()
    assert next_end.wait()
    waits = threading.Thread(target=next_end.wait, daemon=True)
    waits.start()
    waits.join(0.1)
    assert waits.is_alive()
    next_end.announce()
    waits.join(PATIENCE_S)
    assert not waits.is_alive()
