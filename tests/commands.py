"""Run the command line in processes that are forked with its libraries imported.

A process of its own for each call, which can be killed, as from a shell; but what takes most of a
short call, the imports of MLflow and the other libraries, happens once for all tests. The same for
the processes that write to MLflow, of commands and of sweeps in the tests' own process.
"""

from __future__ import annotations

import array
import atexit
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Mapping
from contextlib import suppress
from functools import cache, partial
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, Any, NoReturn

from sweeper.tracking import writing_process

ROOT = Path(__file__).parents[1]
_MESSAGE_BYTES = 1 << 20


class Forked:
    """A process that was forked here; as much of `subprocess.Popen` as its users need.

    Args:
        request: what the process does, as JSON data.
        descriptors: open files that it gets; they are closed here.
        server: the socket to the process that forks; None for that of the tests.
    """

    def __init__(
        self, request: Any, descriptors: list[int], *, server: socket.socket | None = None
    ) -> None:
        self._status, for_status = os.pipe()
        environment = {"cwd": str(Path.cwd()), "env": dict(os.environ)}
        data = json.dumps({**environment, **request}).encode()
        descriptors = [*descriptors, for_status]
        socket.send_fds(server or _server(), [data], descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        self.pid = _read_number(self._status)
        self.returncode: int | None = None
        self._reading = threading.Lock()

    def poll(self) -> int | None:
        """The exit code, negative for a signal; None while the process runs."""
        if self.returncode is None and select.select([self._status], [], [], 0)[0]:
            self.wait()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the process's end; its exit code."""
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
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)


class Command(Forked):
    """A call of the command line that runs; as much of `subprocess.Popen` as the tests need.

    Args:
        stdout: where the output goes; None for a pipe.
        stderr: likewise; `subprocess.STDOUT` for where the output goes.
        script: a Python file that runs in place of the command line.
    """

    def __init__(
        self,
        *arguments: str,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        stdout: IO[str] | None = None,
        stderr: IO[str] | int | None = None,
        script: str | Path | None = None,
    ) -> None:
        self.stdout: IO[str] | None = None
        self.stderr: IO[str] | None = None
        if stdout is None:
            self.stdout, for_stdout = _pipe()
        else:
            for_stdout = os.dup(stdout.fileno())
        if stderr is None:
            self.stderr, for_stderr = _pipe()
        else:
            for_stderr = os.dup(for_stdout if isinstance(stderr, int) else stderr.fileno())
        request = {
            "arguments": arguments,
            "script": None if script is None else str(script),
            "cwd": str(cwd or Path.cwd()),
            "env": dict(os.environ if env is None else env),
        }
        super().__init__(request, [for_stdout, for_stderr])

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Read both outputs to their ends, and wait for the process's end."""
        texts = ["", ""]

        def read(index: int, pipe: IO[str]) -> None:
            texts[index] = pipe.read()
            pipe.close()

        pipes = [pipe for pipe in (self.stdout, self.stderr) if pipe is not None]
        places = [index for index, pipe in enumerate((self.stdout, self.stderr)) if pipe]
        readers = [
            threading.Thread(target=read, args=pair, daemon=True)
            for pair in zip(places, pipes, strict=True)
        ]
        for reader in readers:
            reader.start()
        self.wait(timeout)
        for reader in readers:
            reader.join(timeout)
        return texts[0], texts[1]


def call(
    *arguments: str,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    script: str | Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """Call the command line, or a script, and wait for its end."""
    command = Command(*arguments, cwd=cwd, env=env, script=script)
    stdout, stderr = command.communicate()
    return subprocess.CompletedProcess(arguments, command.wait(), stdout, stderr)


def launch_writer(server: socket.socket | None = None) -> tuple[Forked, Connection]:
    """Replaces `writing_process.launch`."""
    ours, theirs = Pipe()
    return Forked({}, [os.dup(theirs.fileno())], server=server), ours


def _pipe() -> tuple[IO[str], int]:
    read_end, write_end = os.pipe()
    return open(read_end, encoding="utf-8"), write_end


def _read_number(descriptor: int) -> int:
    data = os.read(descriptor, 4)
    assert len(data) == 4, "the process that forks commands has died"
    return int(array.array("i", data)[0])


@cache
def _server() -> socket.socket:
    """A socket to the process that forks commands; it ends with the last test."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _MESSAGE_BYTES)
    with theirs:
        subprocess.Popen(
            [sys.executable, __file__, str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            cwd=ROOT,
            start_new_session=True,  # Ctrl-C in the tests' terminal is none for the sweeps
        )
    return ours


# --- the process that forks commands -------------------------------------------------------------

_PRELOADED = (
    *("sweeper.sweep", "sweeper.sync", "sweeper.control.lookup", "sweeper.control.status"),
    *("mlflow", "mlflow.store.tracking.sqlalchemy_store", "optuna.storages", "rich.console"),
    *("ipykernel.kernelspec", "s3fs", "optuna.importance"),
)


def _serve(requests: socket.socket) -> tuple[str | None, list[str]]:
    """Fork a process for each request; return in that of a command: its script and arguments."""
    of_commands, to_commands = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    woken, waking = os.pipe()
    os.set_blocking(waking, False)
    signal.set_wakeup_fd(waking, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    statuses: dict[int, int] = {}
    while True:
        watched: list[Any] = [requests, of_commands, woken]
        ready = select.select(watched, [], [])[0]
        if woken in ready:
            os.read(woken, 1024)
            _report_ends(statuses)
            continue
        data, descriptors, _, _ = socket.recv_fds(ready[-1], _MESSAGE_BYTES, 3)
        if not data:
            os._exit(0)
        *others, status = descriptors
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            requests.close()
            of_commands.close()
            for descriptor in (woken, waking, status, *statuses.values()):
                os.close(descriptor)
            request = json.loads(data)
            os.environ.clear()
            os.environ.update(request["env"])
            os.chdir(request["cwd"])
            if "arguments" not in request:
                _write(others[0])
            for descriptor, number in zip(others, (1, 2), strict=True):
                os.dup2(descriptor, number)
                os.close(descriptor)
            writing_process.launch = partial(launch_writer, to_commands)
            return request["script"], list(request["arguments"])
        for descriptor in others:
            os.close(descriptor)
        statuses[pid] = status
        _tell(status, pid)


def _report_ends(statuses: dict[int, int]) -> None:
    """Pass on the exit codes of the processes that have ended."""
    while statuses:
        pid, state = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        status = statuses.pop(pid)
        _tell(status, os.waitstatus_to_exitcode(state))
        os.close(status)


def _tell(status: int, number: int) -> None:
    with suppress(BrokenPipeError):  # a test has ended without the process
        os.write(status, array.array("i", [number]).tobytes())


def _write(connection: int) -> None:
    """Write to MLflow until the connection ends; never returns."""
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for number in (1, 2):
        os.dup2(null, number)
    writing_process.main(connection)


def _end(code: int) -> NoReturn:
    """End as an interpreter does, but without tearing down every module.

    That would write to all the memory which forks share, and take most of a short call.
    """
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _run(script: str) -> int:
    """Run a Python file as an interpreter does; its exit code."""
    sys.path.insert(0, str(Path(script).parent))
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 — as an interpreter does
        traceback.print_exc()
        return 1
    return 0


def _write_once() -> None:
    """Make a study, an MLflow store and a page: the first time imports and prepares much."""
    from mlflow import MlflowClient
    from optuna.storages import RDBStorage

    from sweeper.notebooks.html import render_html
    from sweeper.testing import write_notebook
    from sweeper.tracking.files import forget_connections
    from sweeper.tracking.new_store import make_store

    with tempfile.TemporaryDirectory() as folder:
        render_html(write_notebook(Path(folder, "nb.ipynb"), "1"))
        store = Path(folder, "mlflow.db")
        make_store(store)
        client = MlflowClient(f"sqlite:///{store}")
        client.create_run(client.create_experiment("first"))
        forget_connections(f"sqlite:///{store}")
        storage = RDBStorage(f"sqlite:///{folder}/study.db")
        storage.remove_session()
        storage.engine.dispose()


if __name__ == "__main__":
    gc.disable()  # it would look at all that is imported, again and again
    sys.path[0] = str(ROOT)
    os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"  # its thread would not be in the forks
    for module in _PRELOADED:
        importlib.import_module(module)
    _write_once()
    from sweeper.cli import main

    assert threading.active_count() == 1, threading.enumerate()
    gc.freeze()
    gc.enable()
    script, arguments = _serve(socket.socket(fileno=int(sys.argv[1])))
    sys.argv = [script or "notebook_hpo.py", *arguments]
    _end(main() if script is None else _run(script))
