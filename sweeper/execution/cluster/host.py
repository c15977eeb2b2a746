"""The process that runs trials on a worker: one worker of ours, one kernel pool, one guard.

The Dask worker starts it (`relay.py`) and passes its messages on; it ends with its standard input,
which closes when the Dask worker dies. Its kernels and its folder never outlive it.
"""

from __future__ import annotations

import logging
import os
import pickle
import shutil
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import BinaryIO

from ...errors import SweepError, first_line
from ...kernels import check_kernel, environment_of, interpreter_of
from ...notebook_api.messages import Point, StopReason
from ...trials import Reason, RunningTrial, StudyPaths, TrialOutcome
from ..environment.record import python_of
from ..places import Places
from ..worker import Worker, opened_worker
from ..workload import Workload
from .followed_files import FollowedFiles
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
)
from .mirror import ArrivingFiles, Mirror

_log = logging.getLogger(__name__)

_LENGTH = struct.Struct("!Q")
#: Whoever ends a worker may end its kernels first, as the end of a SLURM job does: so long after
#: the death of a kernel this process still runs, or the trial has lost its worker.
_DOUBT_S = 2.0
#: How often the files of running trials are looked at.
_LOOK_S = 0.5


class Pipe:
    """The messages from and to home. Sending is safe from any thread."""

    def __init__(self, incoming: BinaryIO, outgoing: BinaryIO) -> None:
        self._incoming, self._outgoing = incoming, outgoing
        self._lock = threading.Lock()
        self._is_closed = False

    def send(self, message: FromHost) -> None:
        """Send a message; where nobody receives any more, the process is about to end."""
        data = pickle.dumps(message)
        with self._lock, suppress(OSError):
            if self._is_closed:
                return
            self._outgoing.write(_LENGTH.pack(len(data)) + data)
            self._outgoing.flush()

    def close(self) -> None:
        """Send nothing more: what happens to the trials now is not how they ended."""
        self._is_closed = True

    def received(self) -> Iterator[ToHost]:
        """The messages, until the other end closes."""
        while len(head := self._incoming.read(_LENGTH.size)) == _LENGTH.size:
            (length,) = _LENGTH.unpack(head)
            data = self._incoming.read(length)
            if len(data) < length:
                return
            yield pickle.loads(data)


class HomeTime:
    """The `TimeLeft` of the sweep, as it was sent last."""

    def __init__(self) -> None:
        self._patience_s = 0.0
        self._end_by_s: float | None = None

    def set(self, times: Times) -> None:
        """Note what home has sent now."""
        self._patience_s = times.patience_s
        left_s = times.left_s
        self._end_by_s = None if left_s is None else time.monotonic() + left_s

    def patience_s(self) -> float:
        """How long to wait for a disk that is full or away, in seconds."""
        return self._patience_s

    def left_s(self) -> float | None:
        """How long the sweep still has, in seconds; None for as long as it takes."""
        end_by_s = self._end_by_s
        return None if end_by_s is None else max(0.0, end_by_s - time.monotonic())


class Host:
    """Runs the trials that home sends.

    Args:
        root: the private folder of this process; it is removed at the end.
    """

    def __init__(self, pipe: Pipe, root: Path) -> None:
        self._pipe = pipe
        self._root = root
        self._time = HomeTime()
        self._running: dict[int, RunningTrial] = {}
        self._slots: list[threading.Thread] = []

    def run(self) -> None:
        """Run trials until home sends no more, or is gone."""
        messages = self._pipe.received()
        look = next(messages, None)
        if not isinstance(look, Look):
            return
        self._pipe.send(_looked(look))
        begin = next(messages, None)
        if not isinstance(begin, Begin):
            return
        mirror = Mirror(
            root=self._root,
            shares_code=_has(begin.code_sign),
            shares_checkpoints=_has(begin.checkpoints_sign, to_write=True),
        )
        self._pipe.send(
            Greeting(shares_code=mirror.shares_code, shares_checkpoints=mirror.shares_checkpoints)
        )
        arriving = ArrivingFiles(mirror.copy)
        for message in messages:
            if isinstance(message, FilePart):
                arriving.take(message)
            elif isinstance(message, Open):
                self._time.set(message.times)
                workload = mirror.workload(begin.workload, host=socket.gethostname())
                self._work(workload, mirror, messages, arriving, begin.workload.paths)
                return

    def _work(
        self,
        workload: Workload,
        mirror: Mirror,
        messages: Iterator[ToHost],
        arriving: ArrivingFiles,
        home_paths: StudyPaths,
    ) -> None:
        workload.cwd.mkdir(parents=True, exist_ok=True)
        if not mirror.shares_code:
            _write_code(workload)
        if obstacle := self._fetch(workload, is_copy=not mirror.shares_code):
            self._pipe.send(Opened(obstacle=obstacle))
            return
        places = Places.of_machine(workload.settings.resources, jobs=2)
        files = FollowedFiles(mirror, self._pipe.send, paths=home_paths)
        with opened_worker(workload, places=places, time_left=self._time) as worker:
            self._pipe.send(Opened())
            looking = threading.Thread(target=self._look, args=[files], name="look", daemon=True)
            looking.start()
            if not self._serve(worker, files, messages, arriving):
                self._pipe.close()
                raise _HomeIsGoneError  # the guard ends what runs
            for slot in self._slots:
                slot.join()
        files.look(is_last=True)
        self._pipe.send(Left(findings=worker.findings))

    def _fetch(self, workload: Workload, *, is_copy: bool) -> str:
        """Have the data of the trials on this machine; why it cannot be had, empty where it is."""
        if workload.data is None:
            return ""
        dask_worker = os.getppid()
        try:
            workload.data.bring(
                lambda line: self._pipe.send(Fetching(line=line)),
                lambda: os.getppid() != dask_worker,
                folder=workload.cwd,
                is_copy=is_copy,
            )
        except SweepError as error:
            return first_line(error)
        return ""

    def _serve(
        self,
        worker: Worker,
        files: FollowedFiles,
        messages: Iterator[ToHost],
        arriving: ArrivingFiles,
    ) -> bool:
        """Do what home asks for; whether it has ended the connection in order."""
        for message in messages:
            match message:
                case FilePart():
                    arriving.take(message)
                case Remove(path=path):
                    files.remove(path)
                case Run():
                    self._begin(message, worker, files)
                case Stop(number=number, reason=reason, message=text):
                    if (running := self._running.get(number)) is not None:
                        running.stop(reason, text)
                case Times():
                    self._time.set(message)
                case End():
                    for running in list(self._running.values()):
                        running.stop(StopReason.INTERRUPTED)
                    return True
        return False

    def _begin(self, message: Run, worker: Worker, files: FollowedFiles) -> None:
        number = message.spec.number

        def send_point(point: Point) -> None:
            self._pipe.send(Reported(number=number, point=point))

        running = RunningTrial(send_point, trials_left=message.trials_left)
        self._running[number] = running

        def run() -> None:
            outcome = worker.run_trial(files.begin(message.spec), running)
            if outcome.reason is Reason.KERNEL_DIED:
                time.sleep(_DOUBT_S)
            files.end(number, environment=outcome.environment)
            del self._running[number]
            self._pipe.send(Ended(number=number, outcome=self._for_home(outcome, worker)))

        slot = threading.Thread(target=run, name=f"trial {message.spec.run_id}", daemon=True)
        self._slots = [one for one in self._slots if one.is_alive()] + [slot]
        slot.start()

    def _for_home(self, outcome: TrialOutcome, worker: Worker) -> TrialOutcome:
        """An outcome whose message has the paths of home."""
        message = outcome.message.replace(str(self._root), "")
        return replace(outcome, message=message, host=worker.runner.host)

    def _look(self, files: FollowedFiles) -> None:
        """Send what is new of the running trials, again and again."""
        cells: dict[int, tuple[int, int]] = {}
        dask_worker = os.getppid()
        while True:
            time.sleep(_LOOK_S)
            if os.getppid() != dask_worker:  # it is dead, and a child of it holds the pipe open
                os.kill(os.getpid(), signal.SIGTERM)
            for number, running in list(self._running.items()):
                now = running.cell, running.cells
                if now != cells.get(number, (0, 0)):
                    cells[number] = now
                    self._pipe.send(Cells(number=number, cell=now[0], cells=now[1]))
            files.look()


def _looked(look: Look) -> Looked:
    """What this machine has of what a sweep asks for."""
    name = socket.gethostname()
    try:
        check_kernel(look.kernel_name, asked_by="the notebook")
        Places.of_machine(look.resources, jobs=2)
    except SweepError as error:
        return Looked(host=name, obstacle=first_line(error))
    env = environment_of(look.kernel_name, os.environ)
    python = python_of(interpreter_of(look.kernel_name), env, look.modules)
    return Looked(host=name, python=python)


class _HomeIsGoneError(Exception):
    """The connection has ended while trials may run."""


def _has(sign: tuple[Path, str] | None, *, to_write: bool = False) -> bool:
    """Whether a file of home is here, so that its folder lies on a disk of both."""
    if sign is None:
        return False
    file, text = sign
    try:
        is_same = file.read_text("utf-8") == text
    except (OSError, ValueError):
        return False
    return is_same and (not to_write or os.access(file.parent, os.W_OK))


def _write_code(workload: Workload) -> None:
    """Write the snapshot's modules where the notebook looks for them."""
    if workload.snapshot is None:
        return
    frozen = workload.frozen or {}
    for file, source in frozen.items():
        path = Path(file)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(source.encode("utf-8", "surrogateescape"))


def main(root: Path) -> None:
    """Serve the messages on standard input and output; anything printed goes to the log."""
    # No process that is started from here reads or writes what is between this one and home.
    incoming, outgoing = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    logging.basicConfig(level=logging.WARNING, format="%(name)s: %(message)s")
    pipe = Pipe(incoming, outgoing)

    def terminate(_number: int, _frame: FrameType | None) -> None:
        pipe.close()
        raise _HomeIsGoneError

    signal.signal(signal.SIGTERM, terminate)
    try:
        Host(pipe, root).run()
        code = 0
    except _HomeIsGoneError:
        code = 0
    except Exception:  # noqa: BLE001  a defect of ours, or a disk that is full: the sweep goes on elsewhere
        _log.exception("the process that runs trials")
        code = 1
    shutil.rmtree(root, ignore_errors=True)
    os._exit(code)  # threads of trials whose kernels are gone need not be waited for


if __name__ == "__main__":
    main(Path(sys.argv[1]))
