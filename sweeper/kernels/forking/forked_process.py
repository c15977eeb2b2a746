"""The process of a forked kernel, and the request that forks it."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from .origins import SharedRun
from .zygote.messages import receive, send

#: How long a zygote may take to answer (chosen).
ANSWER_S = 10.0


class ForkedProcess:
    """A child of the zygote, with the part of `subprocess.Popen` that kernels need.

    Args:
        lease: The connection to the zygote that keeps the process alive.
        shared: The shared cells after which it was forked; None for none.

    Attributes:
        is_orphan: Whether the process ended because the zygote did.
    """

    stdin = stdout = stderr = None

    def __init__(self, lease: socket.socket, pid: int, *, shared: SharedRun | None) -> None:
        self.pid = pid
        self.shared = shared
        self.returncode: int | None = None
        self.is_orphan = False
        self._lease = lease
        try:
            self.pidfd = os.pidfd_open(pid)
        except OSError:
            lease.close()  # upon which the zygote ends the process
            raise
        self._lock = threading.Lock()

    def poll(self) -> int | None:
        """Return the exit code; None while the process runs."""
        with self._lock:
            if self.returncode is None and is_readable(self.pidfd, 0.0):
                self._collect()
            return self.returncode

    def wait(self, timeout: float | None = None) -> int | None:
        """Wait for the end; return the exit code.

        Raises:
            TimeoutExpired: The process still runs after `timeout` seconds.
        """
        if is_readable(self.pidfd, timeout) or self.returncode is not None:
            return self.poll()
        raise subprocess.TimeoutExpired("forked kernel", timeout or 0.0)

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def release(self) -> None:
        """Close the lease; the zygote then frees the process's number."""
        with self._lock:
            self._lease.close()
            os.close(self.pidfd)

    def _collect(self) -> None:
        self._lease.settimeout(ANSWER_S)
        try:
            reply, _ = receive(self._lease)
        except OSError:
            reply = None
        if reply is None:  # the zygote is gone, and has taken its children with it
            self.is_orphan = True
            self.returncode = -signal.SIGKILL
        else:
            self.returncode = int(reply["exit"])


def request_fork(
    path: str, request: Mapping[str, Any], files: Sequence[int]
) -> tuple[socket.socket, int]:
    """Let the process that serves at `path` fork a child; return the child's lease and pid.

    Args:
        files: Open descriptors that the child receives.

    Raises:
        ConnectionError: The serving process is gone.
        OSError: It does not answer, it cannot fork now, or no connection can be made.
    """
    lease = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        lease.settimeout(ANSWER_S)
        lease.connect(path)
        send(lease, dict(request), files)
        reply, _ = receive(lease)
        if reply is None:
            raise ConnectionError("it has ended")
        if "error" in reply:
            raise OSError(reply["error"])
        return lease, int(reply["pid"])
    except BaseException:
        lease.close()
        raise


def is_readable(descriptor: int, limit_s: float | None) -> bool:
    """Return whether there is something to read, or a process has ended, within a time."""
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    return bool(poller.poll(None if limit_s is None else limit_s * 1000))
