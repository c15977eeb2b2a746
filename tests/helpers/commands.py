"""Run the command line in processes that are forked with its libraries already imported.

Each call has a separate process that can be killed, as from a shell. The imports of MLflow and
other libraries, which take most of a short call, happen once for all tests. The processes that
write to MLflow are forked in the same way, both for commands and for sweeps in a test's own
process.
"""

from __future__ import annotations

import fcntl
import gc
import importlib
import os
import runpy
import socket
import sqlite3
import subprocess
import sys
import tempfile
import termios
import threading
import traceback
from collections.abc import Mapping
from contextlib import suppress
from functools import cache, partial
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, Any

import kernel_boots
import quick_imports  # noqa: F401
from forked import ROOT, Forked, Server, end, start_server

from sweeper.testing import write_notebook
from sweeper.tracking import writer


class Command(Forked):
    """A running call of the command line, with those parts of `subprocess.Popen` that tests need.

    Args:
        stdout: File for stdout. None for a pipe.
        stderr: File for stderr. None for a pipe, `subprocess.STDOUT` for the same file as stdout.
        script: Python file that runs in place of the command line.
        terminal: Terminal in which the call runs, in its own session. None for no terminal.
    """

    def __init__(
        self,
        *arguments: str,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        stdout: IO[str] | None = None,
        stderr: IO[str] | int | None = None,
        script: str | Path | None = None,
        terminal: int | None = None,
    ) -> None:
        self.stdout: IO[str] | None = None  # type: ignore[assignment]
        self.stderr: IO[str] | None = None  # type: ignore[assignment]
        if terminal is not None:
            for_stdout = terminal
        elif stdout is None:
            self.stdout, for_stdout = _pipe()
        else:
            for_stdout = os.dup(stdout.fileno())
        if terminal is not None or isinstance(stderr, int):
            for_stderr = os.dup(for_stdout)
        elif stderr is None:
            self.stderr, for_stderr = _pipe()
        else:
            for_stderr = os.dup(stderr.fileno())
        request = {
            "arguments": arguments,
            "has_terminal": terminal is not None,
            "script": None if script is None else str(script),
            "cwd": str(cwd or Path.cwd()),
            "env": dict(os.environ if env is None else env),
        }
        super().__init__(request, [for_stdout, for_stderr], server=_server())

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Read both outputs until they end, and wait for the end of the process."""
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
    """Run the command line, or a script, until it ends."""
    command = Command(*arguments, cwd=cwd, env=env, script=script)
    stdout, stderr = command.communicate()
    return subprocess.CompletedProcess(arguments, command.wait(), stdout, stderr)


def project(
    *cells: str, settings: str, parameters: str = "x = 0.5", folder: Path = Path(), shared: int = 0
) -> list[str]:
    """Write a notebook and its parameters file.

    Return the options that name them and their outputs.

    Args:
        cells: Cells of the notebook after the parameters cell.
        settings: Text of the parameters file. If it lacks `objective` or `space`, a default is
            added.
        folder: Folder in which the command runs.
        shared: Number of cells with the tag `shared`.
    """
    write_notebook(folder / "nb.ipynb", *cells, parameters=parameters, shared=shared)
    usual = {"objective": "{val: maximize}", "space": "{x: {low: 0.0, high: 1.0}}"}
    left_out = [f"{key}: {text}" for key, text in usual.items() if f"{key}:" not in settings]
    (folder / "p.yml").write_text("\n".join([*left_out, settings]))
    return ["-i", "nb.ipynb", "-o", "out/{run_id}.ipynb", "-p", "p.yml"]


def launch_writer(server: socket.socket | None = None) -> tuple[Forked, Connection]:
    """Replace `writer.launch`: fork the process that writes to MLflow."""
    ours, theirs = Pipe()
    return Forked({}, [os.dup(theirs.fileno())], server=server or _server()), ours


def hasten_sqlite() -> None:
    """Let SQLite's commits not wait for the disk. Tests kill processes, but never the system."""
    from sqlalchemy import event
    from sqlalchemy.engine import Engine

    @event.listens_for(Engine, "connect")
    def _(connection: Any, _record: Any) -> None:
        if isinstance(connection, sqlite3.Connection):
            with suppress(sqlite3.Error):  # a damaged file is reported by later statements
                connection.execute("PRAGMA synchronous=OFF")


def read_migrations_once() -> None:
    """Let Optuna read and compile its migrations once, not whenever a storage is opened."""
    from optuna.storages._rdb.storage import _VersionManager

    read = _VersionManager._create_alembic_script
    scripts: list[Any] = []

    def once(manager: Any) -> Any:
        if not scripts:
            scripts.append(read(manager))
        return scripts[0]

    _VersionManager._create_alembic_script = once  # type: ignore[method-assign, assignment]


def _pipe() -> tuple[IO[str], int]:
    read_end, write_end = os.pipe()
    return open(read_end, encoding="utf-8"), write_end


@cache
def _server() -> socket.socket:
    """Return a socket to the process that forks commands. Kernels of commands are forked, too."""
    return start_server(__file__, kernel_boots.server())


# --- the process that forks commands -------------------------------------------------------------

_PRELOADED = (
    *("sweeper.sweep", "sweeper.sync", "sweeper.control.lookup", "sweeper.control.status"),
    *("mlflow", "mlflow.store.tracking.sqlalchemy_store", "optuna.storages", "rich.console"),
    *("ipykernel.kernelspec", "s3fs", "optuna.importance"),
    "scipy.stats",  # used by `sampler: auto`, the default, for the first trials
)


def _begin(request: Mapping[str, Any], files: list[int], server: Server) -> None:
    """Prepare a fork to run a command. If none is requested, write to MLflow and never return."""
    if "arguments" not in request:
        _write(files[0])
    if request["has_terminal"]:
        os.setsid()
        fcntl.ioctl(files[0], termios.TIOCSCTTY, 0)
        os.dup2(files[0], 0)
        sys.stdin = open(0, closefd=False)  # noqa: SIM115
    for name, descriptor, number in zip(("stdout", "stderr"), files, (1, 2), strict=True):
        os.dup2(descriptor, number)
        os.close(descriptor)
        stream = open(number, "w", buffering=1, closefd=False)  # noqa: SIM115
        setattr(sys, name, stream)
    writer.launch = partial(launch_writer, server.for_forks)  # type: ignore[assignment]


def _write(connection: int) -> None:
    """Write to MLflow until the connection ends. This never returns."""
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for number in (1, 2):
        os.dup2(null, number)
    writer.main(connection)


def _run(script: str) -> int:
    """Run a Python file as an interpreter does. Return its exit code."""
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
    """Make a study, an MLflow store and a page, because the first of each takes seconds."""
    from mlflow import MlflowClient
    from optuna.storages import RDBStorage

    from sweeper.notebooks.html import render
    from sweeper.tracking.files import forget_connections, make_store

    with tempfile.TemporaryDirectory() as folder:
        render(write_notebook(Path(folder, "nb.ipynb"), "1"))
        store = Path(folder, "mlflow.db")
        make_store(store)
        client = MlflowClient(f"sqlite:///{store}")
        client.create_run(client.create_experiment("first"))
        forget_connections(f"sqlite:///{store}")
        storage = RDBStorage(f"sqlite:///{folder}/study.db")
        storage.remove_session()
        storage.engine.dispose()


if __name__ == "__main__":
    gc.disable()  # collections would scan all imported modules again and again
    sys.path[0] = str(ROOT)
    # A telemetry thread would not exist in the forks.
    os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
    for module in _PRELOADED:
        importlib.import_module(module)
    hasten_sqlite()
    read_migrations_once()
    _write_once()
    from sweeper.cli import main

    own, of_kernels = (socket.socket(fileno=int(number)) for number in sys.argv[1:])
    kernel_boots.boot_forked(of_kernels)
    assert threading.active_count() == 1, threading.enumerate()
    gc.freeze()
    gc.enable()
    server = Server(own)
    request, files = server.serve()
    _begin(request, files, server)
    script = request["script"]
    sys.argv = [script or "notebook_hpo.py", *request["arguments"]]
    end(main() if script is None else _run(script))
