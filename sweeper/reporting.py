"""Both ends of the channel between a notebook and the sweep that runs it; stdlib only.

In the notebook: `report`, `score` and `trial`. Each call sends its point to a socket of the sweep,
from whichever thread or process it is made, and shows one small display, updated in place. Where
there is no socket the display carries the point, so that it is in the file all the same; run by
hand, the calls show the same display and talk to nobody.

In the coordinator: `Mailbox`, the socket's other end, and `Channel`, on which points come up and
one stop goes down.
"""

from __future__ import annotations

import errno
import html
import json
import math
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

#: MIME type of reports, in messages and in executed notebooks.
MIME = "application/vnd.sweeper.report+json"
#: The environment variable that tells a kernel which trial it runs.
TRIAL_VARIABLE = "SWEEPER_TRIAL"
#: The environment variable with the file that appears when the trial should end by itself.
STOP_VARIABLE = "SWEEPER_STOP"
#: The environment variables with the socket for points, and with the kernel's own process.
REPORTS_VARIABLE, KERNEL_VARIABLE = "SWEEPER_REPORTS", "SWEEPER_KERNEL"

_BARS = "▁▂▃▄▅▆▇█"
_SPARKLINE_WIDTH = 24
#: How often the display changes at most while points go to a socket.
_DISPLAY_S = 0.2
#: What one datagram may hold, and how many bytes of them may wait, whatever the system's default.
_DATAGRAM_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One call of `report` (with a step) or of `score` (without)."""

    step: int | None
    metrics: Mapping[str, float]

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


# --- the kernel's end ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialInfo:
    """The trial that this notebook runs as; a stand-in when it is run by hand.

    Attributes:
        number: the trial's number in its study, from 0.
        run_id: the same with four digits; `"by-hand"` outside a sweep.
        params: the swept parameters of this trial; empty by hand.
        seed: the trial's own seed, to give to `seed_everything` and `seeded_loader`.
        attempt: 1, and one more each time that the trial is run again after an interruption.
    """

    number: int
    run_id: str
    params: Mapping[str, Any]
    seed: int
    attempt: int
    folder: str

    @property
    def checkpoint_dir(self) -> Path:
        """A folder of this trial's own, for all its attempts; made when first asked for."""
        path = Path(self.folder)
        path.mkdir(parents=True, exist_ok=True)
        return path


class TrialPruned(Exception):
    """Raised by `report` in a trial that is not worth going on with; let it pass.

    `finally` blocks run; the trial is pruned, which is no failure.
    """


def trial() -> TrialInfo:
    """Which trial this notebook runs as.

    By hand: number 0, no params, seed 0, attempt 1, checkpoints in `./checkpoints/by-hand`.
    """
    told = os.environ.get(TRIAL_VARIABLE)
    if told is None:
        return TrialInfo(
            number=0,
            run_id="by-hand",
            params={},
            seed=0,
            attempt=1,
            folder=os.path.join("checkpoints", "by-hand"),
        )
    return TrialInfo(**json.loads(told))


def report(step: int, /, **metrics: Any) -> None:
    """Report one point of each series, while the notebook runs.

    Args:
        step: a whole number, usually the epoch; increasing.
        **metrics: anything that `float()` takes: numbers, numpy scalars, tensors of one element.
            NaN and infinities are passed on as they are.

    Raises:
        TypeError: the step is no whole number, or a metric is no number.
        TrialPruned: the sweep has decided that this trial is hopeless.
    """
    whole = _floats("report", {"step": step})["step"]
    if not whole.is_integer() or whole != step:
        raise TypeError(f"report(step=…): expected a whole number, got {step!r}")
    _reporter.send(Point(step=int(whole), metrics=_floats("report", metrics)))
    stop_file = os.environ.get(STOP_VARIABLE)
    if stop_file is not None and Path(stop_file).exists():
        raise TrialPruned(Path(stop_file).read_text(encoding="utf-8"))


def score(**metrics: Any) -> None:
    """State final values, where they are not simply the last ones reported.

    Raises:
        TypeError: a value is no number.
    """
    _reporter.send(Point(step=None, metrics=_floats("score", metrics)))


def _floats(call: str, metrics: Mapping[str, Any]) -> dict[str, float]:
    floats = {}
    for name, value in metrics.items():
        try:
            floats[name] = float(value)
        except (TypeError, ValueError, OverflowError, RuntimeError):  # the last one is torch's
            shown = repr(value) if len(repr(value)) <= 60 else f"a {type(value).__name__}"
            raise TypeError(f"{call}({name}=…): expected one number, got {shown}") from None
    return floats


def _send(path: str, point: Point) -> bool:
    """Send a point to the sweep; returns whether there still is one."""
    data = json.dumps(point.encode()).encode()
    try:
        # A socket for each: nothing is shared with other threads or with forked children.
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _DATAGRAM_BYTES)
            sender.sendto(data, path)
    except OSError as error:
        if error.errno != errno.EMSGSIZE or len(point.metrics) < 2:
            return False
        names = list(point.metrics)
        halves = names[: len(names) // 2], names[len(names) // 2 :]
        parts = [{name: point.metrics[name] for name in half} for half in halves]
        return all(_send(path, Point(step=point.step, metrics=part)) for part in parts)
    return True


class _Reporter:
    """Shows what was reported so far in one display per executed cell."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._series: dict[str, list[float]] = {}
        self._finals: dict[str, float] = {}
        self._last_step: int | None = None
        self._cell: int | None = None
        self._shown_s = -math.inf
        self._is_behind = False
        self._is_flushed_by: Any = None

    def send(self, point: Point) -> None:
        path = os.environ.get(REPORTS_VARIABLE)
        is_sent = path is not None and _send(path, point)
        # A session exists only where IPython runs; in a plain script there is nobody to show to.
        ipython = sys.modules.get("IPython")
        shell = ipython.get_ipython() if ipython is not None else None
        # A forked child has its parent's session, and no way to speak in it.
        if shell is None or os.environ.get(KERNEL_VARIABLE, str(os.getpid())) != str(os.getpid()):
            return
        with self._lock:
            self._remember(point)
            self._is_behind = True
            # A cell that is run again by hand has lost its old display: it gets a new one.
            is_new, self._cell = self._cell != shell.execution_count, shell.execution_count
            if is_new or not is_sent or time.monotonic() - self._shown_s >= _DISPLAY_S:
                self._show(shell, None if is_sent else point, update=not is_new)
            if self._is_flushed_by is not shell:
                shell.events.register("post_run_cell", lambda *_: self._flush(shell))
                self._is_flushed_by = shell

    def _flush(self, shell: Any) -> None:
        """At the end of a cell its display shows the last point."""
        with self._lock:
            if self._is_behind:
                self._show(shell, None, update=True)

    def _show(self, shell: Any, point: Point | None, *, update: bool) -> None:
        told = {} if point is None else {MIME: point.encode()}
        shell.display_pub.publish(
            data={"text/plain": self._text(), "text/html": self._html(), **told},
            metadata={},
            transient={"display_id": f"sweeper-{self._cell}"},
            update=update,
        )
        self._shown_s, self._is_behind = time.monotonic(), False

    def _remember(self, point: Point) -> None:
        if point.step is None:
            self._finals.update(point.metrics)
            return
        if self._last_step is not None and point.step < self._last_step:
            self._series.clear()  # a training loop was started anew
        self._last_step = point.step
        for name, value in point.metrics.items():
            self._series.setdefault(name, []).append(value)

    def _rows(self) -> list[tuple[str, str, str]]:
        rows = [
            (name, f"{values[-1]:.6g}", _sparkline(values)) for name, values in self._series.items()
        ]
        return rows + [(name, f"{value:.6g}", "final") for name, value in self._finals.items()]

    def _text(self) -> str:
        head = [] if self._last_step is None else [f"step {self._last_step}"]
        return "\n".join(head + [f"{n:<16} {v:>12}  {line}" for n, v, line in self._rows()])

    def _html(self) -> str:
        head = "" if self._last_step is None else f"<caption>step {self._last_step}</caption>"
        rows = "".join(
            f"<tr><td>{html.escape(n)}</td><td>{v}</td><td>{line}</td></tr>"
            for n, v, line in self._rows()
        )
        return f"<table>{head}{rows}</table>"


def _sparkline(values: list[float]) -> str:
    n = min(len(values), _SPARKLINE_WIDTH)
    picked = [values[round(i * (len(values) - 1) / max(1, n - 1))] for i in range(n)]
    finite = [v for v in picked if math.isfinite(v)]
    if not finite:
        return ""
    # Halved first: the distance between two floats may be no float.
    low, span = min(finite) / 2, (max(finite) / 2 - min(finite) / 2) or 1.0
    return "".join(
        _BARS[int((v / 2 - low) / span * (len(_BARS) - 1))] if math.isfinite(v) else "·"
        for v in picked
    )


_reporter = _Reporter()


# --- the coordinator's end -------------------------------------------------------------------


class Mailbox:
    """Where the points of one trial arrive, from its kernel and all that this has started.

    Args:
        path: of the socket; short, and not there yet.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _DATAGRAM_BYTES)
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
                points.append(Point.decode(json.loads(self._socket.recv(_DATAGRAM_BYTES))))
            except BlockingIOError:
                return points
            except (ValueError, KeyError, TypeError, AttributeError):
                continue  # sent by somebody else

    def close(self) -> None:
        """Take no more; who still reports is not kept waiting."""
        self._socket.close()


class StopReason(StrEnum):
    """Why a running trial is asked to stop."""

    INTERRUPTED = "interrupted"
    BY_HAND = "by_hand"
    TIME_LIMIT = "time_limit"
    PRUNED = "pruned"


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
