"""Every executor passes the contract. One of them sends its trials to other processes."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from studies import acting_workload

from sweeper.execution.executor import Executor
from sweeper.execution.local import LocalExecutor
from sweeper.machine.places import Places
from sweeper.testing import trial_spec
from sweeper.testing.executor_contract import ExecutorContract
from sweeper.trials import Reason, TrialOutcome, TrialState


@pytest.mark.kernel
class TestLocalExecutor(ExecutorContract):
    can_lose_workers = False

    def make(self, folder: Path, *, jobs: int) -> Executor:
        workload = acting_workload(folder, space={"act": ["complete", "report", "fail", "wait"]})
        assert pickle.loads(pickle.dumps(workload)).settings == workload.settings
        return LocalExecutor(workload, places=Places(), jobs=jobs)


def test_workloads_specs_and_outcomes_survive_pickling(tmp_path: Path) -> None:
    spec = trial_spec(3, params={"layers": [32, 64], "lr": float("inf")}, continues=tmp_path / "a")
    assert pickle.loads(pickle.dumps(spec)) == spec
    outcome = TrialOutcome(state=TrialState.FAILED, reason=Reason.NO_SCORE, scores={"val": 0.1})
    assert pickle.loads(pickle.dumps(outcome)) == outcome
