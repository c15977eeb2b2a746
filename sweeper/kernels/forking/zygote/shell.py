"""Boot a kernel in two halves: its shell before the fork, its sockets and threads in each fork.

Libraries that look for IPython at import find the shell with which every forked kernel continues.
Before `attach` opens the sockets, a `Recorder` stores messages instead of sending them.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, ClassVar

import comm
from ipykernel import iostream
from ipykernel.compiler import XCachingCompiler
from ipykernel.displayhook import ZMQShellDisplayHook
from ipykernel.kernelapp import IPKernelApp
from ipykernel.zmqshell import ZMQDisplayPublisher, ZMQInteractiveShell
from IPython.core.application import BaseIPythonApplication
from jupyter_client.session import Session, json_packer, json_unpacker

from .messages import RECORDED


class Recorder(Session):
    """Records the messages that a kernel would send.

    Attributes:
        messages: Type, content and metadata of each message as a client receives them, in order.
    """

    messages: list[dict[str, Any]]

    def send(self, stream: Any, msg_or_type: Any, *arguments: Any, **options: Any) -> Any:
        """Record a message."""
        message = msg_or_type
        if not isinstance(message, dict):
            names = ("content", "parent", "ident", "buffers", "track", "header", "metadata")
            parts = {**dict(zip(names, arguments)), **options}
            message = self.msg(msg_or_type, parts.get("content"), metadata=parts.get("metadata"))
        kept = {name: message[name] for name in ("msg_type", "content", "metadata")}
        # A display may contain dates, bytes or numbers of numpy, which plain JSON does not know.
        self.messages.append(json_unpacker(json_packer(kept)))
        return message

    def recorded(self) -> list[dict[str, Any]]:
        """Flush printed text, and return the messages since the last call of `take`."""
        for stream in _OutStream.made.values():
            stream.flush()
        return self.messages

    def take(self) -> list[dict[str, Any]]:
        """Return the messages since the last call, and forget them."""
        messages = self.recorded()
        self.messages = []
        return messages


class _NoThread(iostream.IOPubThread):
    """Replaces the thread that sends printed text: a process that forks must not have threads."""

    def __init__(self) -> None:
        self.thread: Any = None
        self.io_loop: Any = self

    def call_later(self, *_: Any) -> None:
        """Do nothing: printed text is kept until it is flushed."""

    def schedule(self, f: Any) -> None:
        """Call `f` at once, because there is no other thread that could call it."""
        f()

    def send_multipart(self, *_: Any, **__: Any) -> None:
        """Do nothing, because no client is connected."""


class _OutStream(iostream.OutStream):
    """An output stream of which only one object exists for each name.

    Cells may keep a stream in a variable. So each fork sets up the same object again, instead of
    making a new one.
    """

    made: ClassVar[dict[str, _OutStream]] = {}

    def __new__(cls, _session: Any, _thread: Any, name: str, **_: Any) -> _OutStream:
        return cls.made.setdefault(name, super().__new__(cls))


# Libraries recognize the kernel's streams by the name of their class.
_OutStream.__name__ = _OutStream.__qualname__ = "OutStream"
_OutStream.__module__ = iostream.__name__


class App(IPKernelApp):
    """A kernel's application that boots in two halves: `boot` before a fork, `attach` in a fork."""

    recorder: Recorder
    shell: Any

    def boot(self, arguments: Sequence[str]) -> None:
        """Boot the first half: the shell and the streams, which imports and cells need."""
        BaseIPythonApplication.initialize(self, list(arguments))
        self.init_pdb()
        self.init_blackhole()
        recorder = Recorder()
        recorder.messages = []
        self.recorder = recorder
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
        # `%matplotlib inline` asks the kernel for its event loop. Older widgets register with the
        # kernel's comm manager, of which there is one per process.
        self.kernel = self.shell.kernel = SimpleNamespace(
            eventloop=None,
            comm_manager=comm.get_comm_manager(),
            # `Output` widgets read the id of the current request. Cells that run before the fork
            # have no request, so they all get the same id.
            get_parent=lambda *_: {"header": {"msg_id": RECORDED}},
        )
        self.init_path()
        self.init_gui_pylab()
        self.init_extensions()
        self.init_code()

    def enter_fork(self) -> None:
        """Let the streams record the text that this fork prints.

        A stream ignores text from a process whose id differs from the stored one.
        """
        for stream in _OutStream.made.values():
            stream._master_pid = os.getpid()

    def attach(self, connection_file: str) -> None:
        """Boot the second half: the sockets and threads to which a client connects."""
        # A shared cell may have made an event loop. Its descriptors would be shared by all forks,
        # which would take each other's events.
        asyncio.set_event_loop(asyncio.new_event_loop())
        self.parent_handle = os.getppid()
        self.connection_file = connection_file
        # Cells may read the connection file's path from the configuration, where the command line
        # of a fresh kernel puts it.
        self.config.IPKernelApp.connection_file = connection_file
        self.init_connection_file()
        self.init_poller()
        self.init_sockets()
        self.init_heartbeat()
        self.write_connection_file()
        self.log_connection_info()
        self.init_io()
        self.init_signal()
        self.init_kernel()
        shell: Any = self.shell
        shell.parent = shell.kernel = self.kernel
        self.init_shell()
        sys.stdout.flush()
        sys.stderr.flush()

    def init_io(self) -> None:
        """Let the streams send their text to clients, by a thread.

        The stream objects stay the same, because cells may keep them.
        """
        sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__
        self.outstream_class = f"{__name__}._OutStream"
        super().init_io()

    def patch_io(self) -> None:
        """Do nothing, because `boot` has already called the original method."""

    def output_count(self) -> int:
        """Return how many messages about printed text and displays have been recorded."""
        return len(self.recorder.recorded())
