"""The sweep's end of the socket on which a trial's points arrive."""

from __future__ import annotations

import json
import socket
from pathlib import Path

from ...notebook_api.messages import DATAGRAM_BYTES, HANDLES_STOP, RAISING, STOPPING, Point


class ReportSocket:
    """Receives the points of one trial from its kernel and from all processes that this starts.

    Attributes:
        handles_stop: whether the notebook asks by itself whether it should stop.
        is_stopping: whether the notebook has received a stop, and ends.
        raised: how many reports have raised because of a stop.
        libraries: those that have reported by themselves.
    """

    def __init__(self) -> None:
        self.handles_stop = self.is_stopping = False
        self.raised = 0
        self.libraries: set[str] = set()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, DATAGRAM_BYTES)
        self._socket.setblocking(False)

    def bind(self, path: Path) -> None:
        """Receive points from now on.

        Args:
            path: where the socket is made; short, and not there yet.

        Raises:
            OSError: the socket cannot be made, most often because its folder was removed.
        """
        self._socket.bind(str(path))

    def fileno(self) -> int:
        """Readable when a point has arrived."""
        return self._socket.fileno()

    def take(self) -> list[Point]:
        """The points that have arrived since the last call, in the order they were sent."""
        points = []
        while True:
            try:
                message = json.loads(self._socket.recv(DATAGRAM_BYTES))
                self.handles_stop |= HANDLES_STOP in message
                self.is_stopping |= STOPPING in message
                self.raised += RAISING in message
                if not {HANDLES_STOP, STOPPING, RAISING} & message.keys():
                    points.append(Point.decode(message))
                    self.libraries |= {points[-1].library} - {""}
            except BlockingIOError:
                return points
            except (ValueError, KeyError, TypeError, AttributeError):
                continue  # not sent by `report` or `score`

    def close(self) -> None:
        """Receive no more; a process that still reports is not blocked."""
        self._socket.close()
