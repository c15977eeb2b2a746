"""IPython's folder of a sweep's kernels: nothing of the user's, no history on disk, no debugger."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from ...files import make_private_folder

#: History: each kernel would have a database of its own, and a thread that writes to it.
#: Debugger: nobody attaches one to a trial, and its import takes a fifth of a kernel's boot and
#: 8 MB. Notebooks can still import it. ipykernel 6 imports it before it reads this.
#: Outputs: by default, a socket that publishes drops messages beyond 1000 that its reader has not
#: taken, as on a machine whose processors are busy. ipykernel makes and binds this socket in one
#: method, so the context has no limit for new sockets while that method runs.
#: Children: forked children of a kernel print through it. By default it listens for them at a TCP
#: port, where any user of the machine can send until its memory is full.
_CONFIGURATION = """\
import os
import sys

import zmq
from ipykernel.iostream import IOPubThread
from ipykernel.kernelapp import IPKernelApp
from zmq.eventloop.zmqstream import ZMQStream


def _init_iopub(self, context, _original=IPKernelApp.init_iopub):
    context.setsockopt(zmq.SNDHWM, 0)
    try:
        _original(self, context)
    finally:
        del context.sndhwm


IPKernelApp.init_iopub = _init_iopub


def _setup_pipe_in(self):
    # In a folder that only this user can enter, whatever transport the kernel itself has.
    self._children = f"ipc://{os.environ['IPYTHONDIR']}/children-{os.getpid()}"
    self._pipe_uuid = os.urandom(16)
    pipe_in = self.socket.context.socket(zmq.PULL)
    pipe_in.linger = 0
    pipe_in.bind(self._children)
    self._pipe_in = ZMQStream(pipe_in, self.io_loop)
    self._pipe_in.on_recv(self._handle_pipe_msg)


def _setup_pipe_out(self):
    context = zmq.Context()
    pipe_out = context.socket(zmq.PUSH)
    pipe_out.linger = 3000  # as ipykernel has it
    pipe_out.connect(self._children)
    return context, pipe_out


IOPubThread._setup_pipe_in = _setup_pipe_in
IOPubThread._setup_pipe_out = _setup_pipe_out

c.HistoryManager.enabled = False
c.HistoryManager.hist_file = ":memory:"  # as nbclient has it

if not {"debugpy", "ipykernel.debugger"} & sys.modules.keys():
    sys.modules["debugpy"] = None  # as if it were not installed
    try:
        import ipykernel.debugger
    except ImportError:
        pass
    finally:
        del sys.modules["debugpy"]
"""


def ipython_folder(runtime_folder: Path) -> str:
    """The value of IPYTHONDIR in kernels: a folder with their configuration, made if need be.

    So is the sweep's private folder, which a clean-up of /tmp may have removed, and anybody may
    have made anew.

    Raises:
        OSError: they cannot be made, or the private one is not private.
    """
    make_private_folder(runtime_folder)
    profile = runtime_folder / "ipython" / "profile_default"
    configuration = profile / "ipython_kernel_config.py"
    if not configuration.exists():
        profile.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Several threads may start kernels at once.
        with tempfile.NamedTemporaryFile("w", dir=profile, delete=False) as file:
            file.write(_CONFIGURATION)
        os.replace(file.name, configuration)
    return str(profile.parent)
