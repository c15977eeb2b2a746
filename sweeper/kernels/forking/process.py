"""The process of a kernel that was forked, not started."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import threading

from .zygote.messages import receive

_ANSWER_S = 10.0


class ForkedProcess:
    """The part of `subprocess.Popen` that is used of a kernel, for a child of the zygote."""

    stdin = stdout = stderr = None

    def __init__(self, lease: socket.socket, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        #: Whether it was the zygote's end that ended it.
        self.is_orphan = False
        self._lease = lease
        self.pidfd = os.pidfd_open(pid)
        self._lock = threading.Lock()

    def poll(self) -> int | None:
        """The exit code; None while it runs."""
        with self._lock:
            if self.returncode is None and is_readable(self.pidfd, 0.0):
                self._collect()
            return self.returncode

    def wait(self, timeout: float | None = None) -> int | None:
        """Wait for its end."""
        if is_readable(self.pidfd, timeout) or self.returncode is not None:
            return self.poll()
        raise subprocess.TimeoutExpired("forked kernel", timeout or 0.0)

    def send_signal(self, number: int) -> None:
        """Send it a signal, if it is still there."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill it."""
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def release(self) -> None:
        """Give the lease back; its number may be another's from now on."""
        with self._lock:
            self._lease.close()
            os.close(self.pidfd)

    def _collect(self) -> None:
        self._lease.settimeout(_ANSWER_S)
        try:
            told, _ = receive(self._lease)
        except OSError:
            told = None
        # Without an answer the zygote is gone, and has taken its children with it.
        self.is_orphan = told is None
        self.returncode = -signal.SIGKILL if told is None else int(told["exit"])


def is_readable(descriptor: int, limit_s: float | None) -> bool:
    """Whether there is something to read, or a process has ended, within a time."""
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    return bool(poller.poll(None if limit_s is None else limit_s * 1000))
