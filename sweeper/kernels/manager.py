"""A kernel manager for many kernels at once: private sockets, no lost messages."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import zmq
from jupyter_client.manager import AsyncKernelManager


class PrivateKernelManager(AsyncKernelManager):
    """Talks to its kernel over Unix sockets in a folder of its own.

    TCP ports are chosen before the kernel binds them, and kernels that start together collide.
    """

    def __init__(self, *, runtime_folder: Path, **options: Any) -> None:
        super().__init__(**options)
        # A socket's path may have 107 characters, so this is never below the user's folders.
        self._folder = tempfile.mkdtemp(prefix="k", dir=runtime_folder)
        self.transport = "ipc"
        self.connection_file = f"{self._folder}/k.json"  # the sockets' names follow it

    def client(self, **options: Any) -> Any:
        """A client that drops nothing, however fast the kernel prints (the default is 1000)."""
        client = super().client(**options)
        client.context.setsockopt(zmq.RCVHWM, 0)
        return client

    def remove_folder(self) -> None:
        """Remove what the kernel leaves behind; called when it is gone."""
        shutil.rmtree(self._folder, ignore_errors=True)
