"""Test the executor of this machine, and that trials can be sent to other processes."""

from __future__ import annotations

import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from studies import acting_workload, until

from sweeper.execution.executor import Executor
from sweeper.execution.local import LocalExecutor, _Trials
from sweeper.machine.places import Places
from sweeper.notebook_api.messages import StopReason
from sweeper.testing import trial_spec
from sweeper.testing.executor_contract import ExecutorContract
from sweeper.trials import Phase, Reason, RunningTrial, TrialOutcome, TrialSpec, TrialState


@pytest.mark.kernel
class TestLocalExecutor(ExecutorContract):
    can_lose_workers = False

    def make(self, folder: Path, *, jobs: int) -> Executor:
        workload = acting_workload(folder, space={"act": ["complete", "report", "fail", "wait"]})
        assert pickle.loads(pickle.dumps(workload)).settings == workload.settings
        return LocalExecutor(workload, places=Places(), jobs=jobs)


def test_trial_specs_and_outcomes_are_equal_after_pickling(tmp_path: Path) -> None:
    spec = trial_spec(3, params={"layers": [32, 64], "lr": float("inf")}, continues=tmp_path / "a")
    assert pickle.loads(pickle.dumps(spec)) == spec
    outcome = TrialOutcome(state=TrialState.FAILED, reason=Reason.NO_SCORE, scores={"val": 0.1})
    assert pickle.loads(pickle.dumps(outcome)) == outcome


class OneTrial:
    """Gives one trial to an executor, and runs it. The trial is frozen until `may_end` is set."""

    def __init__(self) -> None:
        self.running, self.may_end = RunningTrial(), threading.Event()
        self._given = iter([(trial_spec(), self.running)])

    def next_trial(self) -> tuple[TrialSpec, RunningTrial] | None:
        return next(self._given, None)

    def run_trial(self, spec: TrialSpec, running: RunningTrial) -> TrialOutcome:
        running.control.on_freeze(lambda _: True)
        assert running.control.freeze()
        self.may_end.wait()
        return TrialOutcome(state=TrialState.PRUNED)

    def finish_trial(self, spec: TrialSpec, outcome: TrialOutcome) -> None:
        """Record nothing."""


def test_a_slot_asks_once_more_for_a_trial_if_a_frozen_trial_ended_without_a_slot() -> None:
    one: Any = OneTrial()
    with ThreadPoolExecutor(1) as threads:
        trials = _Trials(one, one, threads)
        trials.serve()
        assert list(trials._begun) == [one.running]
        one.running.control.stop(StopReason.PRUNED)
        one.may_end.set()
        until(lambda: not trials._begun)
        assert one.running.control.phase is Phase.ENDED
        assert not trials.all_ended_in_slots(), (
            "the frozen trial ended without a slot, so it may have to run again"
        )
        assert trials.all_ended_in_slots()
