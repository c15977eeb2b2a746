"""Display reports in the notebook, as one small table per cell that is updated in place."""

from __future__ import annotations

import html
import math
import os
import sys
import threading
import time
from typing import Any

from .messages import KERNEL_VARIABLE, MARK_VARIABLE, MIME, REPORTS_VARIABLE, Point, send

_BARS = "▁▂▃▄▅▆▇█"
_SPARKLINE_WIDTH = 24
#: Shortest time between two updates of a display, in seconds (chosen, not measured). In a cell
#: tagged `shared`, the sweep has no socket yet, and receives the points as parts of displays. So
#: each point is displayed at once there.
_MIN_INTERVAL_S = 0.2


class Reporter:
    """Sends points to the sweep, and displays the points so far in one table per executed cell."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._series: dict[str, list[float]] = {}
        self._finals: dict[str, float] = {}
        self._last_step: int | None = None
        self._cell: int | None = None
        self._displayed_at_s = -math.inf
        self._is_behind = False
        self._is_flushed_by: Any = None

    def send(self, point: Point) -> None:
        """Send a point to the sweep, if there is a sweep. Display the point if IPython runs."""
        path = os.environ.get(REPORTS_VARIABLE)
        is_sent = path is not None and send(path, point.encode())
        # Without IPython, as in a plain script, there is no display.
        ipython = sys.modules.get("IPython")
        shell = ipython.get_ipython() if ipython is not None else None
        # A forked child has only a copy of its parent's session, which cannot display anything.
        if shell is None or os.environ.get(KERNEL_VARIABLE, str(os.getpid())) != str(os.getpid()):
            return
        is_carried = not is_sent and MARK_VARIABLE in os.environ
        with self._lock:
            self._remember(point)
            self._is_behind = True
            # A cell that is executed again has lost its table, and needs a new one.
            is_new, self._cell = self._cell != shell.execution_count, shell.execution_count
            is_due = time.monotonic() - self._displayed_at_s >= _MIN_INTERVAL_S
            if is_new or is_carried or is_due:
                self._show(shell, point if is_carried else None, update=not is_new)
            if self._is_flushed_by is not shell:
                shell.events.register("post_run_cell", lambda *_: self._flush(shell))
                self._is_flushed_by = shell

    def _flush(self, shell: Any) -> None:
        """Display the last point at the end of a cell."""
        with self._lock:
            if self._is_behind:
                self._show(shell, None, update=True)

    def _show(self, shell: Any, point: Point | None, *, update: bool) -> None:
        encoded = {} if point is None else {MIME: point.encode()}
        try:
            shell.display_pub.publish(
                data={"text/plain": self._text(), "text/html": self._html(), **encoded},
                metadata={},
                transient={"display_id": f"sweeper-{self._cell}"},
                update=update,
            )
        except Exception:
            # IPython flushes `sys.stdout`, which the notebook may have closed or replaced. Only a
            # display that carries a point is needed.
            if point is not None:
                raise
        self._displayed_at_s, self._is_behind = time.monotonic(), False

    def _remember(self, point: Point) -> None:
        if point.step is None:
            self._finals.update(point.metrics)
            return
        if self._last_step is not None and point.step < self._last_step:
            self._series.clear()  # The training loop was started again.
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
    # Halve all numbers, because the difference of two large floats could overflow.
    low, span = min(finite) / 2, (max(finite) / 2 - min(finite) / 2) or 1.0
    return "".join(
        _BARS[int((v / 2 - low) / span * (len(_BARS) - 1))] if math.isfinite(v) else "·"
        for v in picked
    )
