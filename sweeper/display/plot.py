"""The plot of a study; matplotlib is imported here alone, and only when there is one to draw."""

from __future__ import annotations

import io
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..settings.space import AnyDimension, ChoiceDimension, SearchSpace
from ..trials import TrialRecord, TrialState, value_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MISSING = "n/a"
_MISSING_Y = -0.12
_HEIGHT_IN, _LEAST_WIDTH_IN = 7.0, 9.0
#: The space between two axes: at least so much, and more where a name or a category is long.
_GAP_IN, _LETTER_IN = 1.1, 0.085
_DPI = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class _Coordinate:
    """One axis of the parallel coordinates.

    Attributes:
        values: those of the trials, as numbers; None for a trial without one.
        ticks: the categories, each at its index; None for an axis of numbers.
    """

    name: str
    values: Sequence[float | None]
    low: float
    high: float
    is_log: bool = False
    ticks: Sequence[str] | None = None

    @property
    def heights(self) -> list[float]:
        """Where each trial crosses the axis: 0 at its foot, 1 at its top, below for none."""
        scale: Callable[[float], float] = math.log if self.is_log else float
        low, high = scale(self.low), scale(self.high)
        return [
            _MISSING_Y if value is None else (scale(value) - low) / (high - low)
            for value in self.values
        ]

    @property
    def width_in(self) -> float:
        """How much space its name and its categories need."""
        longest = max(map(len, (self.name, *(self.ticks or ()))))
        return max(_GAP_IN, 0.4 + longest * _LETTER_IN)


def plotted(records: Sequence[TrialRecord], objective: str) -> list[TrialRecord]:
    """The trials that a plot has: those that completed with a finite score."""
    return [
        record
        for record in records
        if record.state is TrialState.COMPLETED
        and math.isfinite(record.scores.get(objective, math.nan))
    ]


def study_figure(
    title: str,
    records: Sequence[TrialRecord],
    *,
    space: SearchSpace,
    objectives: Mapping[str, str],
    objective: str,
) -> Figure:
    """Draw parallel coordinates over the swept params and the objectives, and the history of one.

    pandas' and Optuna's parallel coordinates leave out trials without one of the params, and know
    one scale for all axes or none for a condition; so the axes are put together here.

    Args:
        records: all trials; those without a score are counted in the title only.
        objectives: each with its direction.
        objective: the one that the colours and the history follow.

    Raises:
        ImportError: matplotlib is not installed.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("a plot needs a package: pip install matplotlib") from error

    class StudyFigure(Figure):
        """A figure that Jupyter displays once and without pyplot, whatever its backend is."""

        def _repr_png_(self) -> bytes:
            return as_png(self)

    drawn = plotted(records, objective)
    coordinates = [_of_dimension(name, dimension, drawn) for name, dimension in space.items()]
    names = [name for name in objectives if name != objective] + [objective]
    coordinates += [_of_scores(name, drawn) for name in names]
    gaps = [coordinate.width_in for coordinate in coordinates[1:]]
    size = (max(_LEAST_WIDTH_IN, sum(gaps) + 2.5), _HEIGHT_IN)
    figure = StudyFigure(figsize=size, dpi=_DPI, layout="constrained")
    FigureCanvasAgg(figure)
    left = len(records) - len(drawn)
    figure.suptitle(title + (f" (not drawn: {left} without {objective})" if left else ""))
    above, below = figure.subplots(2, 1, height_ratios=[3, 2])
    is_maximized = objectives[objective] == "maximize"
    _draw_coordinates(above, coordinates, [0.0, *itertools.accumulate(gaps)], is_maximized)
    _draw_history(below, drawn, objective, max if is_maximized else min)
    return figure


def as_png(figure: Figure) -> bytes:
    """A figure as a picture."""
    picture = io.BytesIO()
    figure.savefig(picture, format="png")
    return picture.getvalue()


def _of_dimension(
    name: str, dimension: AnyDimension, records: Sequence[TrialRecord]
) -> _Coordinate:
    found = [record.params.get(name) if name in record.params else None for record in records]
    has_it = [name in record.params for record in records]
    # A study that goes on with a changed space has trials with other values, too.
    if isinstance(dimension, ChoiceDimension):
        texts = [value_text(value) for value in found]
        own = [text for text, has in zip(texts, has_it, strict=True) if has]
        ticks = list(dict.fromkeys([*map(value_text, dimension.choices), *own]))
        indexes = [
            float(ticks.index(text)) if has else None
            for text, has in zip(texts, has_it, strict=True)
        ]
        low, high = _apart(0, len(ticks) - 1)
        return _Coordinate(name=name, values=indexes, low=low, high=high, ticks=ticks)
    numbers = [float(value) if isinstance(value, int | float) else None for value in found]
    known = [number for number in numbers if number is not None]
    is_log = dimension.log and min(known, default=1.0) > 0
    low, high = _apart(min([dimension.low, *known]), max([dimension.high, *known]), is_log=is_log)
    return _Coordinate(name=name, values=numbers, low=low, high=high, is_log=is_log)


def _of_scores(name: str, records: Sequence[TrialRecord]) -> _Coordinate:
    scores = [record.scores.get(name, math.nan) for record in records]
    known = [score for score in scores if math.isfinite(score)]
    low, high = _apart(min(known, default=0.0), max(known, default=1.0))
    values = [score if math.isfinite(score) else None for score in scores]
    return _Coordinate(name=name, values=values, low=low, high=high)


def _apart(low: float, high: float, *, is_log: bool = False) -> tuple[float, float]:
    """The ends of an axis, which has to have a length."""
    if low < high:
        return low, high
    margin = abs(low) / 2 or 0.5
    return (low / 2, low * 2) if is_log else (low - margin, low + margin)


def _draw_coordinates(
    axes: Axes, coordinates: Sequence[_Coordinate], places: Sequence[float], is_maximized: bool
) -> None:
    from matplotlib.collections import LineCollection

    scored = coordinates[-1]
    sign = 1 if is_maximized else -1
    rows = zip(*(coordinate.heights for coordinate in coordinates), strict=True)
    trials = list(zip(scored.values, rows, strict=True))
    trials.sort(key=lambda trial: sign * (trial[0] or 0.0))  # the best one is drawn last
    lines = LineCollection(
        [list(zip(places, heights, strict=True)) for _, heights in trials],
        array=[score for score, _ in trials],
        cmap="viridis_r" if is_maximized else "viridis",  # good ones are dark
        linewidths=[1.2] * (len(trials) - 1) + [3.0],
        alpha=0.8,
    )
    axes.add_collection(lines)
    has_gaps = any(None in coordinate.values for coordinate in coordinates)
    axes.set_xlim(places[0], places[-1])
    axes.set_ylim(1.25 * _MISSING_Y if has_gaps else 0.0, 1.0)
    axes.set_axis_off()
    for coordinate, place in zip(coordinates, places, strict=True):
        axis: Any = axes.inset_axes((place, 0.0, 1e-6, 1.0), transform=axes.transData)
        axis.set_title(coordinate.name, fontsize="medium")
        axis.patch.set_visible(False)
        axis.spines[["top", "right", "bottom"]].set_visible(False)
        axis.set_xticks([])
        axis.set_yscale("log" if coordinate.is_log else "linear")
        axis.set_ylim(coordinate.low, coordinate.high)
        if coordinate.ticks is not None:
            axis.set_yticks(range(len(coordinate.ticks)), coordinate.ticks)
        axis.title.set_parse_math(False)
        for label in axis.get_yticklabels(which="both"):
            label.set_parse_math(coordinate.ticks is None)
            label.set_bbox({"facecolor": "white", "alpha": 0.7, "edgecolor": "none", "pad": 0.5})
        if None in coordinate.values:
            axes.text(place, _MISSING_Y, f"{_MISSING} ", ha="right", va="center")
    figure = axes.get_figure()
    assert figure is not None
    figure.colorbar(lines, ax=axes, label=scored.name, fraction=0.03, pad=0.02)


def _draw_history(
    axes: Axes,
    records: Sequence[TrialRecord],
    objective: str,
    better: Callable[[float, float], float],
) -> None:
    from matplotlib.ticker import MaxNLocator

    numbers = [record.number for record in records]
    scores = [record.scores[objective] for record in records]
    axes.plot(numbers, scores, "o", markersize=4, color="tab:gray", label="trials")
    best = list(itertools.accumulate(scores, better))
    axes.step(numbers, best, where="post", color="tab:red", label="best so far")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set(xlabel="trial", ylabel=objective)
    axes.legend()
