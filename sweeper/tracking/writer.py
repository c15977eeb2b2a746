"""The process that writes a sweep's trials to MLflow.

MLflow takes seconds to import and a large part of each short trial's CPU time, which the sweep's
own interpreter has no room for.
"""

from __future__ import annotations

import logging
import os
import queue
import signal
import sqlite3
import subprocess
import sys
import threading
from contextlib import suppress
from logging.handlers import QueueHandler
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from types import SimpleNamespace

from ..errors import TrackingError, first_line
from .files import forget_connections, settle
from .messages import Call, Reply, Store
from .runs import RunWriter

#: What the interpreter runs; the folders of the sweep's modules follow the connection's number.
_CODE = (
    "import sys; connection = int(sys.argv[1]); sys.path[:] = sys.argv[2:]; "
    f"from {__name__} import main; main(connection)"
)


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


def main(descriptor: int) -> None:
    """Open the store that the first message names, and answer each call that follows.

    What the package logs here is sent to the sweep's process, too. None ends the process.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # it ends when its sweep does, not before
    connection: Connection = Connection(descriptor)
    store: Store = connection.recv()
    calls: queue.SimpleQueue[Call | None] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(connection, calls), daemon=True).start()
    package = logging.getLogger(__name__.partition(".")[0])
    package.setLevel(logging.INFO)
    package.addHandler(QueueHandler(SimpleNamespace(put_nowait=connection.send)))
    try:
        writer = RunWriter.open(store)
    except TrackingError as error:
        connection.send(Reply(error=str(error)))
    else:
        connection.send(Reply((writer.experiment_id, writer.runs, writer.attempts)))
        while (call := calls.get()) is not None:
            connection.send(carried_out(call, writer, store))
        carried_out(Call("end_nested", "", ()), writer, store)
        if store.is_embedded:
            with suppress(OSError, sqlite3.Error):  # the next sweep writes what is missing
                settle(store.paths.tracking)
        forget_connections(store.address.full)  # the last one writes SQLite's log into its file
    os._exit(0)  # libraries have threads, and nothing is left to be done


def _receive(connection: Connection, calls: queue.SimpleQueue[Call | None]) -> None:
    try:
        while True:
            calls.put(connection.recv())
    except (EOFError, OSError):
        os._exit(0)  # the sweep has died; the next one writes what is missing


def carried_out(call: Call, writer: RunWriter, store: Store) -> Reply:
    """Carry out a call; an error of the store is the reply, as it must not cost a trial."""
    try:
        return Reply(getattr(writer, call.method)(*call.arguments))
    except Exception as error:  # noqa: BLE001  each store has exceptions of its own
        return Reply(error=store.address.scrubbed(first_line(error)))
