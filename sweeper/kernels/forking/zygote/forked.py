"""Turn a fork of the zygote (the process that kernels are forked from) into a trial's kernel."""

from __future__ import annotations

import atexit
import os
import random
import signal
import socket
import sys
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import in_kernel
from .exit import FastExit
from .finders import install
from .messages import receive, send
from .server import Server

if TYPE_CHECKING:
    from .libraries import Libraries

_PACKAGE_FOLDER = str(Path(__file__).parents[3])
_FINDERS = Path(__file__).with_name("finders.py")

#: Modules whose exit handlers also run in forks. If another module registers an exit handler during
#: the imports or in a shared cell, the handler is ignored. The sweep's own code needs the kept
#: handlers in every fork: it logs, starts processes and makes weak references.
_KEPT_HANDLERS = ("logging", "multiprocessing.util", "weakref")


def serve_forks(path: str, *, owner: int, ending: FastExit) -> None:
    """Import the modules that the sweep lists, report whether kernels can be forked, and fork them.

    The call returns only in a fork, when its kernel has ended.

    Args:
        path: Path of the socket for requests to fork.
        owner: File descriptor of the socket to the sweep. This process, the zygote, ends when the
            socket closes.
        ending: Object that ends forked kernels quickly.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in the terminal is for the sweep.
    in_kernel.leave_the_end_to_the_sweep()
    connection = socket.socket(fileno=owner)
    wanted, _ = receive(connection)
    assert wanted is not None
    try:
        # These modules need ipykernel and `comm`, which an old environment may lack.
        from .cells import CellsProcess
        from .libraries import Libraries
        from .shell import App

        app: App = App.instance(parent_handle=os.getppid())
        app.boot(wanted["argv"])
        release_exit_handlers = _hold_exit_handlers()
        install(_FINDERS.read_text(encoding="utf-8"), _PACKAGE_FOLDER, wanted["frozen"])
        libraries = Libraries(wanted["modules"], app=app, before=wanted["env"])
    except Exception as error:  # noqa: BLE001  Another version of ipykernel may raise anything.
        refusal = _why_not_booted(error)
        report = {"refusal": refusal, "exclude": [], "environment": {}, "duration_s": 0.0}
        send(connection, report)
        os._exit(1)
    server = Server(path, connection)
    report = {name: getattr(libraries, name) for name in ("refusal", "exclude", "duration_s")}
    report["environment"] = {name: value for name, (_, value) in libraries.changed.items()}
    send(connection, report)
    request, descriptors = server.serve()
    attach = app.attach
    if "cells" in request:
        output, answer = descriptors
        _take_over(request, output, libraries)
        cells = CellsProcess(request["cells"], request["random_seed"], app)
        ending.note_files()
        server = Server(request["path"], None)
        with socket.socket(fileno=answer) as connection:
            send(connection, cells.report)
        if cells.report["why"] is not None:
            os._exit(0)
        attach = cells.attach
        request, descriptors = server.serve()
    release_exit_handlers()
    ending.begin()
    _take_over(request, descriptors[0], libraries)
    attach(request["connection_file"])
    try:
        app.start()  # type: ignore[no-untyped-call]
    except BaseException as error:
        code = getattr(error, "code", 1)
        ending.code = code if isinstance(code, int) else int(code is not None)
        raise


def _hold_exit_handlers() -> Callable[[], None]:
    """Ignore exit handlers that libraries register, until the returned function is called.

    Otherwise, each fork would run these handlers when it ends. A handler may, for example, remove a
    temporary folder that all forks use.
    """
    register: Any = atexit.register
    finalize: Any = weakref.finalize.__init__
    held = [True]

    def register_later(function: Any, *arguments: Any, **options: Any) -> Any:
        if held and getattr(function, "__module__", None) not in _KEPT_HANDLERS:
            return function
        return register(function, *arguments, **options)

    def make_finalizer(self: Any, /, *arguments: Any, **options: Any) -> None:
        finalize(self, *arguments, **options)
        self.atexit = not held

    atexit.register = register_later  # type: ignore[assignment]
    weakref.finalize.__init__ = make_finalizer  # type: ignore[method-assign]
    return held.clear


def _why_not_booted(error: Exception) -> str:
    from importlib.metadata import version

    python = ".".join(map(str, sys.version_info[:2]))
    return (
        f"kernels of ipykernel {version('ipykernel')} on Python {python} cannot be forked "
        f"({type(error).__name__}: {error}); run `pip install -U ipykernel` in the environment of "
        "the kernels"
    )


def _take_over(request: dict[str, Any], output: int, libraries: Libraries) -> None:
    """Set the environment, arguments and output of this fork as the request states.

    Args:
        request: Request for a kernel or for shared cells, with `env` and `argv`.
        output: File descriptor that becomes the standard output and error of this process.
        libraries: Imports of the zygote, the process that kernels are forked from. If its start or
            imports have changed an environment variable, the fork gets the new value. Exception:
            the request has another value than the one with which the zygote was started.
    """
    from .cells import reopen_files

    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    for descriptor in (null, output):
        os.close(descriptor)
    for number in in_kernel.ENDING_SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    in_kernel.leave_the_end_to_the_sweep()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(request["env"])
    for name, (before, value) in libraries.changed.items():
        if os.environ.get(name) != before:
            continue
        if value is None:
            del os.environ[name]
        else:
            os.environ[name] = value
    os.environ["JPY_PARENT_PID"] = str(os.getppid())
    time.tzset()
    sys.argv = request["argv"]
    reopen_files()
    random.seed()  # Otherwise, all forks would draw the same random ports.
