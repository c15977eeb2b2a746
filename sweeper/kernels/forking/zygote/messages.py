"""What goes over the zygote's socket: JSON, and open files with it."""

from __future__ import annotations

import array
import json
import socket
import struct
from collections.abc import Sequence
from typing import Any

#: The request that all messages of shared cells answer.
RECORDED = "recorded"


def send(
    connection: socket.socket, message: dict[str, Any], descriptors: Sequence[int] = ()
) -> None:
    """Send one JSON message, with open files."""
    data = json.dumps(message).encode()
    ancillary = []
    if descriptors:
        rights = array.array("i", descriptors)
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)]
    connection.sendmsg([struct.pack("<I", len(data))], ancillary)
    connection.sendall(data)


def receive(connection: socket.socket) -> tuple[dict[str, Any] | None, list[int]]:
    """Receive one message and its files; (None, []) at the end."""
    space = socket.CMSG_SPACE(4 * array.array("i").itemsize)
    head, ancillary, _, _ = connection.recvmsg(4, space, socket.MSG_CMSG_CLOEXEC)
    descriptors = array.array("i")
    for _, kind, rights in ancillary:
        if kind == socket.SCM_RIGHTS:
            descriptors.frombytes(rights[: len(rights) - len(rights) % descriptors.itemsize])
    if len(head) < 4:
        return None, list(descriptors)
    (left,) = struct.unpack("<I", head)
    data = b""
    while len(data) < left:
        part = connection.recv(left - len(data))
        if not part:
            return None, list(descriptors)
        data += part
    return json.loads(data), list(descriptors)
