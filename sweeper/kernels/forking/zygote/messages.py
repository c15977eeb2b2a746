"""What goes over the zygote's sockets: JSON, and open files with it."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Sequence
from typing import Any

#: The request that all messages of shared cells answer.
RECORDED = "recorded"
#: How many open files come with one message at most.
_MOST_FILES = 4
_LENGTH = struct.Struct("<I")


def send(
    connection: socket.socket, message: dict[str, Any], descriptors: Sequence[int] = ()
) -> None:
    """Send one JSON message, with open files."""
    data = json.dumps(message).encode()
    socket.send_fds(connection, [_LENGTH.pack(len(data))], descriptors)
    connection.sendall(data)


def receive(connection: socket.socket) -> tuple[dict[str, Any] | None, list[int]]:
    """Receive one message and its files; None in place of the message at the end."""
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
