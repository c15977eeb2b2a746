"""MLflow's UI over a store, on this machine's own address only."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from ..errors import TrackingError
from ..settings.addresses import Address

HOST = "127.0.0.1"
#: How long it may take to start, on a machine that is busy with a sweep; and how often to look.
_START_S, _LOOK_S = 180.0, 0.2
_LINES = 3
#: How long it has to end in order.
_END_S = 5.0


class MlflowUi:
    """MLflow's UI in a process of its own.

    Args:
        address: a store that is a file or a database.
        folder: an empty folder: a file beside it could take the place of a library.
        mark: variables in the environment of all its processes.

    Attributes:
        port: where it listens.
        url: its address.

    Raises:
        TrackingError: it ended before it answered, or did not answer for minutes.
    """

    def __init__(
        self, address: Address, *, port: int, folder: Path, mark: Mapping[str, str]
    ) -> None:
        self.port = port
        self.url = f"http://{HOST}:{port}"
        self._address, self._output = address, folder / "output"
        env = {
            **os.environ,
            **mark,
            # Not on the command line, which every user of the machine can read.
            "MLFLOW_BACKEND_STORE_URI": address.full,
            "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",  # nine processes and 2 GB less
            "MLFLOW_DISABLE_TELEMETRY": "true",
        }
        command = [sys.executable, "-m", "mlflow", "ui", "--workers", "1"]
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                [*command, "--host", HOST, "--port", str(port)],
                cwd=folder,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # Ctrl-C ends us, and we end it
            )
        self._wait_until_it_answers()

    def wait(self) -> None:
        """Block for as long as the UI runs.

        Raises:
            TrackingError: the UI has ended, although nobody asked it to.
        """
        code = self._process.wait()
        raise TrackingError(f"MLflow's UI has ended (exit code {code}): {self._last_words()}")

    def close(self) -> None:
        """End it, with the processes that it has started."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, number)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_END_S)

    def _wait_until_it_answers(self) -> None:
        end_s = time.monotonic() + _START_S
        while not self._answers():
            ended = self._process.poll() is not None
            if ended or time.monotonic() > end_s:
                why = self._last_words()
                self.close()
                raise TrackingError(f"MLflow's UI over {self._address} does not start: {why}")
            time.sleep(_LOOK_S)

    def _last_words(self) -> str:
        text = self._output.read_text(errors="replace").strip().splitlines()
        return self._address.scrubbed(" | ".join(text[-_LINES:])) or "it has printed nothing"

    def _answers(self) -> bool:
        try:
            urllib.request.urlopen(f"{self.url}/health", timeout=_START_S).close()
        except (urllib.error.URLError, OSError):
            return False
        return True
