"""Import what a notebook imports before the first fork, and check that a fork can carry it over."""

from __future__ import annotations

import gc
import importlib
import os
import sys
import threading
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
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
        modules: in the notebook's order.
        environment: the variables that libraries read when they are imported, as the notebook has
            left them.
        app: the kernel's application, booted by half.
        before: the process's environment before that.

    Attributes:
        refusal: why no kernel can be forked; None when they can be.
        exclude: modules without which a new zygote might do; they start threads, or what they do
            when they are imported cannot be repeated in a fork.
        changed: what the boot and the imports did to the environment, as a notebook's own would.
        duration_s: how long the imports took.
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
        self.changed = {k: v for k, v in os.environ.items() if before.get(k) != v}
        lost = lost_by_a_fork()
        settle()
        self.exclude = sorted(self._excluded(watch))
        self.refusal: str | None = None
        if unlike := [name for name, value in environment.items() if os.environ.get(name) != value]:
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
        """What has to be left out, so that another zygote can fork with the rest."""
        culprits = {
            name
            for name in watch.acting
            if not in_a_fork(lambda name=name: importlib.import_module(name))
        }
        foreign = _foreign_threads()
        culprits |= {module for task, module in watch.threads.items() if task in foreign}
        excluded = watch.importers_of(culprits)
        # Their generators begin anew in each fork, which has to find them.
        if not {"numpy", "torch"}.isdisjoint(acting := watch.importers_of(watch.acting)):
            excluded |= acting
        return excluded


def settle() -> None:
    """Prepare all objects of this process to be shared by many forks."""
    gc.collect()
    gc.freeze()  # the collector would otherwise write to every shared page


def in_a_fork(call: Any) -> str:
    """What a function returns in a throw-away child; empty when that did not end well."""
    reading, writing = os.pipe()
    pid = fork()
    if pid == 0:
        try:
            os.close(reading)
            null = os.open(os.devnull, os.O_RDWR)
            for descriptor in (0, 1, 2):
                os.dup2(null, descriptor)
            os.write(writing, str(call()).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        text = answer.read()
    os.waitpid(pid, 0)
    return text


def lost_by_a_fork() -> str | None:
    """What this process has that a fork of it would not have; None when there is nothing."""
    in_a_fork(str)  # OpenBLAS ends its threads at a fork
    if any(target.startswith(_GPU_FILES) for target in open_files().values()):
        return "a GPU in use, and CUDA cannot be forked"
    if threading.active_count() > 1:
        return "threads: " + ", ".join(t.name for t in threading.enumerate()[1:])
    if foreign := _foreign_threads():
        return f"threads of the system: {', '.join(foreign.values())}"
    return None


def open_files() -> dict[int, str]:
    """What each descriptor of this process is open on."""
    found = {}
    for descriptor in Path("/proc/self/fd").iterdir():
        try:
            found[int(descriptor.name)] = str(descriptor.readlink())
        except OSError:  # the one that lists them
            continue
    return found


def _foreign_threads() -> dict[int, str]:
    """The names of threads that a fork would not have, by their numbers."""
    found = {}
    for thread in Path("/proc/self/task").iterdir():
        if int(thread.name) != os.getpid():
            found[int(thread.name)] = (thread / "comm").read_text().strip()
    return {task: name for task, name in found.items() if name not in _HARMLESS_THREADS}


def _import_all(modules: Iterable[str]) -> None:
    # Installed modules, not files of the same name in the folder that we are in.
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
