"""The shared cells of a notebook, run once; kernels are forked with everything they have made.

They run in the shell that each forked kernel goes on with, under a session that records messages
in place of sending them; the sweep replays them into the executed notebook of each trial.
"""

from __future__ import annotations

import fcntl
import os
import stat
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

from . import generators, libraries
from .shell import App


class SharedCells:
    """The process in which the cells have run.

    Args:
        sources: of the cells, in order.
        app: the kernel's application, booted by half.

    Attributes:
        report: `cells`, for each one its messages; `duration_s` of all; where no kernel can be
            forked after them, `why`, and the cell that is to blame (`failed_at`).
    """

    def __init__(self, sources: Sequence[str], app: App) -> None:
        self._app = app
        app.enter_fork()
        app.recorder.take()
        start, environment = generators.states(), dict(os.environ)
        self._written = 0
        self.report: dict[str, Any] = {"cells": [], "why": None}
        started_s = time.perf_counter()
        for index, source in enumerate(sources):
            why = self._run(source) or _lost()
            if why is not None:
                self.report.update(failed_at=index, why=why)
                return
        self.report["duration_s"] = time.perf_counter() - started_s
        self._environment = {
            k: os.environ.get(k)
            for k in {*environment, *os.environ}
            if environment.get(k) != os.environ.get(k)
        }
        # What the cells have used goes on in each trial; any other generator begins anew there.
        self._states = generators.changed_since(start)
        libraries.settle()

    def attach(self, connection_file: str) -> None:
        """In a fork: boot the second half of the kernel's application."""
        for name, value in self._environment.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        self._app.attach(connection_file)
        # Last of all: a kernel's sockets may draw numbers, some of them on threads of their own.
        self._app.shell.events.register("pre_execute", self._go_on_drawing)

    def _go_on_drawing(self) -> None:
        self._app.shell.events.unregister("pre_execute", self._go_on_drawing)
        generators.restore(self._states)

    def _run(self, source: str) -> str | None:
        """Run one cell, and report its messages; why it failed."""
        shell = self._app.shell
        count = shell.execution_count
        result = shell.run_cell(source, store_history=True)
        messages = self._app.recorder.take()
        if written := self._written_since():
            content = {"name": "stdout", "text": written}
            messages.append({"msg_type": "stream", "content": content, "metadata": {}})
        number = count if shell.execution_count > count else None
        self.report["cells"].append({"messages": messages, "execution_count": number})
        error = result.error_before_exec or result.error_in_exec
        return None if error is None else f"raises {type(error).__name__}: {error}"

    def _written_since(self) -> str:
        """What the last cell wrote to the descriptors of the process, past IPython's streams."""
        for stream in (sys.__stdout__, sys.__stderr__):
            if stream is not None:
                stream.flush()
        size = os.fstat(1).st_size
        data = os.pread(1, size - self._written, self._written)
        self._written = size
        return data.decode(errors="replace")


def _lost() -> str | None:
    """What the cells have left that a fork would not have."""
    for thread in threading.enumerate():
        if type(thread).__name__ == "TMonitor":  # tqdm's; it makes another when it wants one
            thread.exit()  # type: ignore[attr-defined]
    lost = libraries.lost_by_a_fork()
    return None if lost is None else f"leaves {lost}"


def reopen_files() -> None:
    """In a fork: read open files from where they are, unmoved by what other forks read."""
    for descriptor in libraries.open_files():
        flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
        if stat.S_ISREG(os.fstat(descriptor).st_mode) and flags & os.O_ACCMODE == os.O_RDONLY:
            place = os.lseek(descriptor, 0, os.SEEK_CUR)
            again = os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY | os.O_CLOEXEC)
            os.lseek(again, place, os.SEEK_SET)
            os.dup2(again, descriptor, inheritable=os.get_inheritable(descriptor))
            os.close(again)
