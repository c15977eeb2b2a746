"""MLflow's UI over a store, on a socket that only this user can open."""

from __future__ import annotations

import http.client
import os
import secrets
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from ..errors import TrackingError
from ..guard import MARK_VARIABLE, Guard
from ..settings.addresses import Address

#: It may take so long to start on a machine that is busy with a sweep; and how often to look.
_START_S, _LOOK_S = 180.0, 0.2
_LINES = 3
#: How long it has to end in order.
_END_S = 5.0


class MlflowUi:
    """MLflow's UI in a process of its own, which does not outlive this one, even after a kill.

    It asks nobody who they are, so it listens on a socket in a private folder.

    Args:
        address: a store that is a file or a database.

    Raises:
        TrackingError: it ended before it answered, or did not answer for minutes.
    """

    def __init__(self, address: Address) -> None:
        token = f"ui-{secrets.token_hex(4)}"
        folder = Path(tempfile.mkdtemp(prefix="sweeper-ui-"))
        self._guard = Guard(token=token, folder=folder)
        self._address, self._output, self._socket = address, folder / "output", folder / "socket"
        env = {
            **os.environ,
            MARK_VARIABLE: f"{token}.mlflow;",
            # Not on the command line, which every user of the machine can read.
            "MLFLOW_BACKEND_STORE_URI": address.full,
            "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",  # nine processes and 2 GB less
            "MLFLOW_DISABLE_TELEMETRY": "true",
        }
        on_socket = f"--uds {shlex.quote(str(self._socket))}"
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "mlflow",
                    "ui",
                    "--workers",
                    "1",
                    "--uvicorn-opts",
                    on_socket,
                ],
                cwd=folder,  # an empty one: a file beside it could take the place of a library
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # Ctrl-C ends us, and we end it
            )
        end_s = time.monotonic() + _START_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > end_s:
                why = self._last_words()
                self.close()
                raise TrackingError(f"MLflow's UI over {address} does not start: {why}")
            time.sleep(_LOOK_S)

    def connect(self) -> http.client.HTTPConnection:
        """A new connection to it."""
        connection = http.client.HTTPConnection("localhost")
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.connect(str(self._socket))
        return connection

    def close(self) -> None:
        """End it, with the processes that it has started."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_S)
        self._guard.close()  # kills what is left

    def _last_words(self) -> str:
        text = self._output.read_text(errors="replace").strip().splitlines()
        return self._address.scrubbed(" | ".join(text[-_LINES:])) or "it has printed nothing"

    def _answers(self) -> bool:
        try:
            connection = self.connect()
            connection.request("GET", "/health")
            return connection.getresponse().status == http.HTTPStatus.OK
        except OSError:
            return False
