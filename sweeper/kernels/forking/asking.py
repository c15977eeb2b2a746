"""What a client asks of its kernel beside the cells, without a trace in the notebook."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from nbclient.util import run_sync
from papermill.clientwrap import PapermillNotebookClient

from ..kernel import Kernel


class AskingClient(PapermillNotebookClient):
    """papermill's client, which can also ask.

    Attributes:
        kernel: its process, whose end ends the wait for an answer.
    """

    kernel: Kernel

    def _tell(self, code: str) -> None:
        """Have the kernel run code that leaves no trace, before anything that is asked later."""
        self.kc.execute(code, silent=True, store_history=False)

    async def _async_ask(
        self, code: str, expressions: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        """Have the kernel run code that leaves no trace; return the values of expressions."""
        request = self.kc.execute(
            code, silent=True, store_history=False, user_expressions=dict(expressions or {})
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

    _ask = run_sync(_async_ask)
