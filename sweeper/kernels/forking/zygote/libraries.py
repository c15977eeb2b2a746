"""Import what a notebook imports before the first fork, and check that a fork can use it."""

from __future__ import annotations

import gc
import importlib
import importlib.util
import os
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from . import generators
from .imports import ImportWatch
from .in_kernel import is_installed, library_folders
from .server import fork
from .shell import App

#: Modules that need a running kernel when they are imported. The process that kernels are forked
#: from is no running kernel, so it must not import them.
DENIED = ("matplotlib_inline", "IPython.extensions", "ipywidgets", "__main__")
#: Threads that do not prevent a fork. jemalloc, a memory allocator, starts its threads again after
#: a fork.
_HARMLESS_THREADS = ("jemalloc_bg_thd",)
#: A process that has initialized CUDA or ROCm has one of these files open, and cannot be forked. A
#: process that only asks NVML about GPUs opens other files, and can be forked.
_GPU_FILES = ("/dev/nvidia-uvm", "/dev/kfd")


class Libraries:
    """Imports what a notebook imports, in a process in which a kernel's shell has booted.

    Args:
        modules: Names of the modules, in the notebook's order.
        app: Application of the kernel, after its method `boot`.
        before: Environment with which this process was started. The interpreter may have changed it
            before it ran any of this code, as `sitecustomize` does.

    Attributes:
        refusal: Why no kernel can be forked. None if kernels can be forked.
        exclude: Modules that a new process to fork from should not import, so that it can fork.
            Their import starts threads, or draws random numbers or prints in a way that cannot be
            repeated in a fork.
        changed: Environment variables that the interpreter, the boot and the imports have changed,
            as they would in a fresh kernel. By name: the value before and the value after. None is
            for no value.
        duration_s: Seconds that the imports took.
    """

    def __init__(
        self,
        modules: Sequence[str],
        *,
        app: App,
        before: Mapping[str, str],
    ) -> None:
        self._app = app
        started_s = time.perf_counter()
        # The builtin trap makes `get_ipython` available during the imports, as in a cell. pandas
        # looks for `get_ipython` when it is imported.
        with app.shell.builtin_trap, ImportWatch(self._effects) as watch:
            _import_all(modules)
        self.duration_s = time.perf_counter() - started_s
        app.recorder.take()
        watch.hide(watch.importers_of(watch.acting))
        # A fresh kernel would have the same changes after the same imports, so they do not count
        # as changes by the notebook.
        self.changed = {
            name: (before.get(name), os.environ.get(name))
            for name in {*before, *os.environ}
            if before.get(name) != os.environ.get(name)
        }
        lost = lost_by_a_fork()
        settle()
        self.exclude = sorted(self._excluded(watch))
        self.refusal: str | None = None
        if lost is not None:
            self.refusal = (
                f"the imports create something that a fork does not have ({lost}); "
                "set `kernels: cold` to skip the attempt to fork kernels"
            )

    def _effects(self, unfinished: Collection[str]) -> Mapping[str, Any]:
        states = generators.plain(generators.states(unfinished))
        return {**states, "output": self._app.output_count()}

    def _excluded(self, watch: ImportWatch) -> set[str]:
        """Return the modules that a new process must not import, so that it can fork kernels."""
        culprits = {name for name in watch.acting if not _can_import_in_a_fork(name)}
        foreign = _foreign_threads()
        culprits |= {module for task, module in watch.threads.items() if task in foreign}
        excluded = watch.importers_of(culprits)
        acting = watch.importers_of(watch.acting)
        # Modules whose import draws random numbers or prints are hidden with their importers until
        # a fork imports them; see `imports.py`. But numpy and torch must not be hidden, because
        # each fork seeds their generators. So if one of them would be hidden, the next zygote
        # imports none of these modules.
        if not acting.isdisjoint(("numpy", "torch")):
            excluded |= acting
        return excluded


def settle() -> None:
    """Collect garbage, and keep the collector from writing to memory that forks share."""
    gc.collect()
    gc.freeze()  # Otherwise, each fork's garbage collector would copy every shared page by a write.


def _can_import_in_a_fork(name: str) -> bool:
    return _succeeds_in_a_fork(lambda: importlib.import_module(name))


def _succeeds_in_a_fork(call: Callable[[], object]) -> bool:
    """Call a function in a temporary child process. Return whether it raised no exception."""
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
    """Return in words what a fork of this process would lack. None if it would lack nothing."""
    # A fork makes OpenBLAS end its threads, which would otherwise count below.
    _succeeds_in_a_fork(lambda: None)
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
    """Return the file of each open file descriptor of this process."""
    found = {}
    for descriptor in Path("/proc/self/fd").iterdir():
        try:
            found[int(descriptor.name)] = str(descriptor.readlink())
        except OSError:  # The loop itself had opened this descriptor to read the folder.
            continue
    return found


def _foreign_threads() -> dict[int, str]:
    """Return the names of the threads that a fork would lack, by the system's thread id."""
    found = {}
    for thread in Path("/proc/self/task").iterdir():
        try:
            name = (thread / "comm").read_text().strip()
        except OSError:  # The thread has just ended.
            continue
        if int(thread.name) != os.getpid() and name not in _HARMLESS_THREADS:
            found[int(thread.name)] = name
    return found


def _import_all(modules: Iterable[str]) -> None:
    """Import modules. An entry `module:name` is an import of a name from an installed module."""
    # Remove the working folder from `sys.path` for the time of the imports. Otherwise, a file in it
    # could be imported in place of an installed module with the same name.
    place = sys.path.index("") if "" in sys.path else None
    if place is not None:
        del sys.path[place]
    for entry in modules:
        module, is_shown, name = entry.partition(":")
        if module and not module.startswith(DENIED):
            try:
                if is_shown and not _is_installed(module):
                    continue
                imported = importlib.import_module(module)
                if name and not hasattr(imported, name):
                    importlib.import_module(f"{module}.{name}")
            except BaseException:  # noqa: BLE001  The notebook's own import will fail too.
                continue
    if place is not None:
        sys.path.insert(place, "")


def _is_installed(module: str) -> bool:
    """Return whether the package of a module lies where libraries are installed."""
    spec = importlib.util.find_spec(module.partition(".")[0])
    if spec is None:
        return False
    place = spec.origin or next(iter(spec.submodule_search_locations or ()), "")
    return is_installed(place, library_folders())
