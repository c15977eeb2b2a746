"""The process that writes a sweep's trials to MLflow.

MLflow takes seconds to import and a large part of each short trial's CPU time, which the sweep's
own interpreter has no room for.
"""

from __future__ import annotations

import gc
import logging
import math
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any, Protocol

from ..errors import TrackingAwayError, TrackingError, first_line
from .files import forget_connections
from .messages import (
    Confirmed,
    Described,
    Ended,
    Logged,
    Message,
    Opened,
    Refused,
    Reported,
    Started,
    StopTagged,
    Store,
    Taken,
)
from .runs import RunWriter

#: How often to look for the tag that stops a trial.
_POLL_INTERVAL_S = 2.0
#: How long points wait for others of their run: one of MLflow's calls takes as long for many points
#: as for one: 5 ms of CPU with a file (7 ms for ten points), a request with a server.
_GATHER_S = 0.5
#: The process finds modules where the sweep's process does, and nowhere else.
_CODE = (
    "import sys; connection = int(sys.argv[1]); sys.path[:] = sys.argv[2:]; "
    f"from {__name__} import main; main(connection)"
)
_log = logging.getLogger(__name__)


class Process(Protocol):
    """What is needed of `subprocess.Popen`."""

    @property
    def pid(self) -> int:
        """The process id."""

    def kill(self) -> None:
        """Send SIGKILL."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the process's end; the exit code, negative for a signal."""


def launch() -> tuple[Process, Connection]:
    """Start the process; it ends with its connection, and when all has been written."""
    ours, theirs = Pipe()
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-c", _CODE, str(theirs.fileno()), *sys.path],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,  # the live table is on the terminal
            start_new_session=True,  # a Ctrl-C on the terminal must not end it
        )
    return process, ours


# --- in the process ------------------------------------------------------------------------------


def main(descriptor: int) -> None:
    """Open the store that the first message names, and write the trials of all further ones."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # it ends when its sweep does, not before
    connection: Connection = Connection(descriptor)
    inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(connection, inbox), daemon=True).start()
    package = logging.getLogger(__name__.partition(".")[0])
    package.setLevel(logging.INFO)
    package.addHandler(_Forwarder(connection))
    store: Store = inbox.get()
    gc.disable()  # the imports make next to no garbage, and looking for it takes a fifth of them
    try:
        writer = RunWriter.open(store)
    except TrackingError as error:
        is_temporary = isinstance(error, TrackingAwayError)
        connection.send(Refused(message=str(error), is_temporary=is_temporary))
    else:
        gc.freeze()
        gc.enable()
        opened = Opened(
            experiment_id=writer.experiment_id,
            has_view=writer.has_view,
            runs=writer.runs,
            ends=writer.ends,
        )
        connection.send(opened)
        write_all(writer, store, inbox, connection)
        forget_connections(store.address.full)  # the last one writes SQLite's log into its file
    os._exit(0)  # libraries have threads, and nothing is left to be done


def _receive(connection: Connection, inbox: queue.SimpleQueue[Any]) -> None:
    try:
        while True:
            for item in connection.recv():
                inbox.put(item)
    except (EOFError, OSError):
        os._exit(0)  # the sweep has died; the next one writes what is missing


def write_all(
    writer: RunWriter, store: Store, inbox: queue.SimpleQueue[Any], connection: Connection
) -> None:
    """Write messages in their order until None comes, and send a receipt for each.

    Points are written with those that follow within `_GATHER_S`, and before any other message.
    """

    def deliver(message: Message, *serials: int) -> None:
        error = write(writer, store, message)
        mlflow_id = writer.runs.get(message.run_id)
        for serial in serials:
            connection.send(Taken(serial=serial, mlflow_id=mlflow_id, error=error))

    looked_s = time.monotonic()
    gathered = _GatheredPoints(deliver)
    while True:
        try:
            item: tuple[int, Message] | None = inbox.get(
                timeout=min(gathered.wait_s, _POLL_INTERVAL_S)
            )
        except queue.Empty:
            pass
        else:
            if item is not None and isinstance(item[1], Reported):
                gathered.add(item[1], item[0])
            else:
                gathered.deliver()
                if item is None:
                    return
                deliver(item[1], item[0])
        if gathered.wait_s == 0:
            gathered.deliver()
        if time.monotonic() - looked_s >= _POLL_INTERVAL_S:
            looked_s = time.monotonic()
            for run_id in _take_stops(writer, store):
                connection.send(StopTagged(run_id=run_id))


class _GatheredPoints:
    """Points that wait for others of their run.

    Args:
        deliver: writes all points of a run, in their order, and sends a receipt for each message.
    """

    def __init__(self, deliver: Callable[..., None]) -> None:
        self._deliver = deliver
        self._of_runs: dict[str, list[tuple[int, Reported]]] = {}
        self._due_s = math.inf

    @property
    def wait_s(self) -> float:
        """How long until the first of them is due; infinite where there are none."""
        return max(self._due_s - time.monotonic(), 0.0)

    def add(self, reported: Reported, serial: int) -> None:
        """Keep points of a running trial until they are due."""
        self._of_runs.setdefault(reported.run_id, []).append((serial, reported))
        self._due_s = min(self._due_s, time.monotonic() + _GATHER_S)

    def deliver(self) -> None:
        """Write all points that wait, those of each run in one call."""
        for run_id, messages in self._of_runs.items():
            points = [point for _, reported in messages for point in reported.points]
            self._deliver(Reported(run_id=run_id, points=points), *(it for it, _ in messages))
        self._of_runs, self._due_s = {}, math.inf


def write(writer: RunWriter, store: Store, message: Message) -> str | None:
    """Write one message; why MLflow did not take it, or None if it did."""
    try:
        match message:
            case Started():
                writer.start(message.record, message.described)
            case Reported():
                writer.log(message.run_id, message.points)
            case Ended():
                writer.end(message.record, message.series, message.tags, at_ms=message.at_ms)
            case Described():
                writer.describe(message.note, message.best)
            case Confirmed():
                writer.confirm(message.run_id, message.metrics, message.tags)
    except Exception as error:  # noqa: BLE001  an error of the store must not cost a trial
        return store.address.scrubbed(first_line(error))
    return None


def _take_stops(writer: RunWriter, store: Store) -> list[str]:
    try:
        return writer.take_stops()
    except Exception as error:  # noqa: BLE001  as above
        _log.info("MLflow: %s", store.address.scrubbed(first_line(error)))
        return []


class _Forwarder(logging.Handler):
    """Sends what the package logs here to the sweep's process."""

    def __init__(self, connection: Connection) -> None:
        super().__init__()
        self._connection = connection

    def emit(self, record: logging.LogRecord) -> None:
        """Send one record."""
        self._connection.send(Logged(level=record.levelno, text=record.getMessage()))
