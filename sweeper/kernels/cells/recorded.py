"""Replay the messages of a shared cell to nbclient as if the cell ran now."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..forking.sharing import RanCell

_REQUEST = "recorded"


class RecordedClient:
    """The part of a kernel's client that executing one cell takes."""

    def __init__(self, ran: RanCell) -> None:
        count = {} if ran.execution_count is None else {"execution_count": ran.execution_count}
        accepted = {"msg_type": "execute_input", "content": count}
        reply = {"msg_type": "execute_reply", "content": {"status": "ok", **count}}
        idle = {"msg_type": "status", "content": {"execution_state": "idle"}}
        self.shell_channel = _Channel(iter([reply]))
        self.iopub_channel = _Channel(iter([accepted, *map(dict, ran.messages), idle]))

    def execute(self, *_: Any, **__: Any) -> str:
        """The request that all the recorded messages answer."""
        return _REQUEST


class _Channel:
    def __init__(self, messages: Iterator[dict[str, Any]]) -> None:
        self._messages = messages

    async def get_msg(self, **_: Any) -> dict[str, Any]:
        """The next message."""
        message = next(self._messages)
        header = {"msg_type": message["msg_type"]}
        return {**message, "header": header, "parent_header": {"msg_id": _REQUEST}}
