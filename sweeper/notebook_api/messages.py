"""Define the messages between a notebook and its sweep, and send them.

A kernel may run Python 3.9, so all modules of this folder must work with it.
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
#: Environment variable with facts about the kernel's trial, as JSON of `TrialInfo`.
TRIAL_VARIABLE = "SWEEPER_TRIAL"
#: Environment variable with the path of a file that exists once the trial should stop.
STOP_VARIABLE = "SWEEPER_STOP"
#: Environment variable with the path of the socket to which the kernel sends points (reported
#: values, see `Point`).
REPORTS_VARIABLE = "SWEEPER_REPORTS"
#: Environment variable with JSON about how to observe libraries. `reports`: whether their logs
#: count as reports. `begun`: number of steps of each series in earlier attempts. `mlflow`: MLflow's
#: `uri` and `version`, the trial's `study`, `study_id` and `run_id`, and `temporary`: the URI of a
#: folder that is used if MLflow is unavailable or has no run of the trial.
OBSERVED_VARIABLE = "SWEEPER_OBSERVED"
#: Environment variable that marks each process of a sweep. The sweep's guard finds processes by it;
#: see `guard.py`.
MARK_VARIABLE = "SWEEPER_MARK"
#: Environment variable with the process id of the kernel.
KERNEL_VARIABLE = "SWEEPER_KERNEL"
#: Keys of messages in which a notebook tells the sweep, in this order: it has called `should_stop`;
#: it is ending because of a stop; one of its reports raises an exception because of a stop.
HANDLES_STOP, STOPPING, RAISING = "listens", "obeys", "raises"
#: Size of the largest datagram and of the socket's buffer, in bytes (chosen, not measured).
DATAGRAM_BYTES = 1 << 20


class _Word(str, Enum):
    """Base of the enumerations of this module, whose members are also strings."""

    def __str__(self) -> str:
        return str(self.value)


class StopReason(_Word):
    """Why a running trial is asked to stop.

    Attributes:
        INTERRUPTED: Its sweep, or the worker that runs it, is being stopped.
        BY_HAND: A user has stopped this trial for good.
        TIME_LIMIT: The trial has reached its time limit.
        PRUNED: The pruner ends the trial early.
    """

    INTERRUPTED = "interrupted"
    BY_HAND = "by_hand"
    TIME_LIMIT = "time_limit"
    PRUNED = "pruned"


class PointSource(_Word):
    """Way in which a notebook has stated the values of a point.

    Attributes:
        REPORTED: By a call of `report` or `score`.
        OBSERVED: By a library, such as Keras's `fit`.
        LOGGED: By MLflow's `log_metric`, so the trial's run in MLflow already has them.
        DISPLAYED: By scrapbook's `glue` or papermill's `record`, as a cell's output.
        PRINTED: As printed text that matches a pattern of the parameters file.
    """

    REPORTED = "reported"
    OBSERVED = "observed"
    LOGGED = "logged"
    DISPLAYED = "displayed"
    PRINTED = "printed"


@dataclass(frozen=True)
class Point:
    """Values of some metrics at one step.

    Attributes:
        step: Step of the values. None for `score` and for displayed scores.
        metrics: Values by name.
        source: Way in which the notebook has stated the values.
        library: Name of the library that has logged the values. Empty for other sources.
        unread: Printed text where a number was expected, by metric. The notebook never sends this:
            the sweep sets it when it reads printed text.
        too_slow: Metrics for whose patterns the sweep no longer searches the printed text, because
            the search takes too long.
    """

    step: int | None
    metrics: Mapping[str, float]
    source: PointSource = PointSource.REPORTED
    library: str = ""
    unread: Mapping[str, str] = field(default_factory=dict)
    too_slow: tuple[str, ...] = ()

    def encode(self) -> dict[str, Any]:
        """Encode the point as JSON data. NaN and infinities, which JSON lacks, become strings."""
        metrics = {name: encode_float(value) for name, value in self.metrics.items()}
        data: dict[str, Any] = {"step": self.step, "metrics": metrics}
        if self.source is not PointSource.REPORTED:
            data["source"] = str(self.source)
        if self.library:
            data["library"] = self.library
        return data

    @classmethod
    def decode(cls, data: Mapping[str, Any]) -> Point:
        """Return the point that `encode` has encoded. Its numbers are equal to the last bit."""
        return cls(
            step=data["step"],
            metrics={_encodable(name): float(value) for name, value in data["metrics"].items()},
            source=PointSource(data.get("source", PointSource.REPORTED)),
            library=str(data.get("library", "")),
        )


def _encodable(name: str) -> str:
    """Replace each character of a name that UTF-8 cannot encode by `?`.

    Such characters stand for bytes that are no text. They come from file names, which a notebook
    may use as names of metrics.
    """
    return name.encode("utf-8", "replace").decode()


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
        # Use a new socket for each message, so that threads and forked children share none.
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, DATAGRAM_BYTES)
            sender.sendto(json.dumps(message).encode(), path)
    except OSError:
        return False
    return True
