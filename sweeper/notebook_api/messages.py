"""What travels between a notebook and the sweep that runs it, and how it is sent."""

from __future__ import annotations

import errno
import json
import math
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

#: MIME type of reports, in messages and in executed notebooks.
MIME = "application/vnd.sweeper.report+json"
#: The environment variable that tells a kernel which trial it runs.
TRIAL_VARIABLE = "SWEEPER_TRIAL"
#: The environment variable with the file that appears when the trial should end by itself.
STOP_VARIABLE = "SWEEPER_STOP"
#: The environment variables with the socket for points, and with the kernel's own process.
REPORTS_VARIABLE, KERNEL_VARIABLE = "SWEEPER_REPORTS", "SWEEPER_KERNEL"
#: What a notebook may say of itself beside points: that it asks whether to stop, and that it does.
HANDLES_STOP, STOPPING = "listens", "obeys"
#: What one datagram may hold, and how many bytes of them may wait, whatever the system's default.
DATAGRAM_BYTES = 1 << 20


class StopReason(StrEnum):
    """Why a running trial is asked to stop."""

    INTERRUPTED = "interrupted"
    BY_HAND = "by_hand"
    TIME_LIMIT = "time_limit"
    PRUNED = "pruned"


class PointSource(StrEnum):
    """How a notebook has put out a point."""

    REPORTED = "reported"  # by `report` or `score`
    DISPLAYED = "displayed"  # by scrapbook's `glue` or papermill's `record`, in a cell's outputs
    PRINTED = "printed"  # in a text that matches a pattern of the parameters file


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """Values of some metrics at one step; at no step for `score` and for displayed scores."""

    step: int | None
    metrics: Mapping[str, float]
    source: PointSource = PointSource.REPORTED

    def encode(self) -> dict[str, Any]:
        """As JSON, which has no NaN and no infinity: those travel as strings."""
        return {"step": self.step, "metrics": {k: encode_float(v) for k, v in self.metrics.items()}}

    @classmethod
    def decode(cls, data: Mapping[str, Any]) -> Point:
        """The inverse of `encode`, to the last bit."""
        return cls(
            step=data["step"], metrics={k: decode_float(v) for k, v in data["metrics"].items()}
        )


def encode_float(value: float) -> float | str:
    """A float as JSON can carry it."""
    return value if math.isfinite(value) else str(value)


def decode_float(value: float | str) -> float:
    """The inverse of `encode_float`."""
    return float(value)


def send_point(path: str, point: Point) -> bool:
    """Send a point to the sweep; returns whether there still is one."""
    try:
        return send(path, json.dumps(point.encode()))
    except OverflowError:
        if len(point.metrics) < 2:
            return False
        names = list(point.metrics)
        halves = names[: len(names) // 2], names[len(names) // 2 :]
        parts = [{name: point.metrics[name] for name in half} for half in halves]
        return all(send_point(path, Point(step=point.step, metrics=part)) for part in parts)


def send(path: str, text: str) -> bool:
    """Send a message to the sweep, if there still is one; OverflowError when it is too long."""
    try:
        # A socket for each: nothing is shared with other threads or with forked children.
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, DATAGRAM_BYTES)
            sender.sendto(text.encode(), path)
    except OSError as error:
        if error.errno == errno.EMSGSIZE:
            raise OverflowError from error
        return False
    return True
