"""The leading cells of a notebook, run once; kernels are forked with everything they have made.

They run in the shell that each forked kernel goes on with, under a session that records messages
in place of sending them; whoever drives such a kernel replays them into the executed notebook.
"""

from __future__ import annotations

import os
import random
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

from ipykernel import iostream
from ipykernel.compiler import XCachingCompiler
from ipykernel.displayhook import ZMQShellDisplayHook
from ipykernel.kernelapp import IPKernelApp
from ipykernel.zmqshell import ZMQDisplayPublisher, ZMQInteractiveShell
from IPython.core.application import BaseIPythonApplication
from jupyter_client.session import Session

from . import libraries

#: Messages that can be replayed; any other needs the kernel that it came from.
_REPLAYABLE = (
    *("stream", "display_data", "execute_result"),
    *("update_display_data", "clear_output"),
)
_HIDDEN = object()


class SharedCells:
    """The process in which the cells have run.

    Args:
        request: `cells`, in order, each with its `source` and whether it `is_parameters`; `swept`,
            the names that each trial gets its own value of; `argv` of a kernel without its file.

    Attributes:
        report: `why` the cells cannot be shared (None when they can), which of them is to blame
            (`refused_at`), and what each one said and took (`cells`).
    """

    def __init__(self, request: dict[str, Any], imported: libraries.Libraries) -> None:
        self._recorder = _Recorder()
        self._app: Any = _App.instance(parent_handle=os.getppid())
        self._app.boot(request["argv"][1:], self._recorder)
        imported.order_filters()
        self._files = libraries.open_files()
        self._said_bytes = _said_bytes()
        environment, states = dict(os.environ), _random_states()
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
        before = {name: key for name, (key, _) in states.items()}
        after = _random_states()
        self._states = {n: state for n, (key, state) in after.items() if before.get(n) != key}
        libraries.settle()
        said = libraries.in_a_fork(self._try_a_kernel)
        if said != "fine":
            last = len(request["cells"]) - 1
            self.report.update(refused_at=last, why=said or "a kernel forked after it did not boot")

    def kernel(self, argv: Sequence[str]) -> Any:
        """In a fork: the kernel's application, ready to start."""
        for name, value in self._environment.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        os.chdir(self._cwd)
        self._app.attach(argv[list(argv).index("-f") + 1])
        # At last: the sockets draw their ports, some of them on threads of their own.
        self._app.shell.events.register("pre_execute", self._go_on_drawing)
        return self._app

    def _go_on_drawing(self) -> None:
        self._app.shell.events.unregister("pre_execute", self._go_on_drawing)
        _restore(self._states)

    def _run(self, source: str) -> dict[str, Any]:
        """Run one cell; return what it said and how long it took."""
        self._recorder.messages = []
        started_at_s, started_s = time.time(), time.perf_counter()
        shell = self._app.shell
        count = shell.execution_count
        self._result = shell.run_cell(source, store_history=True)
        sys.stdout.flush()
        sys.stderr.flush()
        return {
            "messages": self._recorder.messages,
            "execution_count": count if shell.execution_count > count else None,
            "started_at_s": started_at_s,
            "duration_s": time.perf_counter() - started_s,
        }

    def _lost(self) -> str | None:
        """What the last cell has done that a fork would not carry over."""
        if not self._result.success:
            return "it raises"
        foreign = [m["msg_type"] for m in self._recorder.messages]
        if any(kind not in _REPLAYABLE for kind in foreign):
            return "it shows a widget"
        if _said_bytes() != self._said_bytes:
            return "it writes to the descriptors of the process"
        try:
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            return "it leaves a process behind"
        except ChildProcessError:
            pass
        left = {
            target
            for descriptor, target in libraries.open_files().items()
            if self._files.get(descriptor) != target and not target.startswith("/dev/null")
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
        """In a throw-away fork: boot a kernel that nobody talks to."""
        import tempfile

        with tempfile.TemporaryDirectory() as folder:
            app = self.kernel(["", "-f", f"{folder}/k.json"])
            if not app.shell.run_cell("", silent=True).success:
                return "no code runs in a kernel forked after it"
            return "it initialises CUDA" if libraries.cuda_is_lost() else "fine"


class _Recorder(Session):
    """Keeps the messages that a kernel would send."""

    messages: list[dict[str, Any]]

    def send(self, stream: Any, msg_or_type: Any, *arguments: Any, **options: Any) -> Any:
        """Keep a message."""
        message = msg_or_type
        if not isinstance(message, dict):
            names = ("content", "parent", "ident", "buffers", "track", "header", "metadata")
            given = {**dict(zip(names, arguments, strict=False)), **options}
            message = self.msg(msg_or_type, given.get("content"), metadata=given.get("metadata"))
        kept = ("msg_type", "content", "metadata")
        self.messages.append({name: message[name] for name in kept})
        return message


class _NoThread(iostream.IOPubThread):
    """Stands for the thread that sends what is printed, where none may be."""

    def __init__(self) -> None:
        self.thread: Any = None
        self.io_loop: Any = self

    def call_later(self, *_: Any) -> None:
        """What is printed is kept until it is flushed."""

    def schedule(self, f: Any) -> None:
        """At once."""
        f()

    def send_multipart(self, *_: Any, **__: Any) -> None:
        """Nobody to send to."""


class _OutStream(iostream.OutStream):
    """One object for each name, set up anew when it is asked for again: cells may have kept it."""

    _made: ClassVar[dict[str, _OutStream]] = {}

    def __new__(cls, _session: Any, _thread: Any, name: str, **_: Any) -> _OutStream:
        return cls._made.setdefault(name, super().__new__(cls))


# Libraries look for the kernel's streams by this name.
_OutStream.__name__ = _OutStream.__qualname__ = "OutStream"
_OutStream.__module__ = iostream.__name__


class _App(IPKernelApp):
    """A kernel that boots in two halves: its shell here, its sockets and threads in each fork."""

    def boot(self, arguments: Sequence[str], recorder: Session) -> None:
        """The first half: everything that cells need to run."""
        BaseIPythonApplication.initialize(self, list(arguments))
        self.init_pdb()
        self.init_blackhole()
        sys.stdout = _OutStream(recorder, _NoThread(), "stdout", watchfd=False)
        sys.stderr = _OutStream(recorder, _NoThread(), "stderr", watchfd=False)
        super().patch_io()
        self.shell = ZMQInteractiveShell.instance(
            parent=self, profile_dir=self.profile_dir, compiler_class=XCachingCompiler
        )
        displayhook, publisher = self.shell.displayhook, self.shell.display_pub
        assert isinstance(displayhook, ZMQShellDisplayHook)
        assert isinstance(publisher, ZMQDisplayPublisher)
        displayhook.session = publisher.session = recorder
        # `%matplotlib inline` asks the kernel for its event loop, which is none.
        self.kernel = self.shell.kernel = SimpleNamespace(eventloop=None)
        self.init_path()
        self.init_gui_pylab()
        self.init_extensions()
        self.init_code()

    def attach(self, connection_file: str) -> None:
        """The second half: everything that a client talks to."""
        self.parent_handle = os.getppid()
        self.connection_file = connection_file
        self.init_connection_file()
        self.init_poller()
        self.init_sockets()
        self.init_heartbeat()
        self.write_connection_file()
        self.init_io()
        self.init_signal()
        self.init_kernel()
        shell: Any = self.shell
        shell.parent = shell.kernel = self.kernel
        self.init_shell()
        sys.stdout.flush()
        sys.stderr.flush()

    def init_io(self) -> None:
        """The streams that the cells know get their thread; they stay the same objects."""
        sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__
        self.outstream_class = f"{__name__}._OutStream"
        super().init_io()

    def patch_io(self) -> None:
        """Done once, in the first half."""


def _said_bytes() -> int:
    """How much was written to the process's own output, past IPython's streams."""
    for stream in (sys.__stdout__, sys.__stderr__):
        if stream is not None:
            stream.flush()
    return os.fstat(1).st_size


def _random_states() -> dict[str, tuple[Any, Any]]:
    """Of each global generator a key to compare, and what restores it."""
    states: dict[str, tuple[Any, Any]] = {"random": (random.getstate(), random.getstate())}
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if numpy is not None and "numpy.random.mtrand" in sys.modules:
        state = numpy.random.get_state()
        states["numpy"] = (repr(state[2:]) + str(state[1].tobytes()), state)
    if torch is not None:
        tensor = torch.default_generator.get_state()
        states["torch"] = (tensor.numpy().tobytes(), tensor)
    return states


def _restore(states: dict[str, Any]) -> None:
    """Go on where the cells have left a generator that they used; forks begin with fresh ones."""
    if "random" in states:
        random.setstate(states["random"])
    if "numpy" in states:
        sys.modules["numpy"].random.set_state(states["numpy"])
    if "torch" in states:
        sys.modules["torch"].default_generator.set_state(states["torch"])
