"""MLflow servers for the tests of one module."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import urllib.request

from studies import until

from sweeper.tracking import free_port


class MlflowServer:
    """A process `mlflow server`, which the method `start` starts.

    Args:
        store: URL of its store.
        artifacts: Folder for artifacts that clients send to the server.

    Attributes:
        port: Port on which it listens on this machine.
        url: URL of the server.
    """

    def __init__(self, store: str, *, artifacts: str) -> None:
        self.port = free_port(25_000)
        self.url = f"http://127.0.0.1:{self.port}"
        self._command = [sys.executable, "-m", "mlflow", "server", "--workers=1"]
        self._command += ["--backend-store-uri", store, "--artifacts-destination", artifacts]
        self._command += [f"--port={self.port}"]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the server and wait until it answers."""
        self._process = subprocess.Popen(
            self._command,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            # Background jobs are turned off. The tests need none, and the server has five processes
            # less.
            env={**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"},
        )
        until(self._answers, "the MLflow server has not started")

    def kill(self) -> None:
        """Kill the server with all its processes."""
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

    def suspend(self) -> None:
        """Suspend all its processes: it accepts connections but answers nothing."""
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let the server answer again."""
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGCONT)

    def _answers(self) -> bool:
        try:
            urllib.request.urlopen(f"{self.url}/health", timeout=5).close()
        except OSError:
            return False
        return True
