"""Find the scores of an executed notebook.

The first of these sources counts: `report` and `score`, scrapbook's `glue`, papermill's old
`record`, the variable or pattern in the parameters file, a top-level variable with the objective's
name. Only the file's content is read, so that scraping it again gives the same floats. Printed text
is read while the notebook prints it, because a progress bar overwrites it; its points are stored in
the file like reported ones.
"""

from __future__ import annotations

import math
import re
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from ..notebook_api.messages import Point, PointSource
from ..settings.sections import Objective, ScoreSource

#: The (step, value) pairs of each score, in the order of the points.
Series = dict[str, list[tuple[int, float]]]

_SCRAP, _RECORD = "application/scrapbook.scrap.", "application/papermill.record+json"
_LINE_END = re.compile(r"([\r\n])")
#: Only so many characters at the end of an unfinished line are kept.
_MAX_LINE_CHARACTERS = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Scraped:
    """The scores of a notebook.

    Attributes:
        scores: the final value of each score.
        series: the (step, value) pairs of each score that has some.
    """

    scores: dict[str, float] = field(default_factory=dict)
    series: Series = field(default_factory=dict)


def variables_to_read(sources: Mapping[str, ScoreSource], objectives: Iterable[str]) -> list[str]:
    """List the variables, and expressions of them, to read from the kernel after the last cell."""
    named = [it.variable or it.expression for it in sources.values() if it.pattern is None]
    return list(dict.fromkeys([*filter(None, named), *objectives]))


def scrape(
    node: Mapping[str, Any],
    *,
    sources: Mapping[str, ScoreSource],
    objectives: Mapping[str, Objective],
) -> Scraped:
    """Find all scores and series of an executed notebook.

    Args:
        node: the notebook.
        sources: where to find scores that are not reported, from the parameters file.
        objectives: the objectives, which decide which value of a series is the score.
    """
    metadata = node["metadata"].get("sweeper", {})
    series, printed = _series(metadata.get("series", {})), _series(metadata.get("printed", {}))
    finals = {name: float(value) for name, value in metadata.get("finals", {}).items()}
    variables = {name: float(value) for name, value in metadata.get("variables", {}).items()}
    reported = {*series, *finals}

    displayed = _displayed(node["cells"])
    finals = {**{k: v for k, v in displayed.items() if k not in reported}, **finals}
    for name, source in sources.items():
        if name in series or name in finals:
            continue
        if source.pattern is not None:
            series.update({name: printed[name]} if name in printed else {})
        elif (read := source.variable or source.expression) in variables:
            finals[name] = variables[read]
    for name in objectives:
        if name not in series and name not in finals and name in variables:
            finals[name] = variables[name]

    scores = {name: _final_value(points, objectives.get(name)) for name, points in series.items()}
    return Scraped(scores={**scores, **finals}, series=series)


def series_of(metadata: Mapping[str, Any]) -> Series:
    """The series that a sweep has stored in the metadata of an executed notebook."""
    return {**_series(metadata.get("printed", {})), **_series(metadata.get("series", {}))}


def _final_value(points: Sequence[tuple[int, float]], objective: Objective | None) -> float:
    """Take the score out of a series: the last value for a score that is no objective."""
    values = [value for _, value in points]
    if objective is None or objective.take == "last":
        return values[-1]
    if objective.take == "mean":
        return float(statistics.mean(values))  # exact, whatever the sum is
    finite = [value for value in values if not math.isnan(value)] or values
    return max(finite) if objective.direction == "maximize" else min(finite)


def _displayed(cells: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Find the numbers of scrapbook's `glue`, and those of papermill's old `record` behind them.

    It is called with each display while the notebook runs, too: a display that it cannot read has
    no scores, and an exception would fail the trial.
    """
    glued: dict[str, float] = {}
    recorded: dict[str, float] = {}
    for data in (o["data"] for cell in cells for o in cell.get("outputs", ()) if "data" in o):
        for mime, content in data.items():
            if mime.startswith(_SCRAP) and isinstance(content, Mapping):
                glued.update(_numbers({str(content.get("name")): content.get("data")}))
            elif mime == _RECORD and isinstance(content, Mapping):
                recorded.update(_numbers(content))
    return {**recorded, **glued}


def _numbers(values: Mapping[Any, Any]) -> dict[str, float]:
    """Select the values that are numbers, or words for NaN and infinities, which JSON lacks."""
    words = ("nan", "inf", "-inf", "infinity", "-infinity")
    numbers = {}
    for name, value in values.items():
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if is_number or (isinstance(value, str) and value.lower() in words):
            with suppress(OverflowError):  # an integer beyond all floats is no score
                numbers[str(name)] = float(value)
    return numbers


def displayed_point(data: Mapping[str, Any]) -> Point | None:
    """Read the scores in a display's data into a point without a step; None without scores."""
    metrics = _displayed([{"outputs": [{"data": data}]}])
    return Point(step=None, metrics=metrics, source=PointSource.DISPLAYED) if metrics else None


def _series(stored: Mapping[str, Any]) -> Series:
    """Decode the series of the metadata."""
    return {
        name: list(zip(s["steps"], map(float, s["values"]), strict=True))
        for name, s in stored.items()
    }


class PrintedScores:
    """Finds scores in text while it is printed.

    Each match in a line is a point, whose step is its position among the matches. A line that is
    redrawn, like a progress bar, gives points only when its values change.

    Args:
        sources: the sources of scores; those without a pattern are ignored.
        on_point: called with each point.
    """

    def __init__(
        self, sources: Mapping[str, ScoreSource], on_point: Callable[[Point], None]
    ) -> None:
        self._on_point = on_point
        self._patterns = {n: re.compile(s.pattern) for n, s in sources.items() if s.pattern}
        self._lines: dict[str, _Line] = {}
        self._counts: Counter[str] = Counter()

    def read(self, stream: str, text: str) -> None:
        """Find the points in the lines that a text completes.

        Args:
            stream: `stdout` or `stderr`, whose lines are independent.
            text: the next piece of the stream.
        """
        if not self._patterns:
            return
        line = self._lines.setdefault(stream, _Line())
        *ended, rest = _LINE_END.split(line.text + text)
        for drawn, end in zip(ended[::2], ended[1::2], strict=True):
            self._match(line, drawn)
            # A redrawn line without a number keeps the values before it.
            previous = {**line.previous, **line.values} if end == "\r" else {}
            line = self._lines[stream] = _Line(previous=previous)
        line.text = rest[-_MAX_LINE_CHARACTERS:]

    def settle(self) -> None:
        """Find the points in lines that have not ended, when nothing is printed for a while.

        A number at the very end of a line may be the first piece of a longer one, so it waits.
        """
        for line in self._lines.values():
            self._match(line, line.text, end=len(line.text) - 1)

    def end_cell(self) -> None:
        """Find the points in the last lines of a cell, and begin new lines."""
        for line in self._lines.values():
            self._match(line, line.text)
        self._lines.clear()

    def _match(self, line: _Line, text: str, *, end: int | None = None) -> None:
        for name, pattern in self._patterns.items():
            matches = (m for m in pattern.finditer(text) if end is None or m.end() <= end)
            values = [value for match in matches if (value := _number(match)) is not None]
            if not values:
                continue
            if list(map(repr, values)) != list(map(repr, line.previous.get(name, ()))):
                for value in values[len(line.values.get(name, ())) :]:
                    step = self._counts[name]
                    self._on_point(
                        Point(step=step, metrics={name: value}, source=PointSource.PRINTED)
                    )
                    self._counts[name] += 1
            line.values[name] = values


@dataclass(slots=True, kw_only=True)
class _Line:
    """One line that is being printed, or one drawing of a line that is redrawn.

    Attributes:
        text: the line so far.
        previous: the values of the drawing before this one.
        values: the values of this one so far.
    """

    text: str = ""
    previous: Mapping[str, list[float]] = field(default_factory=dict)
    values: dict[str, list[float]] = field(default_factory=dict)


def _number(match: re.Match[str]) -> float | None:
    try:
        return float(match[1])
    except (TypeError, ValueError):  # the group has matched something else
        return None
