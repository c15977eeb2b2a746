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

from ..errors import TrackingAwayError, TrackingError, first_line
from .files import forget_connections
from .messages import (
    END,
    Call,
    Done,
    Logged,
    Mark,
    Opened,
    Reached,
    Refused,
    Reply,
    StopTagged,
    Store,
    TimedPoint,
)
from .runs import RunWriter

#: The process looks so often for the tag that stops a trial.
_POLL_INTERVAL_S = 2.0
#: Points wait so long for others of their run, because one of MLflow's calls takes as long for many
#: points as for one: 5 ms of CPU with a file (7 ms for ten points), a request with a server.
_GATHER_S = 0.5
#: The process finds modules where the sweep's process does, and nowhere else.
_CODE = (
    "import sys; connection = int(sys.argv[1]); sys.path[:] = sys.argv[2:]; "
    f"from {__name__} import main; main(connection)"
)
_log = logging.getLogger(__name__)


def launch() -> tuple[subprocess.Popen[bytes], Connection]:
    """Start the process, which ends with its connection.

    Raises:
        OSError: it cannot be started.
    """
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

#: What the process is sent after the store.
Inbox = queue.SimpleQueue[Call | Mark]


def main(descriptor: int) -> None:
    """Open the store that the first message names, and carry out all calls that follow."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # it ends when its sweep does, not before
    connection: Connection = Connection(descriptor)
    inbox: Inbox = queue.SimpleQueue()
    store: Store = connection.recv()
    threading.Thread(target=_receive, args=(connection, inbox), daemon=True).start()
    package = logging.getLogger(__name__.partition(".")[0])
    package.setLevel(logging.INFO)
    package.addHandler(_Forwarder(connection))
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
            runs=writer.runs,
            ends=writer.ends,
        )
        connection.send(opened)
        write_all(writer, store, inbox, connection.send)
        forget_connections(store.address.full)  # the last one writes SQLite's log into its file
    os._exit(0)  # libraries have threads, and nothing is left to be done


def _receive(connection: Connection, inbox: Inbox) -> None:
    try:
        while True:
            for item in connection.recv():
                inbox.put(item)
    except (EOFError, OSError):
        os._exit(0)  # the sweep has died; the next one writes what is missing


def write_all(
    writer: RunWriter, store: Store, inbox: Inbox, answer: Callable[[Reply], object]
) -> None:
    """Carry out calls in their order until `END` comes, and answer each.

    Points are written with those that follow within `_GATHER_S`, and before any other call.
    """
    points: dict[str, list[TimedPoint]] = {}
    due_s, looked_s = math.inf, time.monotonic()

    def carry_out(call: Call) -> None:
        error = None
        try:
            getattr(writer, call.method)(*call.arguments)
        except Exception as raised:  # noqa: BLE001  an error of the store must not cost a trial
            error = store.address.scrubbed(first_line(raised))
        mlflow_id, end = writer.runs.get(call.about), writer.ends.get(call.about)
        answer(
            Done(method=call.method, about=call.about, mlflow_id=mlflow_id, end=end, error=error)
        )

    def write_points() -> None:
        for run_id, of_run in points.items():
            carry_out(Call("log", run_id, (run_id, of_run)))
        points.clear()

    while True:
        wait_s = min(max(due_s - time.monotonic(), 0.0), _POLL_INTERVAL_S)
        try:
            item = inbox.get(timeout=wait_s)
        except queue.Empty:
            item = None
        if isinstance(item, Call) and item.method == "log":
            due_s = min(due_s, time.monotonic() + _GATHER_S)
            points.setdefault(item.about, []).extend(item.arguments[1])
        elif item is not None or time.monotonic() >= due_s:
            write_points()
            due_s = math.inf
        match item:
            case Mark() if item == END:
                return
            case Mark(number):
                answer(Reached(number))
            case Call() if item.method != "log":
                carry_out(item)
        if time.monotonic() - looked_s >= _POLL_INTERVAL_S:
            looked_s = time.monotonic()
            for run_id in _take_stops(writer, store):
                answer(StopTagged(run_id))


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
        self._connection.send(Logged(record.levelno, record.getMessage()))
