"""Turn a fork of the zygote into the kernel of one trial."""

from __future__ import annotations

import atexit
import gc
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from . import generators
from .cells import SharedCells, connection_file_of, reopen_files
from .finders import install_snapshot_finder, make_importable
from .libraries import Libraries
from .server import Server
from .shell import App

_PACKAGE_FOLDER = str(Path(__file__).parents[3])
_FINDERS = Path(__file__).with_name("finders.py")


#: Their exit handlers see to what the fork itself logs, starts and makes.
_KEPT_HANDLERS = ("logging", "multiprocessing.util", "weakref")


def serve_forks(
    path: str, *, owner: int, report: int, thresholds: tuple[int, int, int]
) -> NoReturn:
    """Import what stdin lists, write to `report` whether kernels can be forked, and fork them.

    Args:
        path: of the socket at which requests for forks come in.
        owner: a pipe whose end ends this process.
        report: where the report goes.
        thresholds: those of the garbage collector in an interpreter that starts; it sleeps until
            the imports are done.
    """
    asleep = gc.get_threshold()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C at the terminal is meant for the sweep
    wanted = json.load(sys.stdin)
    before = dict(os.environ)
    try:
        app: App = App.instance(parent_handle=os.getppid())
        app.boot(wanted["argv"])
        release_exit_handlers = _hold_exit_handlers()
        make_importable(_PACKAGE_FOLDER)
        if wanted["frozen"] is not None:
            install_snapshot_finder(_FINDERS.read_text(encoding="utf-8"), wanted["frozen"])
        libraries = Libraries(wanted["modules"], wanted["environment"], app=app, before=before)
    except Exception as error:  # noqa: BLE001  an ipykernel of another version may have other parts
        nothing = {"exclude": [], "acting": [], "duration_s": 0.0}
        _write_report(report, {**nothing, "refusal": _why_not_booted(error)})
        os._exit(1)
    if gc.get_threshold() == asleep:  # else an import has set others, as in a started kernel
        gc.set_threshold(*thresholds)
    server = Server(path, owner)
    _write_report(
        report,
        {
            "refusal": libraries.refusal,
            "exclude": libraries.exclude,
            "acting": list(libraries.acting),
            "duration_s": libraries.duration_s,
        },
    )
    request, descriptors = server.serve()
    cells: SharedCells | None = None
    if "cells" in request:
        _take_over(request, descriptors[0], libraries)
        cells = SharedCells(request["cells"], app)
        server = Server(request["path"], None)
        _write_report(descriptors[1], cells.report)
        if cells.report["why"] is not None:
            os._exit(0)
        request, descriptors = server.serve()
    release_exit_handlers()
    _become_kernel(request, descriptors[0], libraries, app, cells)


def _hold_exit_handlers() -> Callable[[], None]:
    """Let no library register an exit handler until the returned function is called.

    Each fork would run it, and remove, say, a temporary folder that all of them use.
    """
    register: Any = atexit.register
    held = [True]

    def register_later(function: Any, *arguments: Any, **options: Any) -> Any:
        if held and getattr(function, "__module__", None) not in _KEPT_HANDLERS:
            return function
        return register(function, *arguments, **options)

    atexit.register = register_later  # type: ignore[assignment]
    return held.clear


def _why_not_booted(error: Exception) -> str:
    from importlib.metadata import version

    python = ".".join(map(str, sys.version_info[:2]))
    return (
        f"kernels of ipykernel {version('ipykernel')} on Python {python} cannot be forked "
        f"({type(error).__name__}: {error}); with `pip install -U ipykernel` in their environment "
        "they can"
    )


def _write_report(descriptor: int, message: dict[str, Any]) -> None:
    with os.fdopen(descriptor, "w") as stream:
        json.dump(message, stream)


def _take_over(request: dict[str, Any], output: int, libraries: Libraries) -> None:
    """Give this fork the environment, output and folder that the request states."""
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
    process: Any = sys.modules.get("multiprocessing.process")
    if process is not None:
        process.ORIGINAL_DIR = str(Path.cwd())  # where the workers that it spawns find modules
    sys.argv = request["argv"]
    reopen_files()
    generators.reseed()


def _become_kernel(
    request: dict[str, Any],
    output: int,
    libraries: Libraries,
    app: App,
    cells: SharedCells | None,
) -> NoReturn:
    code = 0
    try:
        _take_over(request, output, libraries)
        if cells is None:
            app.attach(connection_file_of(request["argv"]))
        else:
            cells.kernel(request["argv"])
        # As deep as a started kernel, or the limit of recursion would lie elsewhere. Python before
        # 3.12 also counts the builtin `exec` that runs the module of a started one.
        _deeper(1 if sys.version_info < (3, 12) else 0, app.start)
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except BaseException:  # noqa: BLE001  printed as an interpreter would
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


def _exit(app: Any, code: int) -> NoReturn:
    """End with the visible effects of an interpreter's end, without tearing down every module."""
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
