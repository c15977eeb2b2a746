"""IPython's configuration of a sweep's kernels, which find it in their folder of IPython.

Every kernel runs it when it boots, and so does the zygote. Nothing imports it.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import zmq
from ipykernel.iostream import IOPubThread
from ipykernel.kernelapp import IPKernelApp
from zmq.eventloop.zmqstream import ZMQStream

#: How long a child's last prints may be on their way, which is ipykernel's own value.
_LINGER_MS = 3000


def _init_iopub(self: Any, context: Any, _original: Any = IPKernelApp.init_iopub) -> None:
    """Bind the socket that publishes outputs, without a limit of its messages.

    By default it drops messages beyond 1000 that its reader has not taken, as on a machine whose
    processors are busy. ipykernel makes and binds the socket in one method, so the context has no
    limit for new sockets while that method runs.
    """
    context.setsockopt(zmq.SNDHWM, 0)
    try:
        _original(self, context)
    finally:
        del context.sndhwm


def _setup_pipe_in(self: Any) -> None:
    """Listen to forked children of the kernel, which print through it.

    By default ipykernel listens at a TCP port, where any user of the machine can send until its
    memory is full. This socket is in a folder that only this user can enter, whatever transport
    the kernel itself has.
    """
    self._children = f"ipc://{os.environ['IPYTHONDIR']}/children-{os.getpid()}"
    self._pipe_uuid = os.urandom(16)
    pipe_in = self.socket.context.socket(zmq.PULL)
    pipe_in.linger = 0
    pipe_in.bind(self._children)
    self._pipe_in = ZMQStream(pipe_in, self.io_loop)
    self._pipe_in.on_recv(self._handle_pipe_msg)


def _setup_pipe_out(self: Any) -> tuple[Any, Any]:
    """Connect a forked child to the kernel."""
    context = zmq.Context()
    pipe_out = context.socket(zmq.PUSH)
    pipe_out.linger = _LINGER_MS
    pipe_out.connect(self._children)
    return context, pipe_out


IPKernelApp.init_iopub = _init_iopub  # type: ignore[method-assign]
IOPubThread._setup_pipe_in = _setup_pipe_in  # type: ignore[method-assign]
IOPubThread._setup_pipe_out = _setup_pipe_out  # type: ignore[method-assign]

c = get_config()  # type: ignore[name-defined]  # noqa: F821  IPython runs this file with it
# Each kernel would have a database of its history, and a thread that writes to it.
c.HistoryManager.enabled = False
c.HistoryManager.hist_file = ":memory:"  # as nbclient has it

# Nobody attaches a debugger to a trial, and its import takes a fifth of a kernel's boot and 8 MB.
# Notebooks can still import it. ipykernel 6 imports it before it reads this.
if not {"debugpy", "ipykernel.debugger"} & sys.modules.keys():
    sys.modules["debugpy"] = None  # type: ignore[assignment]  # as if it were not installed
    try:
        import ipykernel.debugger  # noqa: F401
    except ImportError:
        pass
    finally:
        del sys.modules["debugpy"]
