"""Configure IPython for a sweep's kernels.

Every kernel runs a copy of this file when it boots, and so does the process that kernels are forked
from (zygote). The copy is in the folder that IPYTHONDIR names. No module imports this file.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import zmq
from ipykernel.iostream import IOPubThread
from ipykernel.kernelapp import IPKernelApp
from zmq.eventloop.zmqstream import ZMQStream

#: A child's last prints must be delivered within this number of milliseconds, as in ipykernel.
_LINGER_MS = 3000


def _init_iopub(self: Any, context: Any, _original: Any = IPKernelApp.init_iopub) -> None:
    """Bind the socket that publishes outputs, without a limit on queued messages.

    By default, zmq drops a message if 1000 messages wait for the client, which happens on a busy
    machine. ipykernel makes and binds the socket in one method. So the limit of the context, which
    new sockets get, is removed while this method runs.
    """
    context.setsockopt(zmq.SNDHWM, 0)
    try:
        _original(self, context)
    finally:
        del context.sndhwm


def _setup_pipe_in(self: Any) -> None:
    """Open a private socket for the prints of the kernel's forked children.

    By default, ipykernel opens a TCP port, to which any user of the machine could send until the
    memory is full. This socket is in a folder that only this user can enter. It is private even if
    the kernel's other sockets use TCP.
    """
    self._children = f"ipc://{os.environ['IPYTHONDIR']}/children-{os.getpid()}"
    self._pipe_uuid = os.urandom(16)
    pipe_in = self.socket.context.socket(zmq.PULL)
    pipe_in.linger = 0
    pipe_in.bind(self._children)
    self._pipe_in = ZMQStream(pipe_in, self.io_loop)
    self._pipe_in.on_recv(self._handle_pipe_msg)


def _setup_pipe_out(self: Any) -> tuple[Any, Any]:
    """Connect a forked child to the kernel, which publishes the child's prints."""
    context = zmq.Context()
    pipe_out = context.socket(zmq.PUSH)
    pipe_out.linger = _LINGER_MS
    pipe_out.connect(self._children)
    return context, pipe_out


IPKernelApp.init_iopub = _init_iopub  # type: ignore[method-assign]
IOPubThread._setup_pipe_in = _setup_pipe_in  # type: ignore[method-assign]
IOPubThread._setup_pipe_out = _setup_pipe_out  # type: ignore[method-assign]

# IPython defines `get_config` when it runs this file.
c = get_config()  # type: ignore[name-defined]  # noqa: F821
# By default, each kernel has a database of its history and a thread that writes to the database.
# Trials need neither.
c.HistoryManager.enabled = False
c.HistoryManager.hist_file = ":memory:"  # nbclient sets the same value.

# Trials need no debugger, and its import takes 20 % of a kernel's boot time and 8 MB. So make
# ipykernel believe that debugpy is not installed. Notebooks can still import debugpy. ipykernel 6
# has imported debugpy before this file runs, so its time cannot be saved.
if not {"debugpy", "ipykernel.debugger"} & sys.modules.keys():
    sys.modules["debugpy"] = None  # type: ignore[assignment]
    try:
        import ipykernel.debugger  # noqa: F401
    except ImportError:
        pass
    finally:
        del sys.modules["debugpy"]
