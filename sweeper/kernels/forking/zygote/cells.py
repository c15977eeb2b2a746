"""Run the shared cells of a notebook once. Kernels that are forked later have their variables.

The cells run in the IPython shell with which each forked kernel continues. No client is connected,
so the shell's session records messages instead of sending them. The sweep replays the messages into
the executed notebook of each trial.
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

from . import finders, generators, in_kernel, libraries
from .shell import App


class CellsProcess:
    """The process in which the shared cells have run, and from which kernels are forked.

    Args:
        sources: Code of the cells, in order.
        random_seed: Seed with which the random generators begin.
        app: Application of the kernel, after its method `boot`.

    Attributes:
        report: Report for the sweep. `cells`: messages of each cell. `duration_s`: seconds that all
            cells took. If no kernel can be forked, `why` is the reason, and `failed_at` is the
            index of the cell that causes it.
    """

    def __init__(self, sources: Sequence[str], random_seed: int, app: App) -> None:
        self._app = app
        app.enter_fork()
        in_kernel.adapt(app.shell)
        app.recorder.take()
        finders.seed_generators(random_seed)
        states = generators.states()
        environment = dict(os.environ)
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
            name: os.environ.get(name)
            for name in {*environment, *os.environ}
            if environment.get(name) != os.environ.get(name)
        }
        # A random generator that the shared cells have used continues in each trial from where the
        # cells left it. Every other generator is seeded again in each trial.
        self._states = generators.changed_since(states)
        setattr(app.shell, in_kernel.DRAWN, (random_seed, {*self._states}))
        libraries.settle()

    def attach(self, connection_file: str) -> None:
        """Turn this process, a fork, into a kernel that clients can connect to."""
        for name, value in self._environment.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        self._app.attach(connection_file)
        # Restore the generators at `pre_run_cell`. The trial's seed is set at `pre_execute`, which
        # comes earlier, and would otherwise replace the states that the shared cells left.
        self._app.shell.events.register("pre_run_cell", self._go_on_drawing)

    def _go_on_drawing(self, *_: object) -> None:
        self._app.shell.events.unregister("pre_run_cell", self._go_on_drawing)
        generators.restore(self._states)

    def _run(self, source: str) -> str | None:
        """Run one cell, and add its messages to `report`. Return why it failed, or None.

        Args:
            source: Code of the cell.
        """
        shell = self._app.shell
        count = shell.execution_count
        result = shell.run_cell(source, store_history=True)
        messages = self._app.recorder.take()
        written = self._written_since()
        if written:
            content = {"name": "stdout", "text": written}
            messages.append({"msg_type": "stream", "content": content, "metadata": {}})
        number = count if shell.execution_count > count else None
        self.report["cells"].append({"messages": messages, "execution_count": number})
        error = result.error_before_exec or result.error_in_exec
        if error is None:
            return None
        return f"raises {type(error).__name__}: {error}"

    def _written_since(self) -> str:
        """Return what the last cell wrote to file descriptors 1 and 2, not to `sys.stdout`."""
        for stream in (sys.__stdout__, sys.__stderr__):
            if stream is not None:
                stream.flush()
        size = os.fstat(1).st_size
        data = os.pread(1, size - self._written, self._written)
        self._written = size
        return data.decode(errors="replace")


def _lost() -> str | None:
    """Return in words what a fork would lack after the cells, such as a thread. None if nothing."""
    for thread in threading.enumerate():
        # End the monitor thread of tqdm, which starts another one if needed.
        if type(thread).__name__ == "TMonitor":
            thread.exit()  # type: ignore[attr-defined]
    lost = libraries.lost_by_a_fork()
    return None if lost is None else f"leaves {lost}"


def reopen_files() -> None:
    """Reopen the files that this process reads.

    Forks share the read position of an open file. A file that is opened again has a position of its
    own, which no other fork moves.
    """
    for descriptor in libraries.open_files():
        is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)
        access = fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE
        if is_file and access == os.O_RDONLY:
            position = os.lseek(descriptor, 0, os.SEEK_CUR)
            again = os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY | os.O_CLOEXEC)
            os.lseek(again, position, os.SEEK_SET)
            os.dup2(again, descriptor, inheritable=os.get_inheritable(descriptor))
            os.close(again)
