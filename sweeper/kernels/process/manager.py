"""jupyter_client for many kernels at once: private sockets, no lost messages, no fixed waits."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from queue import Empty
from typing import Any

import zmq
import zmq.asyncio
from jupyter_client.asynchronous.client import AsyncKernelClient
from jupyter_client.manager import AsyncKernelManager
from traitlets import default

#: How soon to try again to reach a kernel that has not bound its sockets yet.
_RECONNECT_MS = 5
#: How long to wait for an answer before the next request: first, and at most.
_FIRST_RETRY_S, _LAST_RETRY_S = 0.02, 0.5


class QuickClient(AsyncKernelClient):
    """A client that is ready when both sockets receive, and not after 0.2 s of silence."""

    @default("context")
    def _own_context(self) -> zmq.asyncio.Context:
        context = zmq.asyncio.Context()
        context.setsockopt(zmq.RECONNECT_IVL, _RECONNECT_MS)
        # By default, of a kernel that prints faster than this reads, messages beyond 1000 are lost.
        context.setsockopt(zmq.RCVHWM, 0)
        return context

    def start_channels(self, *_: Any, **__: Any) -> None:
        """Open the two sockets that executing cells needs; a heartbeat would take a thread."""
        super().start_channels(shell=True, iopub=True, stdin=False, hb=False, control=False)

    def stop_channels(self) -> None:
        """Close them."""
        for channel in (self.shell_channel, self.iopub_channel):
            if channel.is_alive():
                channel.stop()
        if not self.context.closed:
            self.context.destroy(linger=100)

    async def wait_for_ready(
        self, timeout: float | None = None, is_wanted: Callable[[], bool] = lambda: True
    ) -> None:
        """Wait for the kernel's first answer.

        Args:
            is_wanted: whether the kernel is still needed; called twice a second or more often.

        Raises:
            RuntimeError: the kernel died first, did not answer in time, or is not wanted any more.
        """
        deadline = time.monotonic() + (timeout or 60.0)
        retry_s = _FIRST_RETRY_S
        asked = {self.kernel_info()}
        reply: dict[str, Any] | None = None
        is_connected = False
        while reply is None or not is_connected:
            answered, connected = await asyncio.gather(
                self._reply_within(retry_s if reply is None else 0.0),
                self._connected_within(retry_s if not is_connected else 0.0, asked),
            )
            reply, is_connected = reply or answered, is_connected or connected
            if reply is not None and not is_connected:
                # The end of the last request came before this socket received.
                asked.add(self.kernel_info())
            retry_s = min(2 * retry_s, _LAST_RETRY_S)
            if not is_wanted():
                raise RuntimeError("its trial was stopped before its first answer")
            if reply is None and not await self.is_alive():
                raise RuntimeError("it died before its first answer")
            if not (reply and is_connected) and not Path(self.connection_file).exists():
                raise RuntimeError("its private folder was removed")
            if time.monotonic() > deadline and not (reply and is_connected):
                raise RuntimeError(f"no answer within {timeout:g} s")
        self.session.adapt_version = int(reply["content"]["protocol_version"].split(".")[0])
        self.language_info = reply["content"]["language_info"]

    async def _reply_within(self, limit_s: float) -> dict[str, Any] | None:
        with suppress(Empty):
            message: dict[str, Any] = await self.shell_channel.get_msg(timeout=limit_s)
            return message if message["msg_type"] == "kernel_info_reply" else None
        return None

    async def _connected_within(self, limit_s: float, asked: set[str]) -> bool:
        """Whether outputs arrive from now on.

        ipykernel greets a new subscriber of its outputs; of other kernels, the end of one of the
        requests `asked` arrives.
        """
        deadline = time.monotonic() + limit_s
        with suppress(Empty):
            while (left_s := deadline - time.monotonic()) > 0:
                message = await self.iopub_channel.get_msg(timeout=left_s)
                if message["msg_type"] == "iopub_welcome":
                    return True
                is_idle = message["content"].get("execution_state") == "idle"
                if is_idle and message["parent_header"].get("msg_id") in asked:
                    return True
        return False


class PrivateKernelManager(AsyncKernelManager):
    """Connects to its kernel by Unix sockets in a folder of its own, where the kernel knows those.

    TCP ports are chosen before the kernel binds them, and kernels that start together collide.

    Args:
        folder: for the connection file and the sockets.
        is_local: whether to connect by Unix sockets; by TCP if not.
    """

    def __init__(self, *, folder: Path, is_local: bool, **options: Any) -> None:
        super().__init__(**options)
        self.transport = "ipc" if is_local else "tcp"
        self.connection_file = str(folder / "k.json")  # the sockets' names follow it

    @default("client_factory")
    def _quick(self) -> type[QuickClient]:
        return QuickClient
