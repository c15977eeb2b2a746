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
#: Shortest time between two updates of a display, in seconds (chosen, not measured). Cells tagged
#: `shared` run before the sweep has a socket for reports, so the sweep reads their reports from the
#: displays. These cells display each report at once.
_MIN_INTERVAL_S = 0.2


class Reporter:
    """Sends points (reported values) to the sweep, and displays them in one table per cell."""

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
        """Send a point to the sweep, if there is a sweep.

        If IPython runs, also add the point to the table below the cell, which is drawn at once or
        later. A child that the kernel has forked displays nothing.
        """
        path = os.environ.get(REPORTS_VARIABLE)
        is_sent = path is not None and send(path, point.encode())
        # Without IPython, as in a plain script, there is no display.
        ipython = sys.modules.get("IPython")
        shell = ipython.get_ipython() if ipython is not None else None
        # A forked child has only a copy of its parent's session, which cannot display anything.
        own_pid = str(os.getpid())
        if shell is None or os.environ.get(KERNEL_VARIABLE, own_pid) != own_pid:
            return
        is_carried = not is_sent and MARK_VARIABLE in os.environ
        with self._lock:
            self._remember(point)
            self._is_behind = True
            # A cell that is executed again has lost its table, and needs a new one.
            is_new = self._cell != shell.execution_count
            self._cell = shell.execution_count
            is_due = time.monotonic() - self._displayed_at_s >= _MIN_INTERVAL_S
            if is_new or is_carried or is_due:
                self._show(shell, point if is_carried else None, update=not is_new)
            if self._is_flushed_by is not shell:
                shell.events.register("post_run_cell", lambda *_: self._flush(shell))
                self._is_flushed_by = shell

    def _flush(self, shell: Any) -> None:
        """Update the table at the end of a cell, if points came since the last update.

        Args:
            shell: IPython's shell.
        """
        with self._lock:
            if self._is_behind:
                self._show(shell, None, update=True)

    def _show(self, shell: Any, point: Point | None, *, update: bool) -> None:
        data: dict[str, Any] = {"text/plain": self._text(), "text/html": self._html()}
        if point is not None:
            data[MIME] = point.encode()
        try:
            shell.display_pub.publish(
                data=data,
                metadata={},
                transient={"display_id": f"sweeper-{self._cell}"},
                update=update,
            )
        except Exception:
            # IPython flushes `sys.stdout`, which the notebook may have closed or replaced. Ignore
            # the error, unless the display is the only way in which the point reaches the sweep.
            if point is not None:
                raise
        self._displayed_at_s = time.monotonic()
        self._is_behind = False

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
        rows = []
        for name, values in self._series.items():
            rows.append((name, f"{values[-1]:.6g}", _sparkline(values)))
        for name, value in self._finals.items():
            rows.append((name, f"{value:.6g}", "final"))
        return rows

    def _text(self) -> str:
        lines = [] if self._last_step is None else [f"step {self._last_step}"]
        for name, value, sparkline in self._rows():
            lines.append(f"{name:<16} {value:>12}  {sparkline}")
        return "\n".join(lines)

    def _html(self) -> str:
        parts = [] if self._last_step is None else [f"<caption>step {self._last_step}</caption>"]
        for row in self._rows():
            cells = "".join(f"<td>{html.escape(text)}</td>" for text in row)
            parts.append(f"<tr>{cells}</tr>")
        return f"<table>{''.join(parts)}</table>"


def _sparkline(values: list[float]) -> str:
    picked = values
    if len(values) > _SPARKLINE_WIDTH:
        distance = (len(values) - 1) / (_SPARKLINE_WIDTH - 1)
        picked = [values[round(distance * bar)] for bar in range(_SPARKLINE_WIDTH)]
    finite = [value for value in picked if math.isfinite(value)]
    if not finite:
        return ""
    # Halve all numbers, because the difference of two large floats could overflow.
    low, high = min(finite) / 2, max(finite) / 2
    bars = ""
    for value in picked:
        if math.isfinite(value):
            height = (value / 2 - low) / ((high - low) or 1.0)
            bars += _BARS[int(height * (len(_BARS) - 1))]
        else:
            bars += "·"
    return bars
