"""What is imported before the first fork, and whether a fork can carry it over."""

from __future__ import annotations

import gc
import importlib
import os
import sys
import threading
import warnings
import weakref
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from .server import fork

#: What every ipykernel imports before a notebook's first cell.
BASE = (
    "ipykernel.kernelapp",
    "ipykernel.ipkernel",
    "ipykernel.zmqshell",
    "ipykernel.displayhook",
    "ipykernel.parentpoller",
    "jupyter_client.asynchronous",
    "zmq.eventloop.zmqstream",
)
#: What must see the running kernel when it is imported.
DENIED = ("matplotlib_inline", "IPython.extensions", "ipywidgets", "__main__")
#: Variables that libraries read when they are imported; later it is too late to set them.
READ_AT_IMPORT = (
    r"(PYTHON(?!HASHSEED)|LD_|OMP_|GOMP_|KMP_|MKL_|OPENBLAS_|BLIS_|NUMEXPR_|NUMBA_|NPY_|TF_|XLA_|"
    r"JAX_|KERAS_|HF_|TRANSFORMERS_|TORCH|PYTORCH_|CUDA_(?!VISIBLE_DEVICES)|MPL(?!BACKEND)|TZ$)"
)
#: Threads of the system's allocator are made anew after a fork.
_HARMLESS_THREADS = ("jemalloc_bg_thd",)


class Libraries:
    """Imports what a notebook imports.

    Args:
        modules: in the notebook's order.
        environment: variables that the notebook has set, of those that are read at import.

    Attributes:
        refusal: why no kernel can be forked; None when they can be.
        changed: what the imports did to the environment, as a notebook's own would have.
        filters: the warning filters that the imports have added.
    """

    def __init__(self, modules: Sequence[str], environment: Mapping[str, str]) -> None:
        for name in BASE:
            importlib.import_module(name)
        before, filters = dict(os.environ), list(warnings.filters)
        self.refusal: str | None = None
        # `is_available()` called by an import then asks NVML, and leaves CUDA alone.
        transient = {"PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
        transient = {k: v for k, v in transient.items() if k not in os.environ}
        os.environ.update(transient)
        # ipykernel sets this in every kernel before the first cell; matplotlib reads it.
        os.environ.setdefault("MPLBACKEND", "module://matplotlib_inline.backend_inline")
        _import_all(modules)
        self._try_a_kernel()
        for name in transient:
            os.environ.pop(name, None)
        # What the imports did to the process, a fresh kernel would see at the same import.
        self.changed = {k: v for k, v in os.environ.items() if before.get(k) != v}
        self.filters = [f for f in warnings.filters if f not in filters]
        unlike = [n for n, value in environment.items() if self.changed.get(n) != value]
        if unlike:
            self.refusal = f"the notebook sets {unlike[0]}, which libraries read when imported"
        settle()
        self.refusal = self.refusal or lost_by_a_fork()

    def order_filters(self) -> None:
        """In a kernel: the warning filters of libraries before IPython's, as in a fresh one."""
        rest = [f for f in warnings.filters if f not in self.filters]
        warnings.filters[:] = [*self.filters, *rest]  # type: ignore[index]
        warnings._filters_mutated()  # type: ignore[attr-defined]

    def _try_a_kernel(self) -> None:
        """A child that boots: learns what else a kernel imports, and ends OpenBLAS's threads."""
        told = in_a_fork(_boot_and_list)
        if told.partition("\n")[0] == "cuda":
            self.refusal = "an import initialised CUDA"
        _import_all(told.split("\n")[1:])


def settle() -> None:
    """Make what there is now ready to be shared by many forks."""
    for finalizer in list(weakref.finalize._registry):  # type: ignore[attr-defined]
        finalizer.atexit = False  # ours to run, not a child's: think of shared folders
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
    with os.fdopen(reading) as told:
        said = told.read()
    os.waitpid(pid, 0)
    return said


def lost_by_a_fork() -> str | None:
    """What this process has that a fork of it would not; None when it has nothing such."""
    if threading.active_count() > 1:
        return "threads: " + ", ".join(t.name for t in threading.enumerate()[1:])
    others = []
    for thread in Path("/proc/self/task").iterdir():
        if int(thread.name) != os.getpid():
            others.append((thread / "comm").read_text().strip())
    foreign = [name for name in others if name not in _HARMLESS_THREADS]
    if foreign:
        return f"threads of the system: {', '.join(foreign)}"
    for target in open_files().values():
        if target.startswith(("/dev/nvidia", "/dev/kfd")):
            return f"{target} is open"
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


def _import_all(modules: Iterable[str]) -> None:
    for name in modules:
        if name and not name.startswith(DENIED):
            try:
                importlib.import_module(name)
            except BaseException:  # noqa: BLE001  what fails is the notebook's own affair
                continue


def cuda_is_lost() -> bool:
    """In a fork: whether torch refuses to use CUDA here."""
    torch = sys.modules.get("torch")
    return torch is not None and bool(torch.cuda._is_in_bad_fork())


def _boot_and_list() -> str:
    """Boot a kernel that nobody talks to; return `cuda` or `fine`, and what it has imported."""
    before = set(sys.modules)
    import tempfile

    from ipykernel.kernelapp import IPKernelApp

    with tempfile.TemporaryDirectory() as folder:
        app: Any = IPKernelApp.instance(parent_handle=os.getppid())
        app.initialize(["-f", f"{folder}/k.json", "--HistoryManager.enabled=False"])
        app.kernel.shell.run_cell("import os\nprint(1)\n[1]")
        app.kernel.shell.run_cell("raise ValueError('probe')")
        new = (name for name in sys.modules if name not in before)
        return "\n".join(["cuda" if cuda_is_lost() else "fine", *new])
