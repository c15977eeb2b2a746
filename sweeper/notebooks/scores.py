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
from .printed_numbers import read_number, without_codes

#: The (step, value) pairs of each score, in the order of the points.
Series = dict[str, list[tuple[int, float]]]

_SCRAP, _RECORD = "application/scrapbook.scrap.", "application/papermill.record+json"
_LINE_END = re.compile(r"([\r\n])")
#: An unfinished line is read when it has so many characters, and its latter half is kept.
_MAX_LINE_CHARACTERS = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Scraped:
    """The scores of a notebook.

    Attributes:
        scores: the final value of each score.
        series: the (step, value) pairs of each score that has some.
        unread: by score that its pattern does not give: the printed text that is no number.
    """

    scores: dict[str, float] = field(default_factory=dict)
    series: Series = field(default_factory=dict)
    unread: dict[str, str] = field(default_factory=dict)


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
    unread = {}

    displayed = _displayed(node["cells"])
    finals = {**{k: v for k, v in displayed.items() if k not in reported}, **finals}
    for name, source in sources.items():
        if name in series or name in finals:
            continue
        if source.pattern is not None:
            series.update({name: printed[name]} if printed.get(name) else {})
            text = _unread(metadata.get("printed", {}).get(name), objectives.get(name))
            unread.update({} if text is None else {name: text})
        elif (read := source.variable or source.expression) in variables:
            finals[name] = variables[read]
    for name in objectives:
        if name not in {*series, *finals, *unread} and name in variables:
            finals[name] = variables[name]

    scores = {
        name: _final_value(points, objectives.get(name))
        for name, points in series.items()
        if name not in unread
    }
    return Scraped(scores={**scores, **finals}, series=series, unread=unread)


def series_of(metadata: Mapping[str, Any]) -> Series:
    """The series that a sweep has stored in the metadata of an executed notebook."""
    return {**_series(metadata.get("printed", {})), **_series(metadata.get("series", {}))}


def _unread(printed: Mapping[str, Any] | None, objective: Objective | None) -> str | None:
    """Find the printed text that keeps a series from having a score; None where none does.

    The last value cannot be known where the last text is no number, nor the mean where any is none.
    """
    if printed is None or "unread" not in printed:
        return None
    text, steps = printed["unread"], printed["steps"]
    is_last = not steps or text["step"] > steps[-1]
    take = "last" if objective is None else objective.take
    counts = not steps or take == "mean" or (take == "last" and is_last)
    return str(text["text"]) if counts else None


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
        if s["steps"]
    }


class PrintedScores:
    """Finds scores in text while it is printed.

    Each match in a line is a point, whose step is its position among the matches. A match that is
    no number is a point too, without a value: no older number may stand for it. A line that is
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
        *ended, rest = _LINE_END.split(text)
        for drawn, end in zip(ended[::2], ended[1::2], strict=True):
            self._match(line, line.text + drawn)
            # A redrawn line without a number keeps the values before it.
            previous = {**line.previous, **line.values} if end == "\r" else {}
            line = self._lines[stream] = _Line(previous=previous)
        rest = line.text + rest
        if len(rest) > _MAX_LINE_CHARACTERS:
            self._match(line, rest, is_whole=False)
            rest = rest[-_MAX_LINE_CHARACTERS // 2 :]
            kept = {name: self._found(name, rest, is_whole=False) for name in self._patterns}
            self._lines[stream] = line = _Line(values=kept)
        line.text = rest

    def settle(self) -> None:
        """Find the points in lines that have not ended, when nothing is printed for a while.

        A number at the very end of a line may be the first piece of a longer one, so it waits.
        """
        for line in self._lines.values():
            self._match(line, line.text, is_whole=False)

    def end_cell(self) -> None:
        """Find the points in the last lines of a cell, and begin new lines."""
        for line in self._lines.values():
            self._match(line, line.text)
        self._lines.clear()

    def _match(self, line: _Line, text: str, *, is_whole: bool = True) -> None:
        for name in self._patterns:
            found = self._found(name, text, is_whole=is_whole)
            if not found:
                continue
            if list(map(repr, found)) != list(map(repr, line.previous.get(name, ()))):
                for value in found[len(line.values.get(name, ())) :]:
                    self._publish(name, value)
            line.values[name] = found

    def _found(self, name: str, text: str, *, is_whole: bool) -> list[float | str]:
        """List the numbers in a line, and in place of a number the text that is none.

        Args:
            is_whole: whether nothing will follow the text in its line.
        """
        found: list[float | str] = []
        end = 0
        for match in self._patterns[name].finditer(without_codes(text)):
            reading = read_number(match)
            if reading is None or match.start(1) < end:  # a part of the number before it
                continue
            if not (is_whole or reading.is_complete):
                break
            found.append(reading.text if reading.value is None else reading.value)
            end = reading.end
        return found

    def _publish(self, name: str, value: float | str) -> None:
        step, source = self._counts[name], PointSource.PRINTED
        if isinstance(value, str):
            self._on_point(Point(step=step, metrics={}, source=source, unread={name: value}))
        else:
            self._on_point(Point(step=step, metrics={name: value}, source=source))
        self._counts[name] += 1


@dataclass(slots=True, kw_only=True)
class _Line:
    """One line that is being printed, or one drawing of a line that is redrawn.

    Attributes:
        text: the line so far.
        previous: the values of the drawing before this one.
        values: the values of this one so far.
    """

    text: str = ""
    previous: Mapping[str, list[float | str]] = field(default_factory=dict)
    values: dict[str, list[float | str]] = field(default_factory=dict)
