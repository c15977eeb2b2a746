"""A Dask worker of this machine, which runs trials for the coordinator that leads a study."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from contextlib import suppress

#: What the process writes when the scheduler has accepted it, and before why a sweep does not.
JOINED, REFUSED = "joined", "not used: "
#: How long the worker's process has to end in order.
_END_S = 30.0


class Member:
    """A worker in a process of its own, which ends when the scheduler or this process does.

    Args:
        address: of the scheduler.
        security: with which the scheduler accepts it, see `OwnScheduler`.
        slots: how many trials run here at once.
    """

    def __init__(self, *, address: str, security: Mapping[str, str], slots: int) -> None:
        self._folder = tempfile.mkdtemp(prefix="notebook-hpo-")
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", f"{__package__}.worker_process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # a Ctrl-C on a terminal is for this process
        )
        order = {
            "address": address,
            **security,
            "slots": slots,
            "name": f"process {os.getpid()} on {socket.gethostname()}",
            "folder": self._folder,
        }
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.write(json.dumps(order) + "\n")
            self._process.stdin.flush()
        self._joined = threading.Event()
        self._refusal = ""
        self._words: list[str] = []
        self._reading = threading.Thread(target=self._read, name="member", daemon=True)
        self._reading.start()

    @property
    def has_joined(self) -> bool:
        """Whether the scheduler has accepted the worker."""
        return self._joined.is_set()

    @property
    def refusal(self) -> str:
        """Why the sweep does not use this machine; empty where it does."""
        return self._refusal

    @property
    def failure(self) -> str:
        """Why the worker could not join, once it has ended; empty where it did."""
        if self.has_joined:
            return ""
        return self._words[-1] if self._words else "its process has ended"

    def has_ended(self, timeout_s: float = 0.0) -> bool:
        """Wait for the end of the process; whether it has come."""
        self._reading.join(timeout_s)
        return not self._reading.is_alive()

    def close(self) -> None:
        """End the worker with the trials that it runs; nothing of it is left."""
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reading.join()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _read(self) -> None:
        """Take what the process writes: when it has joined, why it has not or is not used."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.strip() == JOINED:
                self._joined.set()
            elif line.startswith(REFUSED):
                self._refusal = line.removeprefix(REFUSED).strip()
            else:
                self._words.append(line.strip())
