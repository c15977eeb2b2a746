"""The sweep's end of the socket on which a trial's points arrive."""

from __future__ import annotations

import json
import socket
from pathlib import Path

from ..notebook_api.messages import DATAGRAM_BYTES, LISTENS, OBEYS, Point


class Mailbox:
    """Where the points of one trial arrive, from its kernel and all that this has started.

    Args:
        path: of the socket; short, and not there yet.

    Attributes:
        is_listened: whether the notebook asks by itself whether it should stop.
        is_obeyed: whether it has been told so, and ends.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.is_listened = self.is_obeyed = False
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
                self.is_listened |= LISTENS in told
                self.is_obeyed |= OBEYS in told
                if not {LISTENS, OBEYS} & told.keys():
                    points.append(Point.decode(told))
            except BlockingIOError:
                return points
            except (ValueError, KeyError, TypeError, AttributeError):
                continue  # sent by somebody else

    def close(self) -> None:
        """Take no more; who still reports is not kept waiting."""
        self._socket.close()
