"""Replay the messages of a shared cell to nbclient as if the cell ran now."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..forking.origins import RanCell
from ..forking.zygote.messages import RECORDED


class RecordedClient:
    """The part of a kernel's client that executing one cell takes.

    Args:
        client: of the kernel that goes on after the cell; it gets what widgets send.
    """

    def __init__(self, ran: RanCell, client: Any) -> None:
        self.session = client.session
        count = {} if ran.execution_count is None else {"execution_count": ran.execution_count}
        accepted = {"msg_type": "execute_input", "content": count}
        reply = {"msg_type": "execute_reply", "content": {"status": "ok", **count}}
        idle = {"msg_type": "status", "content": {"execution_state": "idle"}}
        self.shell_channel = _Channel(iter([reply]), client.shell_channel)
        messages = iter([accepted, *map(dict, ran.messages), idle])
        self.iopub_channel = _Channel(messages, client.iopub_channel)

    def execute(self, *_: Any, **__: Any) -> str:
        """The request that all the recorded messages answer."""
        return RECORDED


class _Channel:
    def __init__(self, messages: Iterator[dict[str, Any]], channel: Any) -> None:
        self._messages = messages
        self.send, self.socket = channel.send, channel.socket

    async def get_msg(self, **_: Any) -> dict[str, Any]:
        """The next message."""
        message = next(self._messages)
        header = {"msg_type": message["msg_type"]}
        parts = {"header": header, "parent_header": {"msg_id": RECORDED}, "buffers": []}
        return {**message, **parts}
