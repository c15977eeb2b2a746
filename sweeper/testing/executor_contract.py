"""Tests that every executor must pass. To use them, derive a class from `ExecutorContract`.

The trials of these tests run a notebook with the cell `ACTING_CELL`. The param `act` says what the
cell does. With `lose`, the cell kills the trial's worker, which is the process that started the
kernel: the kernel's parent.

If your executor can lose workers, run the notebook with `kernels: cold`, which forks no kernels,
because the parent of a forked kernel is not the worker. The workers must run on this machine: the
tests kill them by their process ids.
"""

from __future__ import annotations

import os
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from ..execution.executor import Executor
from ..execution.side_trials import SideTrials
from ..notebook_api.messages import Point, StopReason
from ..trials import Reason, RunningTrial, TrialOutcome, TrialSpec, TrialState
from .builders import trial_spec

#: A trial that waits to be stopped gives up after this many seconds.
_LONG_S = 60.0
#: Name of the score that holds the process id of a trial's worker. Tests kill the worker by it.
WORKER_PID = "worker_pid"

ACTING_CELL = f"""
import os, signal, sweeper, time
worker_pid = os.getppid()
if act == "lose":
    os.kill(worker_pid, signal.SIGKILL)
    time.sleep({_LONG_S})
elif act == "report":
    for step in range(3):
        sweeper.report(step, val=step)
elif act == "fail":
    raise ValueError("as asked")
elif act == "wait":
    end_s, step = time.monotonic() + {_LONG_S}, 0
    while time.monotonic() < end_s:
        sweeper.report(step, val=0.0, {WORKER_PID}=worker_pid)
        step += 1
        time.sleep(0.05)
sweeper.score(val=3.0, {WORKER_PID}=worker_pid)
"""


class ListedTrials(SideTrials):
    """Gives an executor the trials of a list, and keeps their points (reports) and outcomes.

    Args:
        specs: Specs of the trials.
        on_point: Called with a trial after each of its points.
        on_end: Called with each trial that has ended, before its slot gets another trial.

    Attributes:
        outcomes: Outcomes of the trials, by trial number.
        points: Points of the trials in the order of their arrival, by trial number.
        reasons: Reasons with which the executor has called `stop`. Empty if it has not called it.
    """

    def __init__(
        self,
        specs: Sequence[TrialSpec],
        *,
        on_point: Callable[[TrialSpec, RunningTrial], None] | None = None,
        on_end: Callable[[TrialSpec, TrialOutcome], None] | None = None,
    ) -> None:
        self.outcomes: dict[int, TrialOutcome] = {}
        self.points: dict[int, list[Point]] = {spec.number: [] for spec in specs}
        self.reasons: list[str] = []

        def begin(spec: TrialSpec, running: RunningTrial) -> None:
            def keep(point: Point) -> None:
                assert spec.number not in self.outcomes, "a point came after its trial's outcome"
                self.points[spec.number].append(point)
                if on_point is not None:
                    on_point(spec, running)

            running.points.subscribe(keep)

        def end(spec: TrialSpec, outcome: TrialOutcome) -> bool:
            assert spec.number not in self.outcomes, "a trial has ended twice"
            self.outcomes[spec.number] = outcome
            if on_end is not None:
                on_end(spec, outcome)
            return True

        super().__init__(specs, begin=begin, end=end)

    def is_closed(self) -> bool:
        """Return whether the executor has called `stop`."""
        return bool(self.reasons)

    def stop(self, reason: str) -> None:
        """Stop the running trials, give out no more, and keep the reason in `reasons`."""
        self.reasons.append(reason)
        super().stop(reason)

    @property
    def states(self) -> list[str]:
        """States of the trials that have ended, in the order of their numbers."""
        return [str(self.outcomes[number].state) for number in sorted(self.outcomes)]


class ExecutorContract(ABC):
    """Tests that every executor passes.

    Attributes:
        can_lose_workers: Whether the process that runs a trial can die while the executor lives.
            If not, the tests that kill workers are skipped.
    """

    can_lose_workers = True

    @abstractmethod
    def make(self, folder: Path, *, jobs: int) -> Executor:
        """Return an executor that runs a notebook with the cell `ACTING_CELL`.

        Args:
            folder: Empty folder for the files of the executor.
            jobs: Number of trials that run at once.
        """

    def specs(self, folder: Path, *acts: str) -> list[TrialSpec]:
        """Return the specs of trials that act as their params say, numbered from 0.

        Args:
            folder: Folder of the trials' files.
            *acts: What each trial's cell does: `complete`, `fail`, `report` three steps, `wait` for
                a stop, or `lose` its worker, which it kills.
        """
        return [
            trial_spec(
                number,
                params={"act": name},
                notebook=folder / f"{number:04d}.ipynb",
                checkpoint_dir=folder / "checkpoints" / f"{number:04d}",
                artifact_dir=folder / "artifacts" / f"{number:04d}",
            )
            for number, name in enumerate(acts)
        ]

    def test_each_trial_ends_exactly_once_and_after_all_its_points(self, tmp_path: Path) -> None:
        """Check also that a failed trial frees its slot for another trial.

        `ListedTrials` raises an error if a point (a report) arrives after the outcome of its trial.
        """
        source = ListedTrials(self.specs(tmp_path, "complete", "fail", "report", "complete"))
        executor = self.make(tmp_path, jobs=2)
        assert executor.jobs == 2
        executor.run(source)
        assert source.states == ["completed", "failed", "completed", "completed"]
        assert {source.outcomes[number].scores["val"] for number in (0, 2, 3)} == {3.0}
        assert "as asked" in source.outcomes[1].message
        reported = [(p.step, p.metrics["val"]) for p in source.points[2] if p.step is not None]
        assert reported == [(0, 0.0), (1, 1.0), (2, 2.0)]
        assert source.reasons == []

    @pytest.mark.parametrize(
        ("reason", "state"),
        [(StopReason.BY_HAND, TrialState.STOPPED), (StopReason.PRUNED, TrialState.PRUNED)],
    )
    def test_a_stop_of_a_running_trial_ends_it_with_the_reason_of_the_stop(
        self, tmp_path: Path, reason: StopReason, state: TrialState
    ) -> None:
        """Check this for a stop by hand and for a stop by the pruner."""

        def stop(spec: TrialSpec, running: RunningTrial) -> None:
            if spec.params["act"] == "wait":
                running.control.stop(reason, "the test stops it")

        source = ListedTrials(self.specs(tmp_path, "wait", "complete"), on_point=stop)
        began_s = time.monotonic()
        self.make(tmp_path, jobs=1).run(source)
        outcome = source.outcomes[0]
        assert (outcome.state, outcome.message) == (state, "the test stops it")
        assert source.outcomes[1].state is TrialState.COMPLETED
        assert time.monotonic() - began_s < _LONG_S

    def test_two_slots_run_two_trials_at_the_same_time(self, tmp_path: Path) -> None:
        """Stop two trials only when both have reported.

        If they ran one after the other, the first trial would complete and not be stopped.
        """
        trials: dict[int, RunningTrial] = {}

        def stop_when_both_run(spec: TrialSpec, running: RunningTrial) -> None:
            trials[spec.number] = running
            if len(trials) == 2:
                for trial in list(trials.values()):
                    trial.control.stop(StopReason.INTERRUPTED)

        source = ListedTrials(self.specs(tmp_path, "wait", "wait"), on_point=stop_when_both_run)
        self.make(tmp_path, jobs=2).run(source)
        assert source.states == ["stopped", "stopped"]

    def test_a_killed_worker_stops_its_own_trial_and_no_other(self, tmp_path: Path) -> None:
        """Check that the trial ends as `stopped`: a sweep runs a stopped trial again."""
        self._skip_without_workers()
        source = ListedTrials(self.specs(tmp_path, "lose", "complete", "complete"))
        self.make(tmp_path, jobs=1).run(source)
        assert source.states == ["stopped", "completed", "completed"]
        assert source.outcomes[0].reason is Reason.WORKER_LOST

    def test_a_stop_of_a_trial_whose_worker_hangs_raises_no_error(self, tmp_path: Path) -> None:
        """The thread that stops trials must not wait for a worker that never reads the stop."""
        self._skip_without_workers()
        raised: list[BaseException] = []

        def lose(spec: TrialSpec, running: RunningTrial) -> None:
            pid = int(running.points.metrics.get(WORKER_PID, 0))
            if spec.params["act"] != "wait" or running.control.stop_reason is not None or not pid:
                return
            os.kill(pid, signal.SIGSTOP)
            try:
                running.control.stop(StopReason.BY_HAND, "the test stops it")
            except BaseException as error:  # noqa: BLE001  The end of this test checks for errors.
                raised.append(error)
            os.kill(pid, signal.SIGKILL)

        source = ListedTrials(self.specs(tmp_path, "wait", "complete"), on_point=lose)
        self.make(tmp_path, jobs=1).run(source)
        assert raised == []
        assert source.states == ["stopped", "completed"]

    def test_a_stop_after_the_end_of_its_trial_does_not_stop_the_next_trial_in_the_slot(
        self, tmp_path: Path
    ) -> None:
        """Stop the first trial late: while its slot already runs the second trial.

        In a sweep, this happens if the thread that stops a trial is suspended just before it passes
        the stop to the executor.
        """
        first: list[tuple[RunningTrial, Callable[[], object] | None]] = []

        def stop(spec: TrialSpec, running: RunningTrial) -> None:
            if spec.number == 0:
                first.append((running, running.control._on_stop))
            elif running.control.stop_reason is None:
                ended, ask = first[0]
                ended.control.stop(StopReason.BY_HAND, "too late")
                if ask is not None:
                    ask()
                running.control.stop(StopReason.PRUNED, "in time")

        source = ListedTrials(self.specs(tmp_path, "report", "wait"), on_point=stop)
        self.make(tmp_path, jobs=1).run(source)
        outcome = source.outcomes[1]
        assert (outcome.state, outcome.message) == (TrialState.PRUNED, "in time")

    def _skip_without_workers(self) -> None:
        if not self.can_lose_workers:
            pytest.skip("the workers of this executor cannot end before the executor itself")
