"""The sweep's end of the socket on which a trial's points arrive."""

from __future__ import annotations

import json
import socket
from pathlib import Path

from ...notebook_api.messages import DATAGRAM_BYTES, HANDLES_STOP, STOPPING, Point


class ReportSocket:
    """Where the points of one trial arrive, from its kernel and all that this has started.

    Args:
        path: of the socket; short, and not there yet.

    Attributes:
        handles_stop: whether the notebook asks by itself whether it should stop.
        is_stopping: whether it has been told so, and ends.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.handles_stop = self.is_stopping = False
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, DATAGRAM_BYTES)
        self._socket.bind(str(path))
        self._socket.setblocking(False)

    def fileno(self) -> int:
        """Readable when a point has arrived."""
        return self._socket.fileno()

    def take(self) -> list[Point]:
        """What has arrived since the last time, in the order it was sent."""
        points = []
        while True:
            try:
                told = json.loads(self._socket.recv(DATAGRAM_BYTES))
                self.handles_stop |= HANDLES_STOP in told
                self.is_stopping |= STOPPING in told
                if not {HANDLES_STOP, STOPPING} & told.keys():
                    points.append(Point.decode(told))
            except BlockingIOError:
                return points
            except (ValueError, KeyError, TypeError, AttributeError):
                continue  # sent by somebody else

    def close(self) -> None:
        """Take no more; who still reports is not kept waiting."""
        self._socket.close()
