"""Every executor keeps the contract; one of them ships its trials to other processes."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest

from sweeper.execution.executor import Executor, TrialSource
from sweeper.execution.local import LocalExecutor
from sweeper.execution.places import Places
from sweeper.execution.workload import Workload
from sweeper.notebook_api.messages import Point, StopReason
from sweeper.notebooks import ResearchNotebook
from sweeper.settings import Settings
from sweeper.testing import InlineExecutor, trial_spec, write_notebook
from sweeper.testing.executor_contract import ACTING_CELL, ExecutorContract, act
from sweeper.trials import (
    Reason,
    RunningTrial,
    StudyPaths,
    TrialOutcome,
    TrialSpec,
    TrialState,
)


class TestInlineExecutor(ExecutorContract):
    can_lose_workers = False

    def make(self, folder: Path, *, jobs: int) -> Executor:
        return InlineExecutor(act, jobs=jobs)


@pytest.mark.kernel
class TestLocalExecutor(ExecutorContract):
    can_lose_workers = False

    def make(self, folder: Path, *, jobs: int) -> Executor:
        notebook = write_notebook(folder / "nb.ipynb", ACTING_CELL, parameters="act = 'complete'")
        acts = ["complete", "report", "fail", "wait"]
        workload = Workload(
            notebook=ResearchNotebook(notebook),
            settings=Settings.from_mapping(
                {"objective": {"val": "maximize"}, "space": {"act": acts}}
            ),
            kernel_name="python3",
            cwd=folder,
            paths=StudyPaths.parse(str(folder / "{run_id}.ipynb"), study="contract"),
        )
        assert pickle.loads(pickle.dumps(workload)).settings == workload.settings
        return LocalExecutor(workload, places=Places(), jobs=jobs)


class ProcessExecutor:
    """Ships each spec as bytes to a process; points come back, a stop goes there.

    A process that dies costs its trial; the slot goes on with another process.
    """

    description = "processes"

    def __init__(self, jobs: int) -> None:
        self.jobs = jobs

    def run(self, source: TrialSource) -> Sequence[str]:
        slots = [threading.Thread(target=self._serve, args=[source]) for _ in range(self.jobs)]
        for slot in slots:
            slot.start()
        for slot in slots:
            slot.join()
        return []

    def _serve(self, source: TrialSource) -> None:
        worker = WorkerProcess()
        while (trial := source.next_trial()) is not None:
            spec, running = trial
            try:
                outcome = worker.run_trial(spec, running)
            except (EOFError, OSError):  # it may have died before this trial already
                worker.close()
                worker = WorkerProcess()
                outcome = TrialOutcome(
                    state=TrialState.STOPPED,
                    reason=Reason.WORKER_LOST,
                    message="the process that ran the trial has died",
                )
            source.finish_trial(spec, outcome)
        worker.close()


def workers() -> ForkServerContext:
    """Starts processes out of one in which what this file imports has been imported."""
    context = get_context("forkserver")
    imported = (ExecutorContract, LocalExecutor, ResearchNotebook, Settings)
    context.set_forkserver_preload([one.__module__ for one in imported])
    return context


class WorkerProcess:
    """A process that runs one trial at a time, and the connection to it."""

    def __init__(self) -> None:
        context = workers()
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=work, args=[theirs], daemon=True)
        self._process.start()
        theirs.close()
        # A stop comes from another thread, and maybe when the next trial is being sent.
        self._sending = threading.Lock()

    def run_trial(self, spec: TrialSpec, running: RunningTrial) -> TrialOutcome:
        """Raises EOFError or OSError where the process has died."""

        def stop() -> None:
            with suppress(OSError):  # it has died, which is noticed below
                # With its trial, because the trial may have ended while the stop was on its way.
                self._send("stop", spec.number, running.stop_reason, running.message)

        self._send("run", spec, running.trials_left)
        running.on_stop(stop)
        try:
            while True:
                event: Point | TrialOutcome = pickle.loads(self._connection.recv_bytes())
                if isinstance(event, TrialOutcome):
                    return event
                running.publish(event)
        finally:
            running.on_stop(None)

    def close(self) -> None:
        with suppress(OSError), self._sending:
            self._connection.send_bytes(b"")
        self._process.join()

    def _send(self, *message: object) -> None:
        with self._sending:
            self._connection.send_bytes(pickle.dumps(message))


def work(connection: Connection) -> None:
    """Run trials in a process of their own, until an empty message comes."""
    while data := connection.recv_bytes():
        kind, *rest = pickle.loads(data)
        if kind == "stop":  # of a trial that has ended
            continue
        spec, trials_left = rest
        running = RunningTrial(
            lambda point: connection.send_bytes(pickle.dumps(point)), trials_left=trials_left
        )
        ended = threading.Event()
        stops = threading.Thread(
            target=receive_stop, args=[connection, spec.number, running, ended]
        )
        stops.start()
        try:
            outcome = act(spec, running)
        except ValueError as error:
            outcome = TrialOutcome(
                state=TrialState.FAILED, reason=Reason.CELL_ERROR, message=str(error)
            )
        ended.set()
        stops.join()
        connection.send_bytes(pickle.dumps(outcome))


def receive_stop(
    connection: Connection, number: int, running: RunningTrial, ended: threading.Event
) -> None:
    """Stop the trial of this number; a stop of another one comes too late."""
    while not ended.is_set():
        if connection.poll(0.02):
            _, stopped, reason, message = pickle.loads(connection.recv_bytes())
            if stopped == number:
                running.stop(StopReason(reason), message)
                return


@pytest.mark.slow  # its processes import the package
class TestProcessExecutor(ExecutorContract):
    def make(self, folder: Path, *, jobs: int) -> Executor:
        return ProcessExecutor(jobs)


def test_what_an_executor_ships_survives_pickling(tmp_path: Path) -> None:
    spec = trial_spec(3, params={"layers": [32, 64], "lr": float("inf")}, continues=tmp_path / "a")
    assert pickle.loads(pickle.dumps(spec)) == spec
    outcome = TrialOutcome(state=TrialState.FAILED, reason=Reason.NO_SCORE, scores={"val": 0.1})
    assert pickle.loads(pickle.dumps(outcome)) == outcome
