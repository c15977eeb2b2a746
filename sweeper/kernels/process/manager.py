"""Adapt jupyter_client to many kernels at once: private sockets, no lost messages, short waits."""

from __future__ import annotations

import asyncio
import logging
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

#: The logs of jupyter_client and nbclient. The command line does not show these logs, because the
#: outcomes of trials report the same errors.
LIBRARY_LOG = logging.getLogger("sweeper.jupyter")

# The times below are chosen, not measured.
#: If a kernel has not bound its sockets yet, zmq tries to connect again after this number of
#: milliseconds.
_RECONNECT_MS = 5
#: If a kernel does not answer the first request, a second one is sent after this number of seconds.
#: The wait doubles before each further request.
_FIRST_RETRY_S = 0.02
#: Longest wait between two requests to a kernel that does not answer, in seconds.
_LAST_RETRY_S = 0.5


class QuickClient(AsyncKernelClient):
    """Client that is ready as soon as both of its sockets receive messages of the kernel.

    jupyter_client's own class also waits until no message has come for a while.
    """

    @default("context")
    def _own_context(self) -> zmq.asyncio.Context:
        context = zmq.asyncio.Context()
        context.setsockopt(zmq.RECONNECT_IVL, _RECONNECT_MS)
        # 0 means that any number of messages can wait. By default, zmq drops messages if 1000 wait.
        # That happens if a kernel prints faster than its messages are read.
        context.setsockopt(zmq.RCVHWM, 0)
        return context

    def start_channels(self, *_: Any, **__: Any) -> None:
        """Open only the two sockets that are needed to execute cells.

        A socket for heartbeats, for example, would need a thread for each kernel.
        """
        super().start_channels(shell=True, iopub=True, stdin=False, hb=False, control=False)

    def stop_channels(self) -> None:
        """Close the sockets that `start_channels` has opened, even if it could not open both.

        Do not read the attributes `shell_channel` and `iopub_channel` for this: reading them opens
        a socket if there is none.
        """
        self.context.destroy(linger=0)

    async def wait_until_ready(self, *, limit_s: float, is_wanted: Callable[[], bool]) -> None:
        """Wait until the kernel has answered a request, and the socket for outputs is connected.

        Args:
            limit_s: Time limit in seconds.
            is_wanted: Function that returns whether the kernel is still needed. This method calls
                it at least twice a second.

        Raises:
            RuntimeError: The kernel died, did not answer in time, lost its private folder, or is no
                longer needed. The message follows "the kernel did not start: " in the outcome of
                the trial.
        """
        deadline_s = time.monotonic() + limit_s
        retry_s = _FIRST_RETRY_S
        requests = {self.kernel_info()}
        reply: dict[str, Any] | None = None
        is_connected = False
        while reply is None or not is_connected:
            if not is_wanted():
                raise RuntimeError("the trial was stopped before the first answer")
            if reply is None and not await self.is_alive():
                raise RuntimeError("its process died before the first answer")
            if not Path(self.connection_file).exists():
                raise RuntimeError("its private folder was removed")
            if time.monotonic() > deadline_s:
                raise RuntimeError(f"it gave no answer within {limit_s:g} s")
            answered, connected = await asyncio.gather(
                self._reply_within(retry_s if reply is None else 0.0),
                self._connected_within(0.0 if is_connected else retry_s, requests),
            )
            reply = reply or answered
            is_connected = is_connected or connected
            if reply is not None and not is_connected:
                # The reply has come, but not the `idle` message of the request: the kernel sent
                # that message before the output socket was connected. Another request makes the
                # kernel send another `idle` message.
                requests.add(self.kernel_info())
            retry_s = min(2 * retry_s, _LAST_RETRY_S)
        content = reply["content"]
        self.session.adapt_version = int(content["protocol_version"].split(".")[0])
        self.language_info = content["language_info"]

    async def _reply_within(self, limit_s: float) -> dict[str, Any] | None:
        with suppress(Empty):
            message: dict[str, Any] = await self.shell_channel.get_msg(timeout=limit_s)
            return message if message["msg_type"] == "kernel_info_reply" else None
        return None

    async def _connected_within(self, limit_s: float, requests: set[str]) -> bool:
        """Return whether the socket for outputs is connected within a time.

        ipykernel sends a welcome message to each new subscriber of its outputs. With other kernels,
        the socket is known to be connected when the `idle` message of a request arrives.

        Args:
            limit_s: Time limit in seconds.
            requests: Ids of the requests that were sent.
        """
        deadline_s = time.monotonic() + limit_s
        with suppress(Empty):
            while (left_s := deadline_s - time.monotonic()) > 0:
                message = await self.iopub_channel.get_msg(timeout=left_s)
                if message["msg_type"] == "iopub_welcome":
                    return True
                is_idle = message["content"].get("execution_state") == "idle"
                if is_idle and message["parent_header"].get("msg_id") in requests:
                    return True
        return False


class PrivateKernelManager(AsyncKernelManager):
    """Manager that connects to its kernel by Unix sockets in a private folder.

    A TCP port is chosen before the kernel binds it, so two kernels that start at once could get the
    same port. TCP is used only for kernels that do not support Unix sockets.

    Args:
        folder: Folder for the connection file and the sockets.
        is_local: Whether to connect by Unix sockets. If not, TCP is used.
        **options: Further options of jupyter_client.
    """

    def __init__(self, *, folder: Path, is_local: bool, **options: Any) -> None:
        super().__init__(**options)
        self.transport = "ipc" if is_local else "tcp"
        self.connection_file = str(folder / "k.json")  # The sockets are named after this file.

    @default("client_factory")
    def _quick(self) -> type[QuickClient]:
        return QuickClient
