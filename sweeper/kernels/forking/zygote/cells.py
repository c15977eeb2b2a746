"""The leading cells of a notebook, run once; kernels are forked with everything they have made.

They run in the shell that each forked kernel goes on with, under a session that records messages
in place of sending them; the sweep replays them into the executed notebook of each trial.
"""

from __future__ import annotations

import os
import stat
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from . import generators, libraries
from .effects import Effects
from .finders import is_frozen
from .imports import around_imports, installed_folders, is_installed
from .shell import LOST, App

#: Messages that can be replayed; any other needs the kernel that it came from.
_REPLAYABLE = (
    *("stream", "display_data", "execute_result"),
    *("update_display_data", "clear_output"),
)
_HIDDEN = object()
#: This package, which a development environment has outside of its installed libraries.
_OUR_PACKAGE = "sweeper"


class SharedCells:
    """The process in which the cells have run.

    Args:
        request: `cells`, in order, each with its `source` and whether it `is_parameters`; `swept`,
            the names that each trial gets its own value of.
        app: the kernel's application, booted by half.

    Attributes:
        report: `why` the cells cannot be shared (None when they can), which of them is to blame
            (`refused_at`), for each one its messages, its time and the modules of the project that
            it has imported (`cells`), and the generators that they have `seeded`.
    """

    def __init__(self, request: dict[str, Any], app: App) -> None:
        self._app = app
        app.enter_fork()
        app.recorder.take()
        self._files = libraries.open_files()
        self._output_bytes = _output_bytes()
        self._known_modules = set(sys.modules)
        self._unseeded = _Unseeded()
        self._folders = installed_folders()
        self._effects = Effects()
        environment = dict(os.environ)
        self.report: dict[str, Any] = {"cells": [], "refused_at": None, "why": None}
        swept, defaults = request["swept"], {}
        for index, cell in enumerate(request["cells"]):
            self.report["cells"].append(self._run(cell["source"]))
            if cell["is_parameters"]:
                defaults = self._hide(swept)
            why = self._lost()
            if why is None and self._are_assigned(swept, hidden=defaults):
                why = "it assigns a swept name"
            if why is not None:
                self.report.update(refused_at=index, why=why)
                return
        self._show(defaults)
        self._environment = {
            k: os.environ.get(k)
            for k in {*environment, *os.environ}
            if environment.get(k) != os.environ.get(k)
        }
        self._cwd = Path.cwd()
        self._states = self._unseeded.seeded()
        self.report["seeded"] = sorted(self._states)
        libraries.settle()
        answer = libraries.in_a_fork(self._try_a_kernel)
        if answer != "fine":
            last = len(request["cells"]) - 1
            why = answer or "a kernel forked after it did not boot"
            self.report.update(refused_at=last, why=why)

    def kernel(self, argv: Sequence[str]) -> App:
        """In a fork: the kernel's application, ready to start."""
        for name, value in self._environment.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        os.chdir(self._cwd)
        self._app.attach(connection_file_of(argv))
        # Last of all: a kernel's sockets may draw numbers, some of them on threads of their own.
        self._app.shell.events.register("pre_execute", self._go_on_drawing)
        return self._app

    def _go_on_drawing(self) -> None:
        self._app.shell.events.unregister("pre_execute", self._go_on_drawing)
        generators.restore(self._states)

    def _run(self, source: str) -> dict[str, Any]:
        """Run one cell; return its messages and how long it took."""
        started_at_s, started_s = time.time(), time.perf_counter()
        shell: Any = self._app.shell
        count = shell.execution_count
        with (
            self._effects.noted(),
            around_imports(
                self._folders, self._unseeded.before_import, self._unseeded.after_import
            ),
        ):
            self._result = shell.run_cell(source, store_history=True)
        self._messages = self._app.recorder.take()
        return {
            "messages": self._messages,
            "execution_count": count if shell.execution_count > count else None,
            "started_at_s": started_at_s,
            "duration_s": time.perf_counter() - started_s,
            "local_modules": self._new_local_modules(),
        }

    def _new_local_modules(self) -> list[str]:
        """Files of modules that the last cell has imported from outside of installed libraries."""
        new = [name for name in sys.modules if name not in self._known_modules]
        self._known_modules.update(new)
        files = {
            str(file)
            for name in new
            if name.partition(".")[0] != _OUR_PACKAGE
            and (file := getattr(sys.modules[name], "__file__", None)) is not None
            # torch names a file that is none for a module that it makes as an object.
            and (Path(file).is_file() or is_frozen(sys.modules[name]))
        }
        return sorted(file for file in files if not is_installed(file, self._folders))

    def _lost(self) -> str | None:
        """What the last cell has done that a fork would not carry over."""
        if not self._result.success:
            return "it raises"
        kinds = [message["msg_type"] for message in self._messages]
        if LOST in kinds or any(kind not in _REPLAYABLE for kind in kinds):
            return "it shows a widget"
        if effects := self._effects.take():
            return f"it {effects[0]}"
        if drawn := self._unseeded.drawn():
            return f"it draws from {drawn}, which nothing has seeded"
        if _output_bytes() != self._output_bytes:
            return "it writes to the descriptors of the process"
        try:
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            return "it leaves a process behind"
        except ChildProcessError:
            pass
        left = {
            target
            for descriptor, target in libraries.open_files().items()
            if self._files.get(descriptor) != target
            and not target.startswith("/dev/null")
            and not can_reopen(descriptor)
        }
        if left:
            return f"it leaves {min(left)} open"
        for thread in threading.enumerate():
            if type(thread).__name__ == "TMonitor":  # tqdm's; it makes another when it wants one
                thread.exit()  # type: ignore[attr-defined]
        if libraries.lost_by_a_fork() is None:
            return None
        libraries.in_a_fork(str)  # OpenBLAS ends its threads then
        lost = libraries.lost_by_a_fork()
        return None if lost is None else f"it leaves {lost}"

    def _hide(self, names: Sequence[str]) -> dict[str, Any]:
        """Put a mark in the place of defaults that no cell reads; return the defaults."""
        names_now = self._app.shell.user_ns
        hidden = {name: names_now[name] for name in names if name in names_now}
        names_now.update(dict.fromkeys(hidden, _HIDDEN))
        return hidden

    def _show(self, hidden: dict[str, Any]) -> None:
        self._app.shell.user_ns.update(hidden)

    def _are_assigned(self, names: Sequence[str], *, hidden: dict[str, Any]) -> bool:
        """Whether a cell has given one of the names a value, as `from … import *` may."""
        names_now = self._app.shell.user_ns
        return any(
            names_now.get(name, _HIDDEN) is not _HIDDEN or (name in hidden) != (name in names_now)
            for name in names
        )

    def _try_a_kernel(self) -> str:
        """In a throw-away fork: boot a kernel that no client connects to."""
        import tempfile

        with tempfile.TemporaryDirectory() as folder:
            app: Any = self.kernel(["", "-f", f"{folder}/k.json"])
            if not app.shell.run_cell("", silent=True).success:
                return "no code runs in a kernel forked after it"
            return "it initialises CUDA" if libraries.cuda_is_lost() else "fine"


class _Unseeded:
    """Separates the generators that cells have seeded from those that they have only drawn from.

    An unseeded one begins anew in each fork, so the imports of installed libraries may draw from it
    as they like; what a cell draws from it would be the same in all trials.
    """

    def __init__(self) -> None:
        self._start = generators.states()
        self._before: dict[str, Any] = {}

    def before_import(self) -> None:
        """Note the states before an installed library is imported."""
        self._before = generators.states()

    def after_import(self) -> None:
        """Do not count what the import has drawn from an unseeded generator."""
        for name, state in generators.states().items():
            before, start = self._before.get(name), self._start.get(name)
            if before is None or (start is not None and before["digest"] == start["digest"]):
                self._start[name] = state

    def drawn(self) -> str | None:
        """A generator that a cell has drawn from, and that nothing has seeded."""
        for name, state in generators.states().items():
            start = self._start.get(name)
            is_moved = start is not None and start["digest"] != state["digest"]
            if is_moved and not generators.is_seeded_since(start, state):
                return name
        return None

    def seeded(self) -> dict[str, Any]:
        """What `restore` needs for the generators that the cells have seeded."""
        states = generators.kept()
        return {
            name: states[name]
            for name, state in generators.states().items()
            if name in states and generators.is_seeded_since(self._start.get(name), state)
        }


def connection_file_of(argv: Sequence[str]) -> str:
    """The file that a kernel's command line names."""
    return argv[list(argv).index("-f") + 1]


def can_reopen(descriptor: int) -> bool:
    """Whether a file is open for reading only, so that each fork can have it for itself."""
    import fcntl

    try:
        is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)
        flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
    except OSError:
        return False
    return is_file and flags & os.O_ACCMODE == os.O_RDONLY


def reopen_files() -> None:
    """In a fork: read open files from where they are, unmoved by what other forks read."""
    for descriptor in libraries.open_files():
        if can_reopen(descriptor):
            place = os.lseek(descriptor, 0, os.SEEK_CUR)
            again = os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY | os.O_CLOEXEC)
            os.lseek(again, place, os.SEEK_SET)
            os.dup2(again, descriptor, inheritable=os.get_inheritable(descriptor))
            os.close(again)


def _output_bytes() -> int:
    """How many bytes were written to the process's own output, past IPython's streams."""
    for stream in (sys.__stdout__, sys.__stderr__):
        if stream is not None:
            stream.flush()
    return os.fstat(1).st_size
