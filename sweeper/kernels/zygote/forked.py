"""What a fork becomes: the kernel of one trial."""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, NoReturn

from .cells import SharedCells
from .libraries import Libraries
from .server import Server


def live(path: str, *, owner: int, report: int) -> NoReturn:
    """Import what stdin lists, tell on `report` whether kernels can be forked, and fork them."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C at the terminal is not for us
    told = json.load(sys.stdin)
    libraries = Libraries(told["modules"], told["environment"])
    server = Server(path, owner)
    _tell(report, {"refusal": libraries.refusal})
    request, descriptors = server.serve()
    cells: SharedCells | None = None
    if "cells" in request:
        _take_over(request, descriptors[0], libraries)
        cells = SharedCells(request, libraries)
        server = Server(request["path"], None)
        _tell(descriptors[1], cells.report)
        if cells.report["why"] is not None:
            os._exit(0)
        request, descriptors = server.serve()
    _become_kernel(request, descriptors[0], libraries, cells)


def _tell(descriptor: int, message: dict[str, Any]) -> None:
    with os.fdopen(descriptor, "w") as stream:
        json.dump(message, stream)


def _take_over(request: dict[str, Any], output: int, libraries: Libraries) -> None:
    """Make this fork's process what the request asks for."""
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    for descriptor in (null, output):
        os.close(descriptor)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update({**libraries.changed, **request["env"], "JPY_PARENT_PID": str(os.getppid())})
    time.tzset()
    os.chdir(request["cwd"])
    sys.argv = request["argv"]
    _fresh_random_state()


def _become_kernel(
    request: dict[str, Any], output: int, libraries: Libraries, cells: SharedCells | None
) -> NoReturn:
    from ipykernel.kernelapp import IPKernelApp

    code = 0
    app: Any = None
    try:
        _take_over(request, output, libraries)
        if cells is None:
            app = IPKernelApp.instance(parent_handle=os.getppid())
            app.initialize(request["argv"][1:])
            libraries.order_filters()
        else:
            app = cells.kernel(request["argv"])
        # As deep as a started kernel, or the limit of recursion would lie elsewhere.
        _deeper(1, app.start)
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except BaseException:  # noqa: BLE001  told as an interpreter would
        import traceback

        traceback.print_exc(file=sys.__stderr__)
        code = 1
    _exit(app, code)


def _deeper(frames: int, call: Callable[[], None]) -> None:
    """Call with so many frames more on the stack, and one."""
    if frames:
        _deeper(frames - 1, call)
    else:
        call()


def _fresh_random_state() -> None:
    """What a new process would draw: forks of one process would all draw the same."""
    import random

    random.seed()
    numpy = sys.modules.get("numpy")
    if numpy is not None and "numpy.random.mtrand" in sys.modules:
        numpy.random.seed()
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.default_generator.seed()


def _exit(app: Any, code: int) -> NoReturn:
    """End as an interpreter does where it can be seen, without taking down every module."""
    import atexit
    import io

    thread = getattr(app, "control_thread", None)
    if thread is not None and thread.is_alive():
        thread.join(1.0)
    try:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        for thing in gc.get_objects():
            if isinstance(thing, (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom)):
                try:
                    if not thing.closed:
                        thing.flush()
                except Exception:  # noqa: BLE001  as at the end of an interpreter
                    continue
    finally:
        os._exit(code)
