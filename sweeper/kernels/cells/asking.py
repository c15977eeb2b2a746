"""Requests to a kernel beside the cells, which leave no trace in the notebook."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from nbclient.util import run_sync
from papermill.clientwrap import PapermillNotebookClient

from ..kernel import Kernel

#: How long a kernel may be silent about a request before it is made to look for it, and how long
#: the connection is open that makes it look.
_OVERLOOKED_S, _WOKEN_S = 2.0, 0.5


class AskingClient(PapermillNotebookClient):
    """papermill's client, which can also run code and evaluate expressions beside the cells.

    Attributes:
        kernel: the kernel's process, whose end also ends the wait for a reply.
    """

    kernel: Kernel

    async def _wake(self, has_begun: Callable[[], bool]) -> None:
        """Have the kernel find a request that it overlooks.

        ipykernel 7.0 to 7.3 may overlook a request that arrives while it sends a reply
        (ipython/ipykernel#1529). It then waits for ever; no further request wakes it, but a new
        connection does. A kernel that is merely busy is not disturbed by one.
        """
        await asyncio.sleep(_OVERLOOKED_S)
        while not has_begun():
            connection = self.km.connect_shell()
            try:
                await asyncio.sleep(_WOKEN_S)
            finally:  # the whole cell may be done by now, which cancels this
                connection.close(linger=0)
            await asyncio.sleep(_OVERLOOKED_S)

    def _run_silently(self, code: str) -> None:
        """Have the kernel run code that leaves no trace, before any later request."""
        self.kc.execute(code, silent=True, store_history=False)

    async def _async_evaluate(self, expressions: Mapping[str, str]) -> dict[str, Any]:
        """Evaluate expressions in the kernel; return the answers by name, none if it died."""
        request = self.kc.execute(
            "", silent=True, store_history=False, user_expressions=dict(expressions)
        )
        reply = asyncio.ensure_future(self._reply_to(request))
        waker = asyncio.ensure_future(self._wake(reply.done))
        end = asyncio.ensure_future(self.kernel.ended())
        try:
            await asyncio.wait({reply, end}, return_when=asyncio.FIRST_COMPLETED)
            return reply.result() if reply.done() else {}
        finally:
            for task in (reply, waker, end):
                task.cancel()

    async def _reply_to(self, request: str) -> dict[str, Any]:
        while True:
            message = await self.kc.shell_channel.get_msg(timeout=None)
            if message["parent_header"].get("msg_id") == request:
                return dict(message["content"].get("user_expressions", {}))

    _evaluate = run_sync(_async_evaluate)
