"""A process that has imported what a notebook imports, and forks a kernel per trial.

Run as a script by the kernel's own interpreter, so it knows the standard library and ipykernel
only. One thread, no sockets of zmq, no CUDA: whatever a fork could not carry over makes it refuse,
and kernels are started fresh.

    zygote.py SOCKET OWNER_FD REPORT_FD < modules, one a line

One connection a kernel, which is also its lease: a request comes in with the descriptors for the
child's output, the child's pid goes out, later its exit code; when the connection closes, the child
and its session are killed. When the owner's pipe closes, all are.
"""

from __future__ import annotations

import array
import ctypes
import gc
import importlib
import json
import os
import select
import signal
import socket
import struct
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

if sys.path and sys.path[0] == os.path.dirname(os.path.abspath(__file__)):
    del sys.path[0]  # of a script; a kernel has none

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
#: Threads of the system's allocator are made anew after a fork.
_HARMLESS_THREADS = ("jemalloc_bg_thd",)
_PR_SET_PDEATHSIG = 1


def send(
    connection: socket.socket, message: dict[str, Any], descriptors: Sequence[int] = ()
) -> None:
    """Send one JSON message, with open files."""
    data = json.dumps(message).encode()
    ancillary = []
    if descriptors:
        rights = array.array("i", descriptors)
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)]
    connection.sendmsg([struct.pack("<I", len(data))], ancillary)
    connection.sendall(data)


def receive(connection: socket.socket) -> tuple[dict[str, Any] | None, list[int]]:
    """Receive one message and its files; (None, []) at the end."""
    space = socket.CMSG_SPACE(4 * array.array("i").itemsize)
    head, ancillary, _, _ = connection.recvmsg(4, space, socket.MSG_CMSG_CLOEXEC)
    descriptors = array.array("i")
    for _, kind, rights in ancillary:
        if kind == socket.SCM_RIGHTS:
            descriptors.frombytes(rights[: len(rights) - len(rights) % descriptors.itemsize])
    if len(head) < 4:
        return None, list(descriptors)
    (left,) = struct.unpack("<I", head)
    data = b""
    while len(data) < left:
        part = connection.recv(left - len(data))
        if not part:
            return None, list(descriptors)
        data += part
    return json.loads(data), list(descriptors)


def fork() -> int:
    """`os.fork`, which newer Pythons warn of when the allocator has a thread."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


class _Child:
    """A forked kernel, until its lease ends."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.pidfd = os.pidfd_open(pid)
        self.has_ended = False


class Zygote:
    """The server; in a forked child `serve` returns what the child should become."""

    def __init__(self, listener: socket.socket, owner: int, modules: Sequence[str]) -> None:
        self.listener = listener
        self.owner = owner
        self.children: dict[socket.socket, _Child | None] = {}
        self.refusal: str | None = None
        self._import(modules)

    def _import(self, modules: Sequence[str]) -> None:
        for name in BASE:
            importlib.import_module(name)
        environment, filters = dict(os.environ), list(warnings.filters)
        # `is_available()` called by an import then asks NVML, and leaves CUDA alone.
        transient = {"PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
        transient = {k: v for k, v in transient.items() if k not in os.environ}
        os.environ.update(transient)
        # ipykernel sets this in every kernel before the first cell; matplotlib reads it.
        os.environ.setdefault("MPLBACKEND", "module://matplotlib_inline.backend_inline")
        for name in modules:
            if not name.startswith(DENIED):
                try:
                    importlib.import_module(name)
                except BaseException:  # noqa: BLE001  what fails is the notebook's own affair
                    continue
        self._try_a_fork()
        for name in transient:
            os.environ.pop(name, None)
        # What the imports did to the process, a fresh kernel would see at the same import.
        self.changed = {k: v for k, v in os.environ.items() if environment.get(k) != v}
        self.filters = [f for f in warnings.filters if f not in filters]
        for finalizer in list(weakref.finalize._registry):  # type: ignore[attr-defined]
            finalizer.atexit = False  # ours to run, not a child's: think of shared folders
        self.refusal = self.refusal or self._threads() or self._devices()
        gc.collect()
        gc.freeze()  # the collector would otherwise write to every shared page

    def _try_a_fork(self) -> None:
        """A child that boots: learns what else a kernel imports, and ends OpenBLAS's threads."""
        reading, writing = os.pipe()
        pid = fork()
        if pid == 0:
            try:
                os.close(reading)
                null = os.open(os.devnull, os.O_RDWR)
                for descriptor in (0, 1, 2):
                    os.dup2(null, descriptor)
                os.write(writing, "\n".join(_boot_and_list()).encode())
            finally:
                os._exit(0)
        os.close(writing)
        with os.fdopen(reading) as told:
            names = told.read().split("\n")
        os.waitpid(pid, 0)
        if names[:1] == ["cuda"]:
            self.refusal = "an import initialised CUDA"
        for name in names[1:]:
            if name and not name.startswith(DENIED):
                try:
                    importlib.import_module(name)
                except BaseException:  # noqa: BLE001  as above
                    continue

    def _threads(self) -> str | None:
        if threading.active_count() > 1:
            return "threads: " + ", ".join(t.name for t in threading.enumerate()[1:])
        others = []
        for thread in Path("/proc/self/task").iterdir():
            if int(thread.name) != os.getpid():
                others.append((thread / "comm").read_text().strip())
        foreign = [name for name in others if name not in _HARMLESS_THREADS]
        return f"threads of the system: {', '.join(foreign)}" if foreign else None

    def _devices(self) -> str | None:
        for descriptor in Path("/proc/self/fd").iterdir():
            try:
                target = str(descriptor.readlink())
            except OSError:
                continue
            if target.startswith(("/dev/nvidia", "/dev/kfd")):
                return f"an import opened {target}"
        return None

    # --- the server -------------------------------------------------------------------------

    def serve(self) -> tuple[dict[str, Any], list[int]]:
        """Fork a child for each request; returns in the child: (request, descriptors)."""
        while True:
            watched: list[Any] = [self.listener, self.owner, *self.children]
            pidfds = {c.pidfd: s for s, c in self.children.items() if c and not c.has_ended}
            ready, _, _ = select.select([*watched, *pidfds], [], [])
            for source in ready:
                if source == self.owner:
                    self._end()
                elif source is self.listener:
                    connection, _ = self.listener.accept()
                    self.children[connection] = None
                elif source in pidfds:
                    self._tell_end(pidfds[source])
                elif source in self.children:
                    request = self._hear(source)
                    if request is not None:
                        return request
                break  # what was ready may be gone by now

    def _hear(self, connection: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
        try:
            request, descriptors = receive(connection)
        except OSError:
            request, descriptors = None, []
        if request is None:
            self._drop(connection)
            return None
        pid = fork()
        if pid == 0:
            self._become_child()
            return request, descriptors
        for descriptor in descriptors:
            os.close(descriptor)
        self.children[connection] = _Child(pid)
        try:
            send(connection, {"pid": pid})
        except OSError:
            self._drop(connection)
        return None

    def _become_child(self) -> None:
        zygote = os.getppid()
        os.setsid()
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != zygote:
            os._exit(1)
        self.listener.close()
        os.close(self.owner)
        for connection, child in self.children.items():
            connection.close()
            if child is not None:
                os.close(child.pidfd)

    def _tell_end(self, connection: socket.socket) -> None:
        """Tell the exit code; the zombie stays, and so its number, until the lease ends."""
        child = self.children[connection]
        assert child is not None
        ended = os.waitid(os.P_PIDFD, child.pidfd, os.WEXITED | os.WNOWAIT)
        assert ended is not None
        code = ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
        child.has_ended = True
        try:
            send(connection, {"exit": code})
        except OSError:
            self._drop(connection)

    def _drop(self, connection: socket.socket) -> None:
        child = self.children.pop(connection)
        connection.close()
        if child is not None:
            if not child.has_ended:
                try:
                    os.killpg(child.pid, signal.SIGKILL)
                except ProcessLookupError:  # not yet the leader of its group
                    os.kill(child.pid, signal.SIGKILL)
            os.waitpid(child.pid, 0)
            os.close(child.pidfd)

    def _end(self) -> NoReturn:
        for connection in list(self.children):
            self._drop(connection)
        os._exit(0)


# --- in the child -------------------------------------------------------------------------------


def _boot_and_list() -> list[str]:
    """Boot a kernel that nobody talks to; return `cuda` or `fine`, and what it has imported."""
    before = set(sys.modules)
    import tempfile

    from ipykernel.kernelapp import IPKernelApp

    with tempfile.TemporaryDirectory() as folder:
        app: Any = IPKernelApp.instance(parent_handle=os.getppid())
        app.initialize(["-f", f"{folder}/k.json", "--HistoryManager.enabled=False"])
        app.kernel.shell.run_cell("import os\nprint(1)\n[1]")
        app.kernel.shell.run_cell("raise ValueError('probe')")
        torch = sys.modules.get("torch")
        bad = torch is not None and torch.cuda._is_in_bad_fork()
        return ["cuda" if bad else "fine", *(name for name in sys.modules if name not in before)]


def become_kernel(
    request: dict[str, Any], descriptors: list[int], changed: dict[str, str], filters: list[Any]
) -> NoReturn:
    """Turn this forked child into the kernel of a request; never returns."""
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(descriptors[0], 1)
    os.dup2(descriptors[0], 2)
    for descriptor in (null, *descriptors):
        os.close(descriptor)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update({**changed, **request["env"], "JPY_PARENT_PID": str(os.getppid())})
    time.tzset()
    os.chdir(request["cwd"])
    sys.argv = request["argv"]
    _fresh_random_state()

    from ipykernel.kernelapp import IPKernelApp

    code = 0
    app: Any = IPKernelApp.instance(parent_handle=os.getppid())
    try:
        app.initialize(request["argv"][1:])
        # In a fresh kernel the filters of libraries come before those of IPython.
        rest = [f for f in warnings.filters if f not in filters]
        warnings.filters[:] = [*filters, *rest]  # type: ignore[index]
        warnings._filters_mutated()  # type: ignore[attr-defined]
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

    if app.control_thread is not None and app.control_thread.is_alive():
        app.control_thread.join(1.0)
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


def _main(path: str, owner: int, report: int) -> NoReturn:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C at the terminal is not for us
    modules = sys.stdin.read().split("\n")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    zygote = Zygote(listener, owner, modules)
    listener.bind(path)
    listener.listen(64)
    os.write(report, json.dumps({"refusal": zygote.refusal}).encode() + b"\n")
    os.close(report)
    request, descriptors = zygote.serve()
    changed, filters = zygote.changed, zygote.filters
    del zygote
    become_kernel(request, descriptors, changed, filters)


if __name__ == "__main__":
    _main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
