"""Home's end of the connection with the process that runs trials on one worker."""

from __future__ import annotations

import logging
import pickle
import queue
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ...errors import first_line
from ...study_folder.patience import Patience
from ...trials import (
    Reason,
    RunningTrial,
    TrialOutcome,
    TrialSpec,
    TrialState,
    attempt_path,
)
from .dask_cluster import CallError, DaskCluster, DaskWorker
from .messages import (
    Begin,
    Cells,
    End,
    Ended,
    Fetching,
    FilePart,
    FromHost,
    Greeting,
    Left,
    Look,
    Looked,
    Open,
    Opened,
    Remove,
    Reported,
    Run,
    Stop,
    Times,
    ToHost,
    lost_outcome,
)
from .mirror import ArrivingFiles, folders_for, parts_of, remove
from .relay import begin

_log = logging.getLogger(__name__)

#: How long the other end waits for a message before it answers that there is none.
_WAIT_S = 3.0
#: How long a process may take to begin, with its imports on a busy machine.
_BEGIN_S = 120.0
#: How long calls may fail before a worker counts as lost that the scheduler still lists.
_AWAY_S = 45.0
#: How often the other end has a call at least: after 60 s without one it takes the sweep for dead.
_SIGN_OF_LIFE_S = 10.0
_PAUSE_S = 1.0
#: How often a line says how far a worker is with the data of the trials.
_SAY_S = 30.0
#: The bytes that one call carries at most.
_CALL_BYTES = 8_000_000


class LostError(Exception):
    """The worker, its process, or the way to it is gone."""


class _Trial:
    """One trial that runs there."""

    def __init__(self, spec: TrialSpec, running: RunningTrial) -> None:
        self.spec = spec
        self.running = running
        self.ended = threading.Event()
        self.outcome: TrialOutcome | None = None
        self.file_error: OSError | None = None


class WorkerLink:
    """A process that runs trials on a worker, as home sees it. Safe to use from several threads.

    Args:
        patience: with home's disk.

    Attributes:
        host: the name of the worker's machine; empty before `look`.
        slots: how many trials run there at once.
    """

    def __init__(self, cluster: DaskCluster, worker: DaskWorker, *, patience: Patience) -> None:
        self.worker = worker
        self.host = ""
        self.slots = worker.threads
        self._cluster = cluster
        self._patience = patience
        self._key = f"notebook-hpo-{secrets.token_hex(4)}"
        self._outbox: queue.SimpleQueue[Iterable[ToHost] | None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[FromHost | None] = queue.SimpleQueue()
        self._trials: dict[int, _Trial] = {}
        self._lock = threading.Lock()
        self._lost = threading.Event()
        self._greeting = Greeting(shares_code=False, shares_checkpoints=False)
        self._arriving = ArrivingFiles(lambda path: path)
        #: Folders of checkpoints that home has removed, of which later files are not wanted.
        self._unwanted: set[Path] = set()
        self._sent_inputs: set[Path] = set()
        self._held: list[Any] = []
        self._threads: list[threading.Thread] = []

    @property
    def is_lost(self) -> bool:
        """Whether no trial can run there any more."""
        return self._lost.is_set()

    def look(self, question: Look) -> Looked:
        """Start the process there and ask what it has.

        Raises:
            LostError: it does not answer.
        """
        try:
            self._cluster.call(self.worker.address, begin, self._key)
        except CallError as error:
            self.lose()
            raise LostError(str(error)) from error
        self._held = self._cluster.occupy(self.worker, self._key)
        self._threads = [
            threading.Thread(
                target=self._run, args=[self._send_all], name="cluster send", daemon=True
            ),
            threading.Thread(
                target=self._run, args=[self._receive_all], name="cluster receive", daemon=True
            ),
        ]
        for thread in self._threads:
            thread.start()
        self._send(question)
        looked = self._answer()
        if not isinstance(looked, Looked):
            raise LostError(f"an unexpected answer: {looked}")
        self.host = looked.host
        return looked

    def open(self, message: Begin, files: Callable[[], Iterable[ToHost]], times: Times) -> str:
        """Make the process ready for trials.

        Args:
            files: makes the parts of the files that it lacks where it has not the notebook's
                folder.

        Returns:
            why it runs no trials after all; empty where it does.

        Raises:
            LostError: it is gone.
        """
        self._send(message)
        greeting = self._answer()
        if not isinstance(greeting, Greeting):
            raise LostError(f"an unexpected answer: {greeting}")
        self._greeting = greeting
        if not greeting.shares_code:
            self._outbox.put(files())
        self._send(Open(times=times))
        line_s = 0.0
        while isinstance(answer := self._answer(), Fetching):
            if time.monotonic() - line_s > _SAY_S:
                line_s = time.monotonic()
                _log.warning("worker %s: %s", self.host, answer.line)
        return answer.obstacle if isinstance(answer, Opened) else ""

    def run_trial(self, spec: TrialSpec, running: RunningTrial) -> TrialOutcome:
        """Run a trial there, from its files that home has to those that it has when it ends."""
        running.host = self.host
        trial = _Trial(spec, running)
        with self._lock:
            self._trials[spec.number] = trial
            self._unwanted.discard(spec.checkpoint_dir)
        self._outbox.put(self._files_for(spec))
        self._send(Run(spec=spec, trials_left=running.trials_left))

        def stop() -> None:
            reason = running.stop_reason
            if reason is not None:
                self._send(Stop(number=spec.number, reason=reason, message=running.message))

        running.on_stop(stop)
        try:
            if self.is_lost:  # before or while the trial was entered
                trial.ended.set()
            trial.ended.wait()
        finally:
            running.on_stop(None)
            with self._lock:
                self._trials.pop(spec.number, None)
        if trial.file_error is not None:
            error = trial.file_error
            message = f"{error.filename or spec.notebook}: {error.strerror or error}"
            return TrialOutcome(
                state=TrialState.STOPPED, reason=Reason.FILE, message=message, host=self.host
            )
        return trial.outcome or lost_outcome(self.host)

    def forget_checkpoints(self, spec: TrialSpec) -> None:
        """Let the worker remove checkpoints that home has removed."""
        if self._greeting.shares_checkpoints:
            return
        with self._lock:
            self._unwanted.add(spec.checkpoint_dir)
        self._send(Remove(path=spec.checkpoint_dir))

    def set_times(self, times: Times) -> None:
        """Tell the process how long the sweep still has."""
        self._send(times)

    def close(self, *, patience_s: float) -> Sequence[str]:
        """End the process; what it knows of its trials."""
        self._send(End())
        left: FromHost | None = None
        deadline_s = time.monotonic() + patience_s
        while not isinstance(left, Left) and not self.is_lost:
            try:
                left = self._answers.get(timeout=max(0.0, deadline_s - time.monotonic()))
            except queue.Empty:
                break
            if left is None:
                break
        self.lose()
        return left.findings if isinstance(left, Left) else ()

    def lose(self) -> None:
        """End the connection: the worker is gone, or is not needed. Trials there are lost."""
        if self._lost.is_set():
            return
        self._lost.set()
        self._outbox.put(None)
        self._answers.put(None)
        with self._lock:
            trials = list(self._trials.values())
        for trial in trials:
            trial.ended.set()

        def end() -> None:
            with suppress(CallError):
                self._cluster.ask(self.worker.address, key=self._key, act="end")

        # In a thread of its own: where the worker is gone, the call takes long.
        self._held = []
        ending = threading.Thread(target=end, name="cluster end", daemon=True)
        self._threads.append(ending)
        ending.start()

    def join(self, timeout_s: float) -> None:
        """Wait until the process there has ended, and its folder is gone."""
        deadline_s = time.monotonic() + timeout_s
        for thread in list(self._threads):
            thread.join(max(0.0, deadline_s - time.monotonic()))

    # --- sending ----------------------------------------------------------------------------------

    def _send(self, message: ToHost) -> None:
        """Send a message soon; never waits, and raises nothing."""
        self._outbox.put((message,))

    def _files_for(self, spec: TrialSpec) -> Iterable[ToHost]:
        """What makes the files of a trial there the same as at home."""
        notebooks = [spec.notebook]
        if spec.attempt > 1:
            notebooks.append(attempt_path(spec.notebook, spec.attempt - 1))
        if spec.continues is not None and spec.continues not in notebooks:
            notebooks.append(spec.continues)
        for path in notebooks:
            yield Remove(path=path)
            yield from parts_of(path, path)
        if not self._greeting.shares_checkpoints:
            yield from folders_for(spec, self._sent_inputs)

    def _run(self, serve: Callable[[], None]) -> None:
        """Serve one direction; a defect of ours costs this worker, not the sweep."""
        try:
            serve()
        except Exception:  # noqa: BLE001  as above
            _log.exception("worker %s", self.worker.address)
        finally:
            self.lose()

    def _send_all(self) -> None:
        """Send what stands in the outbox, in its order."""
        sent = 0
        while True:
            try:
                messages = self._outbox.get(timeout=_SIGN_OF_LIFE_S)
            except queue.Empty:  # what comes from there may wait for a disk that is full
                self._send_batch(sent, [])
                continue
            if messages is None:
                return
            batch: list[bytes] = []
            for message in messages:
                batch.append(pickle.dumps(message))
                if sum(map(len, batch)) > _CALL_BYTES:
                    sent += self._send_batch(sent, batch)
                    batch = []
            if batch:
                sent += self._send_batch(sent, batch)

    def _send_batch(self, number: int, batch: list[bytes]) -> int:
        def send() -> None:
            self._ask(act="send", number=number, messages=batch)

        self._insist(send)
        return len(batch)

    def _ask(self, **arguments: Any) -> Any:
        return self._cluster.ask(self.worker.address, key=self._key, **arguments)

    def _insist(self, call: Callable[[], None]) -> None:
        """Call until it succeeds; where it does not for long, the worker is lost."""
        began_s = time.monotonic()
        while not self.is_lost:
            try:
                call()
            except CallError as error:
                if time.monotonic() - began_s > _AWAY_S:
                    _log.info("%s: %s", self.worker.address, error)
                    self.lose()
                    return
                self._lost.wait(_PAUSE_S)
            else:
                return

    # --- receiving --------------------------------------------------------------------------------

    def _answer(self) -> FromHost:
        try:
            message = self._answers.get(timeout=_BEGIN_S)
        except queue.Empty:
            message = None
        if message is None:
            self.lose()
            raise LostError("the process there has ended, or does not answer")
        return message

    def _receive_all(self) -> None:
        """Take what comes from there until there is no more."""
        number = 0
        is_gone = False

        def receive() -> None:
            nonlocal number, is_gone
            answer = self._ask(act="receive", number=number, wait_s=_WAIT_S)
            is_gone = answer["is_gone"]
            for data in answer["messages"][max(0, number - answer["number"]) :]:
                number += 1
                self._take(pickle.loads(data))

        while not is_gone and not self.is_lost:
            self._insist(receive)
        self._arriving.drop()

    def _take(self, message: FromHost) -> None:
        match message:
            case Reported(number=number, point=point):
                if (trial := self._trials.get(number)) is not None:
                    trial.running.publish(point)
            case Cells(number=number):
                if (trial := self._trials.get(number)) is not None:
                    trial.running.cell, trial.running.cells = message.cell, message.cells
            case FilePart() | Remove():
                self._take_file(message)
            case Ended(number=number, outcome=outcome):
                if (trial := self._trials.get(number)) is not None:
                    trial.outcome = outcome
                    trial.ended.set()
            case _:
                self._answers.put(message)

    def _take_file(self, message: FilePart | Remove) -> None:
        if any(message.path.is_relative_to(folder) for folder in self._unwanted):
            return
        if isinstance(message, Remove):
            remove(message.path)
            return
        try:
            self._patience.insist(lambda: self._arriving.take(message))
        except OSError as error:
            _log.info("%s: %s", message.path, first_line(error))
            with self._lock:
                for trial in self._trials.values():
                    if trial.spec.notebook == message.path:
                        trial.file_error = error
