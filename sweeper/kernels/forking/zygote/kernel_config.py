"""Configure IPython for a sweep's kernels. IPython reads a copy of this file in their folder.

Every kernel runs it when it boots, and so does the zygote. No module imports it.
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

    By default, messages beyond 1000 that the client has not read are dropped, which happens on a
    busy machine. ipykernel makes and binds the socket in one method. So the context has no limit
    for new sockets while that method runs.
    """
    context.setsockopt(zmq.SNDHWM, 0)
    try:
        _original(self, context)
    finally:
        del context.sndhwm


def _setup_pipe_in(self: Any) -> None:
    """Open a private socket for the prints of the kernel's forked children.

    By default, ipykernel opens a TCP port, to which any user of the machine could send until memory
    is full. This socket is in a folder that only this user can enter, whatever transport the kernel
    itself uses.
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

# IPython defines `get_config` when it runs this file.
c = get_config()  # type: ignore[name-defined]  # noqa: F821
# By default, each kernel has a database of its history and a thread that writes to the database.
# Trials need neither.
c.HistoryManager.enabled = False
c.HistoryManager.hist_file = ":memory:"  # as in nbclient

# Trials need no debugger. Its import takes 20 % of a kernel's boot time and 8 MB, so ipykernel is
# made to work without a debugger. Notebooks can still import one. ipykernel 6 has imported the
# debugger before this file runs, so there is nothing to save.
if not {"debugpy", "ipykernel.debugger"} & sys.modules.keys():
    sys.modules["debugpy"] = None  # type: ignore[assignment]  # as if it were not installed
    try:
        import ipykernel.debugger  # noqa: F401
    except ImportError:
        pass
    finally:
        del sys.modules["debugpy"]
