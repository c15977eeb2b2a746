"""Scores from an executed notebook, by every source that the contract names.

Works on the file's content alone, so that scraping again from disk gives the same floats; what is
printed is read as it comes, and kept in the file like what is reported, because a progress bar
overwrites what it said. The
sources, first one wins: `report`/`score`, scrapbook's `glue`, papermill's old `record`, the
variable or pattern named in the parameters file, a top-level variable of the objective's name.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Protocol

from ..notebook_api.messages import Point, PointSource, decode_float

Series = dict[str, list[tuple[int, float]]]

_SCRAP, _RECORD = "application/scrapbook.scrap.", "application/papermill.record+json"
_LINE_END = re.compile(r"([\r\n])")
#: Of a longer line that has not ended only the end is looked at.
_LINE_CHARACTERS = 100_000


class Source(Protocol):
    """Where a score is found that the notebook does not report."""

    @property
    def variable(self) -> str | None: ...

    @property
    def pattern(self) -> str | None: ...


class Wanted(Protocol):
    """How the value of an objective is taken from its series."""

    @property
    def direction(self) -> str: ...

    @property
    def take(self) -> str: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Scraped:
    """`scores`: one final value each. `series`: (step, value) pairs in the order they came."""

    scores: dict[str, float] = field(default_factory=dict)
    series: Series = field(default_factory=dict)


def variables_to_read(sources: Mapping[str, Source], objectives: Iterable[str]) -> list[str]:
    """Which top-level variables to ask the kernel for after the last cell."""
    named = [source.variable for source in sources.values() if source.variable is not None]
    return list(dict.fromkeys([*named, *objectives]))


def scrape(
    node: Mapping[str, Any], *, sources: Mapping[str, Source], objectives: Mapping[str, Wanted]
) -> Scraped:
    """Every score and series of an executed notebook."""
    told = node["metadata"].get("sweeper", {})
    series, printed = _series(told.get("series", {})), _series(told.get("printed", {}))
    finals = {name: decode_float(value) for name, value in told.get("finals", {}).items()}
    variables = {name: decode_float(value) for name, value in told.get("variables", {}).items()}
    reported = {*series, *finals}

    displayed = _displayed(node["cells"])
    finals = {**{k: v for k, v in displayed.items() if k not in reported}, **finals}
    for name, source in sources.items():
        if name in series or name in finals:
            continue
        if source.pattern is not None:
            points = printed.get(name) or _printed(node["cells"], name, source)
            series.update({name: points} if points else {})
        elif source.variable in variables:
            finals[name] = variables[source.variable]
    for name in objectives:
        if name not in series and name not in finals and name in variables:
            finals[name] = variables[name]

    scores = {name: _taken(points, objectives.get(name)) for name, points in series.items()}
    return Scraped(scores={**scores, **finals}, series=series)


def _taken(points: Sequence[tuple[int, float]], wanted: Wanted | None) -> float:
    values = [value for _, value in points]
    if wanted is None or wanted.take == "last":
        return values[-1]
    if wanted.take == "mean":
        return _mean(values)
    finite = [value for value in values if not math.isnan(value)] or values
    return max(finite) if wanted.direction == "maximize" else min(finite)


def _mean(values: Sequence[float]) -> float:
    if not all(map(math.isfinite, values)):
        return sum(values)  # NaN or an infinity, which `fsum` may refuse
    try:
        return math.fsum(values) / len(values)
    except OverflowError:  # the sum is no float, the mean still is
        return float(sum(map(Fraction, values)) / len(values))


def _displayed(cells: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Numbers shown by scrapbook's `glue`, and below those by papermill's old `record`."""
    glued: dict[str, float] = {}
    recorded: dict[str, float] = {}
    for data in (o["data"] for cell in cells for o in cell.get("outputs", ()) if "data" in o):
        for mime, content in data.items():
            if mime.startswith(_SCRAP) and isinstance(content, Mapping):
                glued.update(_numbers({content.get("name"): content.get("data")}))
            elif mime == _RECORD and isinstance(content, Mapping):
                recorded.update(_numbers(content))
    return {**recorded, **glued}


def _numbers(values: Mapping[Any, Any]) -> dict[str, float]:
    """What of these is a number; JSON carries NaN and infinities as words."""
    words = ("nan", "inf", "-inf", "infinity", "-infinity")
    return {
        str(name): float(value)
        for name, value in values.items()
        if (isinstance(value, int | float) and not isinstance(value, bool))
        or (isinstance(value, str) and value.lower() in words)
    }


def displayed_point(data: Mapping[str, Any]) -> Point | None:
    """The scores in the data of one display, as a point without a step; None when it has none."""
    if not any(mime.startswith(_SCRAP) or mime == _RECORD for mime in data):
        return None
    metrics = _displayed([{"outputs": [{"data": data}]}])
    return Point(step=None, metrics=metrics, source=PointSource.DISPLAYED)


def _series(told: Mapping[str, Any]) -> Series:
    return {
        name: list(zip(s["steps"], map(decode_float, s["values"]), strict=True))
        for name, s in told.items()
    }


def _printed(
    cells: Iterable[Mapping[str, Any]], name: str, source: Source
) -> list[tuple[int, float]]:
    """What a notebook that was not run by a sweep has printed."""
    points: list[Point] = []
    reader = PrintedScores({name: source}, points.append)
    for cell in cells:
        for output in cell.get("outputs", ()):
            if output.get("output_type") == "stream":
                reader.read(output["name"], "".join(output["text"]))
        reader.end_cell()
    return [(point.step or 0, point.metrics[name]) for point in points]


class PrintedScores:
    """Finds scores in printed text as it comes.

    Each match in a line is a point; its step is its place among the matches. Of a line that is
    drawn again and again, as a progress bar is, only those drawings count that say something new.

    Args:
        sources: those with a pattern are looked for.
        on_point: called with each point.
    """

    def __init__(self, sources: Mapping[str, Source], on_point: Callable[[Point], None]) -> None:
        self._on_point = on_point
        self._patterns = {n: re.compile(s.pattern) for n, s in sources.items() if s.pattern}
        self._lines: dict[str, _Line] = {}
        self._counts: Counter[str] = Counter()

    def read(self, stream: str, text: str) -> None:
        """Find the points in the lines that this text completes.

        Args:
            stream: `stdout` or `stderr`, which are read apart.
        """
        if not self._patterns:
            return
        line = self._lines.setdefault(stream, _Line())
        *ended, rest = _LINE_END.split(line.text + text)
        for drawn, end in zip(ended[::2], ended[1::2], strict=True):
            self._match(line, drawn)
            # A drawing without a number does not make the next one new.
            said = {**line.before, **line.given} if end == "\r" else {}
            line = self._lines[stream] = _Line(before=said)
        line.text = rest[-_LINE_CHARACTERS:]

    def settle(self) -> None:
        """Find the points in lines that have not ended, but have been at rest."""
        for line in self._lines.values():
            self._match(line, line.text)

    def end_cell(self) -> None:
        """Find the points in the last lines of a cell; what comes now begins new ones."""
        self.settle()
        self._lines.clear()

    def _match(self, line: _Line, text: str) -> None:
        for name, pattern in self._patterns.items():
            values = [v for match in pattern.finditer(text) if (v := _number(match)) is not None]
            if not values:
                continue
            if list(map(repr, values)) != list(map(repr, line.before.get(name, ()))):
                for value in values[len(line.given.get(name, ())) :]:
                    step = self._counts[name]
                    self._on_point(
                        Point(step=step, metrics={name: value}, source=PointSource.PRINTED)
                    )
                    self._counts[name] += 1
            line.given[name] = values


@dataclass(slots=True, kw_only=True)
class _Line:
    """One line that is being printed, or one drawing of a line that is drawn again.

    Attributes:
        before: what the drawing before this one said.
        given: what this one has said so far.
    """

    text: str = ""
    before: Mapping[str, list[float]] = field(default_factory=dict)
    given: dict[str, list[float]] = field(default_factory=dict)


def _number(match: re.Match[str]) -> float | None:
    try:
        return float(match[1])
    except (TypeError, ValueError):  # the group matched something that is no number
        return None
