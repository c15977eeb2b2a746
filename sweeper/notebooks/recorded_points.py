"""Collect the points (values of scores at a step) of a running trial for its executed notebook."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace

from ..notebook_api.messages import Point, PointSource
from .metadata import BLANK, StoredSeries, TrialMetadata, UnreadText


@dataclass(slots=True, kw_only=True)
class _GrowingSeries:
    """A `StoredSeries` to which points can be added while the trial runs."""

    steps: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    library: str = ""
    unread: UnreadText | None = None
    too_slow: bool = False

    @classmethod
    def before(cls, step: int, earlier: StoredSeries) -> _GrowingSeries:
        """Return a new series with those points of an earlier attempt whose step is before `step`.

        Args:
            step: First step that is left out.
            earlier: Series of the earlier attempt.
        """
        points = [point for point in earlier.points if point[0] < step]
        unread = earlier.unread
        return cls(
            steps=[step for step, _ in points],
            values=[value for _, value in points],
            unread=unread if unread is not None and unread.step < step else None,
        )

    def stored(self) -> StoredSeries:
        """Return the points so far."""
        return StoredSeries(
            steps=tuple(self.steps),
            values=tuple(self.values),
            library=self.library,
            unread=self.unread,
            too_slow=self.too_slow,
        )


class RecordedPoints:
    """Collects the points of a trial, separately for each source. All methods are thread-safe.

    Args:
        earlier: Metadata of the earlier attempt whose checkpoint this attempt resumes. `BLANK` if
            the trial starts from scratch. This attempt does not report the steps before the
            checkpoint again, so they are taken from the earlier attempt. Series that this attempt
            does not report at all are kept, unless the earlier attempt ran other code, which may
            have reported other scores.
        code: Version of the code that this attempt runs, from the study's fingerprint.
    """

    def __init__(self, earlier: TrialMetadata, *, code: str) -> None:
        self._earlier = earlier
        self._kept = earlier if earlier.code == code else BLANK
        self._lock = threading.Lock()
        self._finals: dict[str, float] = {}
        self._reported: dict[str, _GrowingSeries] = {}
        self._printed: dict[str, _GrowingSeries] = {}
        self._logged: dict[str, _GrowingSeries] = {}

    def record(self, point: Point) -> None:
        """Add a point.

        Displayed points are ignored, because the notebook's outputs contain them.
        """
        if point.source is PointSource.DISPLAYED:
            return
        with self._lock:
            for name, value in point.metrics.items():
                if point.step is None:
                    self._finals[name] = float(value)
                    continue
                series = self._begun(point.source, name, point.step)
                series.steps.append(point.step)
                series.values.append(float(value))
                series.library = point.library or series.library
            step = point.step or 0
            for name, text in point.unread.items():
                self._begun(point.source, name, step).unread = UnreadText(step=step, text=text)
            for name in point.too_slow:
                self._begun(point.source, name, step).too_slow = True

    def steps_before(self, source: PointSource) -> dict[str, int]:
        """Return, by score, the step after the last one that a source gave in the earlier attempt.

        A source that numbers its steps by position, such as printed text, continues with this step.
        """
        counts = {}
        for name, series in self._earlier.points_by(source).items():
            unread = [] if series.unread is None else [series.unread.step]
            counts[name] = 1 + max([*series.steps, *unread], default=-1)
        return counts

    def added_to(self, metadata: TrialMetadata) -> TrialMetadata:
        """Return a copy of a trial's metadata that has the points collected so far."""
        with self._lock:
            return replace(
                metadata,
                finals=dict(self._finals),
                series={**self._kept.series, **_stored(self._reported)},
                printed={**self._kept.printed, **_stored(self._printed)},
                logged={**self._kept.logged, **_stored(self._logged)},
            )

    def _begun(self, source: PointSource, name: str, step: int) -> _GrowingSeries:
        """Return the series of a score from a source. Make the series if it is missing.

        A new series begins with the points of the earlier attempt before `step`.
        """
        kept = self._series_by(source)
        if name not in kept:
            earlier = self._earlier.points_by(source).get(name)
            new = _GrowingSeries()
            kept[name] = new if earlier is None else _GrowingSeries.before(step, earlier)
        return kept[name]

    def _series_by(self, source: PointSource) -> dict[str, _GrowingSeries]:
        if source is PointSource.REPORTED:
            return self._reported
        return self._printed if source is PointSource.PRINTED else self._logged


def _stored(kept: dict[str, _GrowingSeries]) -> dict[str, StoredSeries]:
    return {name: series.stored() for name, series in kept.items()}
