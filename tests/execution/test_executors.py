"""Every executor keeps the contract; one of them ships its trials to other processes."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from sweeper.execution.executor import Executor, TrialSource
from sweeper.execution.gpus import GpuAllocator
from sweeper.execution.local import LocalExecutor
from sweeper.execution.workload import Workload
from sweeper.notebook_api.messages import Point, StopReason
from sweeper.notebooks import ResearchNotebook
from sweeper.settings import Settings
from sweeper.testing import InlineExecutor, trial_spec, write_notebook
from sweeper.testing.executor_contract import ACTING_CELL, ExecutorContract, act
from sweeper.trials import Reason, RunningTrial, StudyPaths, TrialOutcome, TrialSpec, TrialState


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
        return LocalExecutor(workload, gpus=GpuAllocator((), threads=1), jobs=jobs)


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
        connection, process = self._start()
        while (trial := source.next_trial()) is not None:
            spec, running = trial
            outcome = self._run(connection, spec, running)
            if outcome is None:
                process.join()
                connection, process = self._start()
                outcome = TrialOutcome(
                    state=TrialState.STOPPED,
                    reason=Reason.WORKER_LOST,
                    message="the process that ran the trial has died",
                )
            source.finish_trial(spec, outcome)
        connection.send_bytes(b"")
        process.join()

    def _run(
        self, connection: Connection, spec: TrialSpec, running: RunningTrial
    ) -> TrialOutcome | None:
        """The outcome of a trial; None where its process has died."""
        sending = threading.Lock()

        def send(*message: object) -> None:
            with sending:
                connection.send_bytes(pickle.dumps(message))

        send("run", spec, running.trials_left)
        running.on_stop(lambda: send("stop", running.stop_reason, running.message))
        try:
            while True:
                event: Point | TrialOutcome = pickle.loads(connection.recv_bytes())
                if isinstance(event, TrialOutcome):
                    return event
                running.publish(event)
        except EOFError:
            return None
        finally:
            running.on_stop(None)
            sending.acquire()  # a stop that is on its way is sent before the next trial

    def _start(self) -> tuple[Connection, BaseProcess]:
        context = get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=work, args=[theirs], daemon=True)
        process.start()
        theirs.close()
        return ours, process


def work(connection: Connection) -> None:
    """Run trials in a process of their own, until an empty message comes."""
    while data := connection.recv_bytes():
        kind, *rest = pickle.loads(data)
        if kind == "stop":  # of a trial that ended meanwhile
            continue
        spec, trials_left = rest
        running = RunningTrial(
            lambda point: connection.send_bytes(pickle.dumps(point)), trials_left=trials_left
        )
        ended = threading.Event()
        stops = threading.Thread(target=receive_stop, args=[connection, running, ended])
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


def receive_stop(connection: Connection, running: RunningTrial, ended: threading.Event) -> None:
    while not ended.is_set():
        if connection.poll(0.02):
            _, reason, message = pickle.loads(connection.recv_bytes())
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
