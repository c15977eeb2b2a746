"""Receive the points (reported values) of a trial on a Unix socket."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

from ...notebook_api.messages import DATAGRAM_BYTES, HANDLES_STOP, RAISING, STOPPING, Point


class ReportSocket:
    """Receives the points (reported values) of one trial.

    The trial's kernel, and all processes that the kernel starts, may send points.

    Attributes:
        handles_stop: Whether the notebook has called `should_stop`, and so may end by itself.
        is_stopping: Whether `should_stop` has returned True in the notebook.
        raised: Number of calls of `report` that have raised an exception because of a stop. Calls
            of libraries whose logs count as reports are included.
        libraries: Names of the libraries that have logged points.
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
        """Receive points (reported values), and messages about stops, from now on.

        Args:
            path: Path of the socket. It must be short and not exist yet.

        Raises:
            OSError: The socket cannot be made, most often because its folder was removed.
        """
        self._socket.bind(str(path))

    def fileno(self) -> int:
        """Return the socket's file descriptor. It is readable when a message has arrived."""
        return self._socket.fileno()

    def take(self) -> list[Point]:
        """Return the reported points that arrived since the last call, in the order of sending."""
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
                continue  # Ignore a message that `report` and `score` cannot have sent.

    def _is_about_a_stop(self, message: dict[str, Any]) -> bool:
        """Return whether a message is about a stop, and not a point.

        If it is about a stop, set the attributes that say how the notebook reacts to stops.
        """
        self.handles_stop |= HANDLES_STOP in message
        self.is_stopping |= STOPPING in message
        self.raised += RAISING in message
        return not message.keys().isdisjoint((HANDLES_STOP, STOPPING, RAISING))

    def close(self) -> None:
        """Close the socket. A process that reports later is not blocked: its report is lost."""
        self._socket.close()
