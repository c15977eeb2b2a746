"""Receive a trial's points (reported values) and progress from its kernel for the sweep."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from ..notebook_api.messages import Point, PointSource
from .score_ranks import RANKS, ScoreRank, lesser_name

#: Sources of points that the notebook sends by a call. This call raises an exception if the trial
#: has to stop.
_SENT = (PointSource.REPORTED, PointSource.OBSERVED, PointSource.LOGGED)


class Points:
    """Hands each point (values of metrics at a step) of a trial's kernel to subscribers.

    One thread publishes points, and others may read the attributes at any time.

    Args:
        *subscribers: Functions that are called with each point; see `subscribe`.

    Attributes:
        pid: Process id of the kernel. None before the kernel starts.
        host: Name of the kernel's machine, for people. Empty if it is the sweep's machine.
        cell: Number of cells that have begun.
        cells: Number of all cells.
        step: Step of the last point that has a step. None before the first one.
        steps: Number of times that the step has changed.
        metrics: Last value of each metric.
        reports: Number of points that `sweeper.report`, `sweeper.score`, MLflow's `log_metric` or a
            library such as Keras has sent. Printed and displayed values do not count.
    """

    def __init__(self, *subscribers: Callable[[Point], None]) -> None:
        self._subscribers = list(subscribers)
        self._keep: Callable[[Point], object] = lambda _: None
        self._ranks: dict[str, ScoreRank] = {}
        self._steps_before: Mapping[str, int] = {}
        self.pid: int | None = None
        self.host = ""
        self.cell = 0
        self.cells = 0
        self.step: int | None = None
        self.steps = 0
        self.metrics: dict[str, float] = {}
        self.reports = 0

    def subscribe(self, subscriber: Callable[[Point], None]) -> None:
        """Call `subscriber` with each point from now on.

        The thread that reads the kernel's messages makes the call, so `subscriber` must return
        quickly.
        """
        self._subscribers.append(subscriber)

    def keep(
        self,
        keep: Callable[[Point], object],
        *,
        ranks: Mapping[str, ScoreRank] | None = None,
        steps_before: Mapping[str, int] | None = None,
    ) -> None:
        """Call `keep` with each point from now on, before all subscribers.

        Unlike subscribers, `keep` also gets values that do not count (see `publish`).

        Args:
            keep: Function that stores a point for the executed notebook.
            ranks: For each metric whose source the settings name or completed trials have shown:
                this source. If there are several, the one with the highest priority.
            steps_before: Number of values that earlier attempts at the trial have printed, by
                metric.
        """
        self._ranks.update(ranks or {})
        self._steps_before = steps_before or {}
        self._keep = keep

    def note_kernel(self, pid: int | None, *, host: str = "") -> None:
        """Set the kernel's process id, and the machine on which it runs."""
        self.pid, self.host = pid, host

    def note_cells(self, cell: int, cells: int) -> None:
        """Set the number of cells that have begun and of all cells."""
        self.cell, self.cells = cell, cells

    def publish(self, point: Point) -> None:
        """Hand a point to all subscribers, in the order in which they subscribed.

        If a source of higher priority (see `ScoreRank`) gives a metric, too, the value in this
        point does not count. If a library logged the value, subscribers get it under another name
        (`lesser_name`). Otherwise, they do not get it.
        """
        if point.source in _SENT:
            self.reports += 1
        if point.source is PointSource.PRINTED and point.step is not None:
            # The step of a printed number is its position among all printed numbers of the score,
            # including those of earlier attempts.
            names = [*point.metrics, *point.unread, *point.too_slow]
            before = [self._steps_before.get(name, 0) for name in names]
            point = replace(point, step=point.step + max(before, default=0))
        self._keep(point)
        counted = self._counted(point)
        if counted:
            self._hand_on(replace(point, metrics=counted, unread={}, too_slow=()))

    def _counted(self, point: Point) -> dict[str, float]:
        """Return the values of a point that subscribers get, by the names that they see."""
        rank = RANKS[point.source]
        counted = {}
        for name, value in point.metrics.items():
            if rank <= self._ranks.get(name, rank):
                self._ranks[name] = rank
                counted[name] = value
            elif point.library:
                counted[lesser_name(name, point.library)] = value
        return counted

    def _hand_on(self, point: Point) -> None:
        if point.step is not None and point.step != self.step:
            self.step = point.step
            self.steps += 1
        self.metrics.update(point.metrics)
        for subscriber in self._subscribers:
            subscriber(point)
