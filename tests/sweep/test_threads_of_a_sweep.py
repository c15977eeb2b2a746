"""No trial is lost if the interpreter switches between a sweep's threads as often as it can."""

from __future__ import annotations

import io
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pytest
from rich.console import Console
from studies import small_settings

from sweeper import Sweep
from sweeper.display import screen
from sweeper.execution.executor import TrialSource
from sweeper.execution.local import _Trials
from sweeper.machine.places import Places
from sweeper.notebook_api.messages import Point, StopReason
from sweeper.testing import write_notebook
from sweeper.trials import RunningTrial, TrialOutcome, TrialSpec, TrialState

TRIALS = 80
JOBS = 4
STEPS = 8


@pytest.fixture
def hurried_threads() -> Iterator[None]:
    """Let the interpreter switch between threads as often as it can."""
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval_s)


@dataclass
class FreezingExecutor:
    """An executor with slots, memory and frozen trials as on a machine, but without kernels."""

    jobs: int = JOBS
    description: ClassVar = ""
    can_freeze: ClassVar = True
    places: Places = field(default_factory=Places)
    begun: Counter[int] = field(default_factory=Counter)
    froze: Counter[int] = field(default_factory=Counter)

    def run(self, source: TrialSource) -> Sequence[str]:
        """Run the source's trials in the slots of this machine."""
        worker: Any = self
        with ThreadPoolExecutor(1000) as threads, ThreadPoolExecutor(self.jobs) as slots:
            trials = _Trials(worker, source, threads)
            for slot in [slots.submit(trials.serve) for _ in range(self.jobs)]:
                slot.result()
        return []

    def run_trial(self, spec: TrialSpec, running: RunningTrial) -> TrialOutcome:
        """Report a learning curve, and pause if the trial is frozen."""
        self.begun[spec.number] += 1
        may_run = threading.Event()
        may_run.set()

        def stand_still(is_still: bool) -> bool:
            self.froze[spec.number] += is_still
            if is_still:
                may_run.clear()
            else:
                may_run.set()
            return True

        level, series = float(str(spec.params["x"])), []
        with self.places.lease(spec, running):
            running.control.on_freeze(stand_still)
            try:
                for step in range(STEPS):
                    value = level * (1 - 0.5 ** (step + 1))
                    running.points.publish(Point(step=step, metrics={"val": value}))
                    series.append((step, value))
                    time.sleep(0.01)  # time for the rules to judge
                    assert may_run.wait(30)
                    if running.control.stop_reason is not None:
                        break
            finally:
                running.control.on_freeze(None)
        state = {None: TrialState.COMPLETED, StopReason.PRUNED: TrialState.PRUNED}
        return TrialOutcome(
            state=state.get(running.control.stop_reason, TrialState.STOPPED),
            scores={"val": series[-1][1]},
            series={"val": series},
        )


@pytest.mark.slow
def test_no_trial_is_lost_or_run_twice_however_threads_are_interleaved(
    tmp_path: Path, hurried_threads: None
) -> None:
    executor = FreezingExecutor()
    notebook = write_notebook(tmp_path / "nb.ipynb", "val = x")
    sweep = Sweep.from_settings(
        small_settings("threads", study={"trials": TRIALS, "pruner": "auto"}),
        notebook=notebook,
        output=f"{tmp_path}/out/{{run_id}}.ipynb",
        jobs=JOBS,
        executor=lambda _: executor,
    )
    is_over, drawn = threading.Event(), Counter[str]()

    def draw() -> None:
        console = Console(file=io.StringIO(), width=80)
        while not is_over.is_set():
            snapshot = sweep.snapshot()
            if snapshot is not None:
                console.print(screen.table(snapshot, 80, 24))
                drawn["frames"] += 1

    with ThreadPoolExecutor(1) as threads:
        screen_thread = threads.submit(draw)
        try:
            result = sweep.run()
        finally:
            is_over.set()
        screen_thread.result()
    assert executor.begun == dict.fromkeys(range(TRIALS), 1)
    ended = {TrialState.COMPLETED, TrialState.PRUNED}
    assert [record.number for record in result.records] == list(range(TRIALS))
    assert {record.state for record in result.records} <= ended
    assert len(result.mlflow_run_ids) == TRIALS
    assert drawn["frames"] > 10
