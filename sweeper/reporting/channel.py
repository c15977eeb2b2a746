"""The sweep's end: where points arrive, and from where one stop goes down."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from pathlib import Path

from .messages import DATAGRAM_BYTES, LISTENS, OBEYS, Point, StopReason


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


class Channel:
    """What connects a running trial with the sweep: points come up, at most one stop goes down.

    Safe to use from any thread.

    Attributes:
        message: why the trial was asked to stop, in words.
        pid: the kernel's process; None before there is one.
        cell: how many cells have begun.
        cells: how many there are.
        step: of the last point that has one.
        metrics: the last value of each.
    """

    def __init__(self, on_point: Callable[[Point], None]) -> None:
        self._on_point = on_point
        self._lock = threading.Lock()
        self._stop_reason: StopReason | None = None
        self.message = ""
        self.pid: int | None = None
        self.cell = 0
        self.cells = 0
        self.step: int | None = None
        self.metrics: dict[str, float] = {}
        self._on_stop: Callable[[], object] | None = None

    def publish(self, point: Point) -> None:
        """Hand a point to the sweep; called where messages are read, so it must be quick."""
        if point.step is not None:
            self.step = point.step
        self.metrics.update(point.metrics)
        self._on_point(point)

    @property
    def stop_reason(self) -> StopReason | None:
        """Why the trial was asked to stop; None as long as it was not."""
        return self._stop_reason

    def stop(self, reason: StopReason, message: str = "") -> None:
        """Ask the trial to stop; the first reason counts, later calls do nothing."""
        with self._lock:
            if self._stop_reason is not None:
                return
            self._stop_reason, self.message = reason, message
            callback = self._on_stop
        if callback is not None:
            callback()

    def on_stop(self, callback: Callable[[], object] | None) -> None:
        """Have `callback` called when a stop arrives, at once if one already has."""
        with self._lock:
            self._on_stop = callback
            stopped = self._stop_reason is not None
        if stopped and callback is not None:
            callback()
