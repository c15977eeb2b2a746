"""Define the messages between a notebook and its sweep, and send them.

The Python of a kernel may be 3.9, so all modules of this folder must run in it.
"""

from __future__ import annotations

import json
import math
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

#: MIME type of a report in display messages and in executed notebooks.
MIME = "application/vnd.sweeper.report+json"
#: Environment variable with the kernel's trial, as the JSON of `TrialInfo`.
TRIAL_VARIABLE = "SWEEPER_TRIAL"
#: Environment variable with the path of a file that appears when the trial should stop.
STOP_VARIABLE = "SWEEPER_STOP"
#: Environment variable with the path of the socket for points.
REPORTS_VARIABLE = "SWEEPER_REPORTS"
#: Environment variable with JSON about the calls of libraries. `reports`: whether they count as
#: reports. `begun`: number of steps of each series in earlier attempts. `mlflow`: MLflow's `uri`
#: and `version`, and the trial's `study`, `study_id` and `run_id`.
OBSERVED_VARIABLE = "SWEEPER_OBSERVED"
#: Environment variable with the process id of the kernel.
KERNEL_VARIABLE = "SWEEPER_KERNEL"
#: Facts that a notebook sends in addition to points: the notebook checks for a stop itself, it is
#: stopping, and one of its reports raises an exception.
HANDLES_STOP, STOPPING, RAISING = "listens", "obeys", "raises"
#: Bytes of the largest datagram, and of the socket's buffer.
DATAGRAM_BYTES = 1 << 20


class _Word(str, Enum):
    """A string with a few possible values."""

    def __str__(self) -> str:
        return str(self.value)


class StopReason(_Word):
    """Why a running trial is asked to stop."""

    INTERRUPTED = "interrupted"
    BY_HAND = "by_hand"
    TIME_LIMIT = "time_limit"
    PRUNED = "pruned"


class PointSource(_Word):
    """How a notebook has put out a point."""

    REPORTED = "reported"  # by `report` or `score`
    OBSERVED = "observed"  # by a library, such as Keras's `fit`
    LOGGED = "logged"  # by MLflow's `log_metric`, so that the trial's run has it already
    DISPLAYED = "displayed"  # by scrapbook's `glue` or papermill's `record`, in a cell's outputs
    PRINTED = "printed"  # in a text that matches a pattern of the parameters file


@dataclass(frozen=True)
class Point:
    """Values of some metrics at one step.

    Attributes:
        step: The step. None for `score` and for displayed scores.
        metrics: Values by name.
        source: How the notebook has put out the point.
        library: Name of the library that has logged the values. Empty for other sources.
        unread: By metric, a printed text that is not a number. It is not sent, only kept by the
            sweep.
        too_slow: Metrics whose patterns take too long on the printed text, and are no longer used.
    """

    step: int | None
    metrics: Mapping[str, float]
    source: PointSource = PointSource.REPORTED
    library: str = ""
    unread: Mapping[str, str] = field(default_factory=dict)
    too_slow: tuple[str, ...] = ()

    def encode(self) -> dict[str, Any]:
        """Encode as JSON data. NaN and infinities, which JSON does not have, become strings."""
        source = {} if self.source is PointSource.REPORTED else {"source": str(self.source)}
        library = {"library": self.library} if self.library else {}
        metrics = {k: encode_float(v) for k, v in self.metrics.items()}
        return {"step": self.step, "metrics": metrics, **source, **library}

    @classmethod
    def decode(cls, data: Mapping[str, Any]) -> Point:
        """Decode the output of `encode`, to the last bit."""
        return cls(
            step=data["step"],
            metrics={k: float(v) for k, v in data["metrics"].items()},
            source=PointSource(data.get("source", PointSource.REPORTED)),
            library=str(data.get("library", "")),
        )


def encode_float(value: float) -> float | str:
    """Encode a float for JSON. NaN and infinities become strings that `float` accepts."""
    return value if math.isfinite(value) else str(value)


def send(path: str, message: Mapping[str, Any]) -> bool:
    """Send a message to the sweep's socket.

    Args:
        path: Path of the socket.
        message: JSON data.

    Returns:
        Whether the message was sent. False if the socket no longer exists, or if the message is
        larger than a datagram.
    """
    try:
        # A new socket for each message shares nothing with other threads or forked children.
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, DATAGRAM_BYTES)
            sender.sendto(json.dumps(message).encode(), path)
    except OSError:
        return False
    return True
