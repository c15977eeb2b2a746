"""Ask the zygote (the process that kernels are forked from) for a fork, and manage the fork."""

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

#: Longest wait for a zygote's answer, in seconds (chosen, not measured).
ANSWER_S = 10.0


class ForkedProcess:
    """Forked process of a kernel, with the methods and attributes of `Popen` that kernels need.

    Args:
        lease: Connection to the parent, which kills the process when the connection closes.
        pid: Process id.
        shared: Shared cells that ran before the fork. None if there are none.

    Attributes:
        returncode: Exit code, negative for a signal. None while the process runs.
        is_orphan: Whether the process ended because its parent has ended.
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
            lease.close()  # This makes the zygote end the process.
            raise
        self._lock = threading.Lock()

    def poll(self) -> int | None:
        """Return the exit code. Return None while the process runs."""
        with self._lock:
            if self.returncode is None and is_readable(self.pidfd, 0.0):
                self._collect()
            return self.returncode

    def wait(self, timeout: float | None = None) -> int | None:
        """Wait for the end of the process, and return its exit code.

        Args:
            timeout: Longest wait in seconds. None for no limit.

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
        """Close the connection to the parent process, which then frees the process id."""
        with self._lock:
            self._lease.close()
            os.close(self.pidfd)

    def _collect(self) -> None:
        self._lease.settimeout(ANSWER_S)
        try:
            reply, _ = receive(self._lease)
        except OSError:
            reply = None
        if reply is None:  # The zygote has ended, and so have its children.
            self.is_orphan = True
            self.returncode = -signal.SIGKILL
        else:
            self.returncode = int(reply["exit"])


def request_fork(
    path: str, request: Mapping[str, Any], files: Sequence[int]
) -> tuple[socket.socket, int]:
    """Ask the process that listens at `path` to fork a child.

    Args:
        path: Path of the socket.
        request: Request for a kernel or for shared cells, in the form that `serve_forks` reads.
        files: Open file descriptors that the child receives.

    Returns:
        The connection, and the child's process id. The child is killed when the connection closes.

    Raises:
        ConnectionError: The process at `path` has ended.
        OSError: The process at `path` does not answer or cannot fork now, or no connection can be
            made.
    """
    lease = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        lease.settimeout(ANSWER_S)
        lease.connect(path)
        send(lease, dict(request), files)
        reply, _ = receive(lease)
        if reply is None:
            raise ConnectionError(f"the zygote that listens at {path} has ended")
        if "error" in reply:
            raise OSError(reply["error"])
        return lease, int(reply["pid"])
    except BaseException:
        lease.close()
        raise


def is_readable(descriptor: int, limit_s: float | None) -> bool:
    """Return whether a file descriptor becomes readable within a time.

    The pidfd of a process becomes readable when the process ends.

    Args:
        descriptor: File descriptor.
        limit_s: Longest wait in seconds. None for no limit.
    """
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    return bool(poller.poll(None if limit_s is None else limit_s * 1000))
