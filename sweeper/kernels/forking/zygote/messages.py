"""Send and receive JSON messages with open files, to ask a process for a fork, and to answer."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Sequence
from typing import Any

#: Message id that replaces the request's id in recorded messages of the cells tagged `shared`.
#: These cells run once, before any client sends a request.
RECORDED = "recorded"
#: One message carries at most this number of open files.
_MOST_FILES = 4
_LENGTH = struct.Struct("<I")


def send(
    connection: socket.socket, message: dict[str, Any], descriptors: Sequence[int] = ()
) -> None:
    """Send one JSON message, with open file descriptors."""
    data = json.dumps(message).encode()
    socket.send_fds(connection, [_LENGTH.pack(len(data))], descriptors)
    connection.sendall(data)


def receive(connection: socket.socket) -> tuple[dict[str, Any] | None, list[int]]:
    """Receive one JSON message and its open file descriptors.

    The message is None if the other process has closed the connection.
    """
    head, descriptors, _, _ = socket.recv_fds(connection, _LENGTH.size, _MOST_FILES)
    if len(head) < _LENGTH.size:
        return None, descriptors
    (length,) = _LENGTH.unpack(head)
    data = b""
    while len(data) < length:
        part = connection.recv(length - len(data))
        if not part:
            return None, descriptors
        data += part
    return json.loads(data), descriptors
