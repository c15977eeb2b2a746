"""Processes that are forked from one that has already imported what they need.

Each request gets a separate process that can be killed, with its own environment, folder and
outputs. The imports, which take most of a short call, happen once for all tests. This module
imports only the standard library, because each process that forks imports what its forks need.
"""

from __future__ import annotations

import array
import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

ROOT = Path(__file__).parents[2]
_MESSAGE_BYTES = 1 << 20


class Forked:
    """A forked process, with those parts of `subprocess.Popen` that its users need.

    Args:
        request: Description of the work, as JSON data.
        descriptors: Open files that the process gets. The calling process closes them.
        server: Socket to the process that forks.
    """

    stdin = stdout = stderr = None

    def __init__(
        self, request: Mapping[str, Any], descriptors: list[int], *, server: socket.socket
    ) -> None:
        self._status, for_status = os.pipe()
        environment = {"cwd": str(Path.cwd()), "env": dict(os.environ)}
        data = json.dumps({**environment, **request}).encode()
        descriptors = [*descriptors, for_status]
        socket.send_fds(server, [data], descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        self.pid = _read_number(self._status)
        self.returncode: int | None = None
        self._reading = threading.Lock()

    def poll(self) -> int | None:
        """Return the exit code, negative for a signal. None while the process runs."""
        if self.returncode is None and select.select([self._status], [], [], 0)[0]:
            self.wait()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end of the process. Return its exit code."""
        with self._reading:
            if self.returncode is None:
                if not select.select([self._status], [], [], timeout)[0]:
                    raise subprocess.TimeoutExpired("a forked process", timeout or 0.0)
                self.returncode = _read_number(self._status)
                os.close(self._status)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal to the process, if it runs."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)


def start_server(
    script: str, *passed: socket.socket, env: Mapping[str, str] | None = None
) -> socket.socket:
    """Return a socket to a process that forks. All processes of a test run share this process.

    The first call in a test run starts the process. It ends when all sockets to it are closed.

    Args:
        script: Python file that the process runs. Its arguments are the numbers of its sockets: the
            one at which it listens, then those in `passed`.
        passed: Sockets that the process inherits.
        env: Environment of the process. None for the present one.
    """
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))
    address = f"{tempfile.gettempdir()}/{Path(script).stem}-{run}.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        try:
            listening.bind(address)
        except OSError:  # another test process already listens there
            return _connected(address)
        listening.listen()
        numbers = [it.fileno() for it in (listening, *passed)]
        subprocess.Popen(
            [sys.executable, script, *map(str, numbers)],
            pass_fds=numbers,
            stdin=subprocess.DEVNULL,
            cwd=ROOT,
            env=env,
            start_new_session=True,  # Ctrl-C in the terminal of the tests must not reach the sweeps
        )
        return _connected(address)


def _connected(address: str) -> socket.socket:
    ours = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _MESSAGE_BYTES)
    while ours.connect_ex(address) != 0:
        time.sleep(0.01)  # the server does not listen yet
    return ours


class Server:
    """Forks this process for each request. The process must have only one thread.

    Args:
        listening: Socket for new connections. The process ends with the last connection.
    """

    def __init__(self, listening: socket.socket) -> None:
        of_forks, self._to_this = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listening = listening
        self._sockets = [listening, of_forks]
        self._woken, self._waking = os.pipe()
        self._statuses: dict[int, int] = {}

    @property
    def for_forks(self) -> socket.socket:
        """A socket through which forks can request further forks."""
        return self._to_this

    def serve(self) -> tuple[dict[str, Any], list[int]]:
        """Serve requests for ever. Return only in each fork: its request and its descriptors."""
        os.set_blocking(self._waking, False)
        signal.set_wakeup_fd(self._waking, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        while True:
            watched = {it.fileno(): it for it in self._sockets}
            ready = select.select([*watched, self._woken], [], [])[0]
            if self._woken in ready:
                os.read(self._woken, 1024)
                self._report_ends()
                continue
            asking = watched[ready[-1]]
            if asking is self._listening:
                self._sockets.append(asking.accept()[0])
                continue
            data, descriptors, _, _ = socket.recv_fds(asking, _MESSAGE_BYTES, 4)
            if not data:
                self._forget(asking)
                continue
            *others, status = descriptors
            pid = os.fork()
            if pid == 0:
                self._leave(status)
                request = json.loads(data)
                os.environ.clear()
                os.environ.update(request["env"])
                os.chdir(request["cwd"])
                return request, others
            for descriptor in others:
                os.close(descriptor)
            self._statuses[pid] = status
            _write_number(status, pid)

    def _forget(self, gone: socket.socket) -> None:
        self._sockets.remove(gone)
        gone.close()
        if len(self._sockets) == 2:
            Path(self._listening.getsockname()).unlink()
            os._exit(0)

    def _leave(self, status: int) -> None:
        """Close everything that a fork does not need."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for one in self._sockets:
            one.close()
        for descriptor in (self._woken, self._waking, status, *self._statuses.values()):
            os.close(descriptor)

    def _report_ends(self) -> None:
        """Send the exit codes of ended forks to the processes that have requested the forks."""
        while self._statuses:
            pid, state = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            status = self._statuses.pop(pid)
            _write_number(status, os.waitstatus_to_exitcode(state))
            os.close(status)


def end(code: int) -> NoReturn:
    """End a fork as an interpreter does, but without clearing every module.

    Clearing would write to all the memory that forks share, and take most of a short call.
    """
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _read_number(descriptor: int) -> int:
    data = os.read(descriptor, 4)
    assert len(data) == 4, "the process that forks has died"
    return int(array.array("i", data)[0])


def _write_number(status: int, number: int) -> None:
    with suppress(BrokenPipeError):  # the test ended before this process
        os.write(status, array.array("i", [number]).tobytes())
