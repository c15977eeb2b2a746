"""Run the process that writes a sweep's trials to MLflow.

The import of MLflow takes seconds, and its calls take a large part of each short trial's CPU time.
In a process of their own, they do not delay the sweep's process.
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

#: Code of the writing process. Its arguments are the file descriptor of the connection, and
#: `sys.path`. As in the command line, a slow import of jsonschema is skipped.
_CODE = (
    "import sys; connection = int(sys.argv[1]); sys.path[:] = sys.argv[2:]; "
    "sys.modules['rfc3987_syntax'] = None; "
    f"from {__name__} import main; main(connection)"
)


def launch() -> tuple[subprocess.Popen[bytes], Connection]:
    """Start the process that writes to MLflow. It ends when its connection is closed.

    Returns:
        The process, and the connection to it.

    Raises:
        OSError: The process cannot be started.
    """
    ours, theirs = Pipe()
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-c", _CODE, str(theirs.fileno()), *sys.path],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,  # Output would disturb the live table on the terminal.
            start_new_session=True,  # A Ctrl-C on the terminal must not end this process.
        )
    return process, ours


# --- inside the writing process ------------------------------------------------------------------


def main(descriptor: int) -> None:
    """Open the store that the first message names, and answer each call that follows.

    The package's log messages are sent to the sweep's process, too. The message None ends the
    process.

    Args:
        descriptor: File descriptor of the connection.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # This process must not end before the sweep.
    connection: Connection = Connection(descriptor)
    store: Store = connection.recv()
    calls: queue.SimpleQueue[Call | None] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(connection, calls), daemon=True).start()
    package = logging.getLogger(__name__.partition(".")[0])
    package.setLevel(logging.INFO)
    package.addHandler(QueueHandler(SimpleNamespace(put_nowait=connection.send)))
    try:
        writer = RunWriter.open(store, connection.send)
    except TrackingError as error:
        connection.send(Reply(error=str(error)))
    else:
        connection.send(Reply((writer.experiment_id, writer.runs, writer.attempts)))
        while (call := calls.get()) is not None:
            connection.send(carried_out(call, writer, store))
        carried_out(Call("end_nested", "", ()), writer, store)
        if store.is_embedded:
            with suppress(OSError, sqlite3.Error):  # The next sweep writes trials that are missing.
                settle(store.paths.tracking)
        # When the last connection closes, SQLite merges its write-ahead log into the file.
        forget_connections(store.address.full)
    os._exit(0)  # Do not wait for threads of libraries.


def _receive(connection: Connection, calls: queue.SimpleQueue[Call | None]) -> None:
    try:
        while True:
            calls.put(connection.recv())
    except (EOFError, OSError):
        os._exit(0)  # The sweep has died. The next sweep writes trials that are missing.


def carried_out(call: Call, writer: RunWriter, store: Store) -> Reply:
    """Carry out a call, and return its answer. An exception becomes the error of the answer."""
    try:
        return Reply(getattr(writer, call.method)(*call.arguments))
    except Exception as error:  # noqa: BLE001  each store has exceptions of its own
        return Reply(error=store.address.scrubbed(first_line(error)))
