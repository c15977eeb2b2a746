"""Requests to a kernel beside the cells, which leave no trace in the notebook."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from nbclient.util import run_sync
from papermill.clientwrap import PapermillNotebookClient

from ..kernel import Kernel


class AskingClient(PapermillNotebookClient):
    """papermill's client, which can also run code and evaluate expressions beside the cells.

    Attributes:
        kernel: the kernel's process, whose end also ends the wait for a reply.
    """

    kernel: Kernel

    def _run_silently(self, code: str) -> None:
        """Have the kernel run code that leaves no trace, before any later request."""
        self.kc.execute(code, silent=True, store_history=False)

    async def _async_evaluate(self, expressions: Mapping[str, str]) -> dict[str, Any]:
        """Evaluate expressions in the kernel; return the answers by name, none if it died."""
        request = self.kc.execute(
            "", silent=True, store_history=False, user_expressions=dict(expressions)
        )
        reply = asyncio.ensure_future(self._reply_to(request))
        end = asyncio.ensure_future(self.kernel.ended())
        try:
            await asyncio.wait({reply, end}, return_when=asyncio.FIRST_COMPLETED)
            return reply.result() if reply.done() else {}
        finally:
            reply.cancel()
            end.cancel()

    async def _reply_to(self, request: str) -> dict[str, Any]:
        while True:
            message = await self.kc.shell_channel.get_msg(timeout=None)
            if message["parent_header"].get("msg_id") == request:
                return dict(message["content"].get("user_expressions", {}))

    _evaluate = run_sync(_async_evaluate)
