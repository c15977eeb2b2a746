"""What comes up from a trial's kernel: its points, and how far its cells are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from ..notebook_api.messages import Point, PointSource
from .score_ranks import RANKS, ScoreRank, lesser_name

#: A point of these sources raises in the notebook where the trial is to end.
_SENT = (PointSource.REPORTED, PointSource.OBSERVED, PointSource.LOGGED)


class Points:
    """Hands on what a kernel tells. One thread writes; others may read at any time.

    Args:
        *subscribers: Called with each point; see `subscribe`.

    Attributes:
        pid: The kernel's process; None before there is one.
        host: The machine where the kernel runs, for people; empty for that of the sweep.
        cell: The number of cells that have begun.
        cells: The number of all cells.
        step: The step of the last point that has one.
        steps: How often the step has changed.
        metrics: The last value of each metric.
        reports: The number of points that were neither printed nor displayed.
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

        The call comes from the thread that reads the kernel's messages, so it must be quick.
        """
        self._subscribers.append(subscriber)

    def keep(
        self,
        keep: Callable[[Point], object],
        *,
        ranks: Mapping[str, ScoreRank] | None = None,
        steps_before: Mapping[str, int] | None = None,
    ) -> None:
        """Call `keep` with each point before all subscribers, whatever its source is.

        Args:
            ranks: By metric, the first source in order that gives it, as far as is known.
            steps_before: By metric, how many printed numbers earlier attempts at the trial have.
        """
        self._ranks.update(ranks or {})
        self._steps_before = steps_before or {}
        self._keep = keep

    def note_kernel(self, pid: int | None, *, host: str = "") -> None:
        """Note the kernel's process and machine."""
        self.pid, self.host = pid, host

    def note_cells(self, cell: int, cells: int) -> None:
        """Note how many cells have begun, of how many."""
        self.cell, self.cells = cell, cells

    def publish(self, point: Point) -> None:
        """Hand a point to all subscribers, in the order in which they subscribed.

        Where another source of a metric counts, they get a library's value under a name that says
        so, and no other value.
        """
        if point.source in _SENT:
            self.reports += 1
        if point.source is PointSource.PRINTED and point.step is not None:
            # Its step is a position, which follows those of earlier attempts.
            names = [*point.metrics, *point.unread, *point.too_slow]
            before = max((self._steps_before.get(name, 0) for name in names), default=0)
            point = replace(point, step=point.step + before)
        self._keep(point)
        self._hand_on(replace(point, metrics=self._counted(point), unread={}, too_slow=()))

    def _counted(self, point: Point) -> dict[str, float]:
        """Name the values of a point by whether its source counts; leave out what has no name."""
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
        if not point.metrics:
            return
        if point.step is not None and point.step != self.step:
            self.step = point.step
            self.steps += 1
        self.metrics.update(point.metrics)
        for subscriber in self._subscribers:
            subscriber(point)
