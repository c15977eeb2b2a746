"""The messages between a notebook and its sweep, their encoding, and how a notebook sends them.

A kernel's environment may have Python 3.9, as for all modules of this folder.
"""

from __future__ import annotations

import json
import math
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

#: The MIME type of a report in display messages and in executed notebooks.
MIME = "application/vnd.sweeper.report+json"
#: The environment variable with the kernel's trial, as the JSON of `TrialInfo`.
TRIAL_VARIABLE = "SWEEPER_TRIAL"
#: The environment variable with the path of a file that appears when the trial should stop.
STOP_VARIABLE = "SWEEPER_STOP"
#: The environment variable with the path of the socket for points.
REPORTS_VARIABLE = "SWEEPER_REPORTS"
#: The environment variable with what is taken from libraries, as JSON: whether their `reports` are,
#: the `begun` steps of the series that an earlier attempt has, and of `mlflow` the `uri`, its
#: `version` and of the trial `study`, `study_id` and `run_id`.
OBSERVED_VARIABLE = "SWEEPER_OBSERVED"
#: The environment variable with the process id of the kernel.
KERNEL_VARIABLE = "SWEEPER_KERNEL"
#: What a notebook announces beside points: that it handles a stop, that it is stopping, and that
#: a report of it raises.
HANDLES_STOP, STOPPING, RAISING = "listens", "obeys", "raises"
#: The largest datagram, and the size of the socket's buffer.
DATAGRAM_BYTES = 1 << 20


class _Word(str, Enum):
    """A string out of a few."""

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
    LOGGED = "logged"  # by MLflow's `log_metric`: the trial's run has it
    DISPLAYED = "displayed"  # by scrapbook's `glue` or papermill's `record`, in a cell's outputs
    PRINTED = "printed"  # in a text that matches a pattern of the parameters file


@dataclass(frozen=True)
class Point:
    """Values of some metrics at one step; at no step for `score` and for displayed scores.

    Attributes:
        library: the library that has logged the values; empty for other sources.
        unread: by metric, a printed text in place of a number; the sweep keeps it to itself.
        too_slow: the metrics whose patterns take too long on the printed text, and find no more.
    """

    step: int | None
    metrics: Mapping[str, float]
    source: PointSource = PointSource.REPORTED
    library: str = ""
    unread: Mapping[str, str] = field(default_factory=dict)
    too_slow: tuple[str, ...] = ()

    def encode(self) -> dict[str, Any]:
        """Encode as JSON data; NaN and infinities, which JSON does not have, become strings."""
        source = {} if self.source is PointSource.REPORTED else {"source": str(self.source)}
        library = {"library": self.library} if self.library else {}
        metrics = {k: encode_float(v) for k, v in self.metrics.items()}
        return {"step": self.step, "metrics": metrics, **source, **library}

    @classmethod
    def decode(cls, data: Mapping[str, Any]) -> Point:
        """Decode what `encode` has made, to the last bit."""
        return cls(
            step=data["step"],
            metrics={k: float(v) for k, v in data["metrics"].items()},
            source=PointSource(data.get("source", PointSource.REPORTED)),
            library=str(data.get("library", "")),
        )


def encode_float(value: float) -> float | str:
    """Encode a float for JSON: NaN and infinities become strings, which `float` takes."""
    return value if math.isfinite(value) else str(value)


def send(path: str, message: Mapping[str, Any]) -> bool:
    """Send a message to the sweep's socket.

    Args:
        path: the path of the socket.
        message: JSON data.

    Returns:
        Whether the socket took it; False when there is no socket any more, and for a message that
        is longer than a datagram.
    """
    try:
        # A new socket for each message shares nothing with other threads or forked children.
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, DATAGRAM_BYTES)
            sender.sendto(json.dumps(message).encode(), path)
    except OSError:
        return False
    return True
