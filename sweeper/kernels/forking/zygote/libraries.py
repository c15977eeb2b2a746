"""Import what a notebook imports before the first fork, and check that a fork can carry it over."""

from __future__ import annotations

import gc
import importlib
import os
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from . import generators
from .imports import ImportWatch
from .server import fork
from .shell import App

#: What must see the running kernel when it is imported.
DENIED = ("matplotlib_inline", "IPython.extensions", "ipywidgets", "__main__")
#: Threads of the system's allocator are made anew after a fork.
_HARMLESS_THREADS = ("jemalloc_bg_thd",)
#: Open where CUDA or ROCm is initialised. NVML opens others, and can be forked.
_GPU_FILES = ("/dev/nvidia-uvm", "/dev/kfd")


class Libraries:
    """Imports what a notebook imports, in a process in which a kernel's shell has booted.

    Args:
        modules: In the notebook's order.
        environment: The variables that libraries read when they are imported, as the notebook has
            left them.
        app: The kernel's application, booted by half.
        before: The process's environment before that.

    Attributes:
        refusal: Why no kernel can be forked; None when kernels can be.
        exclude: Modules without which another zygote may be able to fork. They start threads, or
            what they do when they are imported cannot be repeated in a fork.
        changed: What the boot and the imports did to the environment, as a notebook's own would.
        duration_s: How long the imports took.
    """

    def __init__(
        self,
        modules: Sequence[str],
        environment: Mapping[str, str],
        *,
        app: App,
        before: Mapping[str, str],
    ) -> None:
        self._app = app
        started_s = time.perf_counter()
        # As in a cell, where `get_ipython` is a builtin: pandas looks for it when it is imported.
        with app.shell.builtin_trap, ImportWatch(self._effects) as watch:
            _import_all(modules)
        self.duration_s = time.perf_counter() - started_s
        app.recorder.take()
        watch.hide(watch.importers_of(watch.acting))
        # What the imports did to the process, a fresh kernel would see at the same import.
        self.changed = {
            name: value for name, value in os.environ.items() if before.get(name) != value
        }
        lost = lost_by_a_fork()
        settle()
        self.exclude = sorted(self._excluded(watch))
        self.refusal: str | None = None
        unlike = [name for name, value in environment.items() if os.environ.get(name) != value]
        if unlike:
            self.refusal = (
                f"the notebook sets {unlike[0]}, which libraries read when they are imported; set "
                "it in the environment of the sweep instead"
            )
        elif lost is not None:
            self.refusal = (
                f"after the imports there is what no fork has ({lost}); "
                "`kernels: cold` spares the attempt"
            )

    def _effects(self, unfinished: Collection[str]) -> Mapping[str, Any]:
        states = generators.plain(generators.states(unfinished))
        return {**states, "output": self._app.output_count()}

    def _excluded(self, watch: ImportWatch) -> set[str]:
        """Return what has to be left out, so that another zygote can fork with the rest."""
        culprits = {name for name in watch.acting if not _can_import_in_a_fork(name)}
        foreign = _foreign_threads()
        culprits |= {module for task, module in watch.threads.items() if task in foreign}
        excluded = watch.importers_of(culprits)
        acting = watch.importers_of(watch.acting)
        # The generators of numpy and torch begin anew in each fork, which has to find them.
        if not acting.isdisjoint(("numpy", "torch")):
            excluded |= acting
        return excluded


def settle() -> None:
    """Prepare all objects of this process to be shared by many forks."""
    gc.collect()
    gc.freeze()  # the collector would otherwise write to every shared page


def _can_import_in_a_fork(name: str) -> bool:
    return _succeeds_in_a_fork(lambda: importlib.import_module(name))


def _succeeds_in_a_fork(call: Callable[[], object]) -> bool:
    """Call a function in a throw-away child; return whether it returned there."""
    pid = fork()
    if pid == 0:
        exit_code = 1
        try:
            null = os.open(os.devnull, os.O_RDWR)
            for descriptor in (0, 1, 2):
                os.dup2(null, descriptor)
            call()
            exit_code = 0
        finally:
            os._exit(exit_code)
    _, status = os.waitpid(pid, 0)
    return status == 0


def lost_by_a_fork() -> str | None:
    """Return what this process has that a fork of it would not have; None for nothing."""
    _succeeds_in_a_fork(lambda: None)  # OpenBLAS ends its threads at a fork
    if any(target.startswith(_GPU_FILES) for target in open_files().values()):
        return "a GPU in use, and CUDA cannot be forked"
    if threading.active_count() > 1:
        _main, *others = threading.enumerate()
        return "threads: " + ", ".join(thread.name for thread in others)
    foreign = _foreign_threads()
    if foreign:
        return f"threads of the system: {', '.join(foreign.values())}"
    return None


def open_files() -> dict[int, str]:
    """Return what each descriptor of this process is open on."""
    found = {}
    for descriptor in Path("/proc/self/fd").iterdir():
        try:
            found[int(descriptor.name)] = str(descriptor.readlink())
        except OSError:  # the one that lists them
            continue
    return found


def _foreign_threads() -> dict[int, str]:
    """Return the names of threads that a fork would not have, by their numbers."""
    found = {}
    for thread in Path("/proc/self/task").iterdir():
        name = (thread / "comm").read_text().strip()
        if int(thread.name) != os.getpid() and name not in _HARMLESS_THREADS:
            found[int(thread.name)] = name
    return found


def _import_all(modules: Iterable[str]) -> None:
    # Installed modules are meant, not files of the same name in the working directory.
    place = sys.path.index("") if "" in sys.path else None
    if place is not None:
        del sys.path[place]
    for name in modules:
        if name and not name.startswith(DENIED):
            try:
                importlib.import_module(name)
            except BaseException:  # noqa: BLE001  the notebook's own import will fail, too
                continue
    if place is not None:
        sys.path.insert(place, "")
