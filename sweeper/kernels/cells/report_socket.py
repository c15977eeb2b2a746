"""The sweep's end of the socket on which a trial's points arrive."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

from ...notebook_api.messages import DATAGRAM_BYTES, HANDLES_STOP, RAISING, STOPPING, Point


class ReportSocket:
    """Receives the points of one trial, from its kernel and all processes that the kernel starts.

    Attributes:
        handles_stop: Whether the notebook asks by itself whether it should stop.
        is_stopping: Whether the notebook has received a stop, and ends.
        raised: How many reports have raised because of a stop.
        libraries: The libraries that have reported by themselves.
    """

    def __init__(self) -> None:
        self.handles_stop = False
        self.is_stopping = False
        self.raised = 0
        self.libraries: set[str] = set()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, DATAGRAM_BYTES)
        self._socket.setblocking(False)

    def bind(self, path: Path) -> None:
        """Receive points from now on.

        Args:
            path: Where the socket is made. It is short, and nothing is there yet.

        Raises:
            OSError: The socket cannot be made, most often because its folder was removed.
        """
        self._socket.bind(str(path))

    def fileno(self) -> int:
        """Return the descriptor, which is readable when a point has arrived."""
        return self._socket.fileno()

    def take(self) -> list[Point]:
        """Return the points that have arrived since the last call, in the order of sending."""
        points: list[Point] = []
        while True:
            try:
                message = json.loads(self._socket.recv(DATAGRAM_BYTES))
                if self._is_about_a_stop(message):
                    continue
                points.append(Point.decode(message))
            except BlockingIOError:
                self.libraries.update(point.library for point in points if point.library)
                return points
            except (ValueError, KeyError, TypeError, AttributeError):
                continue  # not sent by `report` or `score`

    def _is_about_a_stop(self, message: dict[str, Any]) -> bool:
        """Note what the notebook does about a stop, if the message tells."""
        self.handles_stop |= HANDLES_STOP in message
        self.is_stopping |= STOPPING in message
        self.raised += RAISING in message
        return not message.keys().isdisjoint((HANDLES_STOP, STOPPING, RAISING))

    def close(self) -> None:
        """Receive no more; a process that still reports is not blocked."""
        self._socket.close()
