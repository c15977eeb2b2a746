"""Find the scores of an executed notebook.

`ScoreRank` has the order of the sources, and the first one that gives a score counts. Only the
file's content is read, so that scraping it again gives the same floats. Printed text is read while
the notebook prints it, because a progress bar overwrites it; its points are stored in the file like
reported ones.
"""

from __future__ import annotations

import math
import re
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import regex

from ..notebook_api.messages import Point, PointSource
from ..settings.patterns import SLOW_S, TRIAL_LIMIT_S, compile_pattern, find_all
from ..settings.printed_numbers import read_number, without_codes
from ..settings.sections import Objective, ScoreSource
from ..trials import ScoreRank, lesser_name
from .metadata import StoredSeries, TrialMetadata

#: The (step, value) pairs of each score, in the order of the points.
Series = dict[str, list[tuple[int, float]]]

_SCRAP, _RECORD = "application/scrapbook.scrap.", "application/papermill.record+json"
_LINE_END = re.compile(r"([\r\n])")
#: An unfinished line is read when it has so many characters, and its latter half is kept.
_MAX_LINE_CHARACTERS = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What one source gives of a score.

    Attributes:
        rank: the source's place in the order.
        source: the source for people, such as `variable test_acc` or `Keras`.
        value: the final value.
        points: the (step, value) pairs; empty for a source that has only a final value.
    """

    rank: ScoreRank
    source: str
    value: float
    points: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Scraped:
    """The scores of a notebook.

    Attributes:
        scores: the final value of each score.
        series: the (step, value) pairs of each score that has some. What a library has logged of a
            score that another source gives has the name of `lesser_name`.
        unread: by score that its pattern does not give: the printed text that is no number.
        too_slow: the scores whose patterns took too long, so that what they found is not all.
        ranks: by score, the source that counts.
        given: by score, what each source gives of it, the one that counts first.
    """

    scores: dict[str, float] = field(default_factory=dict)
    series: Series = field(default_factory=dict)
    unread: dict[str, str] = field(default_factory=dict)
    too_slow: set[str] = field(default_factory=set)
    ranks: dict[str, ScoreRank] = field(default_factory=dict)
    given: dict[str, list[Given]] = field(default_factory=dict)


def variables_to_read(sources: Mapping[str, ScoreSource], objectives: Iterable[str]) -> list[str]:
    """List the variables, and expressions of them, to read from the kernel after the last cell."""
    named = [it.variable or it.expression for it in sources.values() if it.pattern is None]
    return list(dict.fromkeys([*filter(None, named), *objectives]))


def scrape(
    cells: Sequence[Mapping[str, Any]],
    metadata: TrialMetadata,
    *,
    sources: Mapping[str, ScoreSource],
    objectives: Mapping[str, Objective],
) -> Scraped:
    """Find all scores and series of an executed notebook.

    Args:
        cells: cells of the notebook.
        metadata: what the notebook states of the trial.
        sources: where to find scores that are not reported, from the parameters file.
        objectives: the objectives, which decide which value of a series is the score.

    Nothing stands in for a source that the parameters file names: a variable of the score's name
    may be another model's. Nor does anything but a report for a printed text that is no number.
    """
    given = [
        *_reported(metadata, objectives),
        *_named(metadata, sources, objectives),
        *_displayed(cells),
        *_of_own_names(metadata, objectives),
        *_logged(metadata, objectives),
    ]
    by_name: dict[str, list[Given]] = {}
    for name, giver in given:
        by_name.setdefault(name, []).append(giver)
    found = Scraped(
        unread=_unread(metadata, sources, objectives), too_slow=_too_slow(metadata, sources)
    )
    for name, of_name in by_name.items():
        found.series.update(_lesser_series(name, of_name, sources))
        last = ScoreRank.NAMED if name in sources else ScoreRank.LOGGED
        if name in found.unread or name in found.too_slow:
            last = ScoreRank.REPORTED
        counting = [giver for giver in of_name if giver.rank <= last]
        if not counting:
            for source in filter(_is_named_series, of_name):
                found.series[name] = list(source.points)
            continue
        first = min(counting, key=lambda source: source.rank)
        if first.rank is ScoreRank.REPORTED:
            found.unread.pop(name, None)
            found.too_slow.discard(name)
        found.ranks[name], found.scores[name] = first.rank, first.value
        if first.points:
            found.series[name] = list(first.points)
        others = [it for it in of_name if it.rank > first.rank]
        found.given[name] = [first, *others]
    return found


def series_of(metadata: TrialMetadata) -> Series:
    """Return the series that a sweep has stored in the metadata of an executed notebook."""
    logged = {}
    for name, points in _series(metadata.logged).items():
        counts = metadata.given_by.get(name, ScoreRank.LOGGED) is ScoreRank.LOGGED
        library = metadata.logged[name].library
        logged[name if counts else lesser_name(name, library)] = points
    return {**logged, **_series(metadata.printed), **_series(metadata.series)}


# --- each source -----------------------------------------------------------------------------


_Objectives = Mapping[str, Objective]


def _reported(metadata: TrialMetadata, objectives: _Objectives) -> Iterator[tuple[str, Given]]:
    series, finals = _series(metadata.series), metadata.finals
    for name in dict.fromkeys([*series, *finals]):
        points = series.get(name, [])
        value = finals[name] if name in finals else _final_value(points, objectives.get(name))
        source = "sweeper.score" if name in finals else "sweeper.report"
        yield name, _given(ScoreRank.REPORTED, source, value, points)


def _named(
    metadata: TrialMetadata, sources: Mapping[str, ScoreSource], objectives: _Objectives
) -> Iterator[tuple[str, Given]]:
    printed, variables = _series(metadata.printed), metadata.variables
    for name, source in sources.items():
        if source.pattern is not None and name in printed:
            value = _final_value(printed[name], objectives.get(name))
            yield name, _given(ScoreRank.NAMED, "printed", value, printed[name])
        elif source.variable is not None and source.variable in variables:
            text = f"variable {source.variable}"
            yield name, _given(ScoreRank.NAMED, text, variables[source.variable])
        elif source.expression is not None and source.expression in variables:
            yield name, _given(ScoreRank.NAMED, source.expression, variables[source.expression])


def _displayed(cells: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, Given]]:
    glued, recorded = _shown(cells)
    for name, value in glued.items():
        yield name, _given(ScoreRank.GLUED, "glue", value)
    for name, value in recorded.items():
        yield name, _given(ScoreRank.RECORDED, "record", value)


def _of_own_names(metadata: TrialMetadata, objectives: _Objectives) -> Iterator[tuple[str, Given]]:
    variables = metadata.variables
    for name in objectives:
        if name in variables:
            yield name, _given(ScoreRank.VARIABLE, f"variable {name}", variables[name])


def _logged(metadata: TrialMetadata, objectives: _Objectives) -> Iterator[tuple[str, Given]]:
    for name, points in _series(metadata.logged).items():
        value = _final_value(points, objectives.get(name))
        yield name, _given(ScoreRank.LOGGED, metadata.logged[name].library, value, points)


def _given(
    rank: ScoreRank, source: str, value: float, points: Iterable[tuple[int, float]] = ()
) -> Given:
    return Given(rank=rank, source=source, value=value, points=tuple(points))


def _is_named_series(given: Given) -> bool:
    return given.rank is ScoreRank.NAMED and bool(given.points)


def _lesser_series(name: str, given: Iterable[Given], sources: Mapping[str, ScoreSource]) -> Series:
    """A library's series of a score that another source gives, or would have to give."""
    given = list(given)
    return {
        lesser_name(name, source.source): list(source.points)
        for source in given
        if source.rank is ScoreRank.LOGGED and (len(given) > 1 or name in sources)
    }


def _unread(
    metadata: TrialMetadata, sources: Mapping[str, ScoreSource], objectives: _Objectives
) -> dict[str, str]:
    """Find the printed texts that keep scores from being known.

    The last value cannot be known where the last text is no number, nor the mean where any is none.
    """
    found = {}
    for name, printed in metadata.printed.items():
        unread, steps = printed.unread, printed.steps
        if name not in sources or unread is None:
            continue
        take = objectives[name].take if name in objectives else "last"
        is_last = not steps or unread.step > steps[-1]
        if not steps or take == "mean" or (take == "last" and is_last):
            found[name] = unread.text
    return found


def _too_slow(metadata: TrialMetadata, sources: Mapping[str, ScoreSource]) -> set[str]:
    """Find the scores whose patterns were given up."""
    return {name for name, printed in metadata.printed.items() if printed.too_slow} & {*sources}


def _final_value(points: Sequence[tuple[int, float]], objective: Objective | None) -> float:
    """Take the score out of a series: the last value for a score that is no objective."""
    values = [value for _, value in points]
    if objective is None or objective.take == "last":
        return values[-1]
    if objective.take == "mean":
        return float(statistics.mean(values))  # exact, whatever the sum is
    finite = [value for value in values if not math.isnan(value)] or values
    return max(finite) if objective.direction == "maximize" else min(finite)


def _shown(cells: Iterable[Mapping[str, Any]]) -> tuple[dict[str, float], dict[str, float]]:
    """Find the numbers of scrapbook's `glue`, and those of papermill's old `record`.

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
    return glued, recorded


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
    glued, recorded = _shown([{"outputs": [{"data": data}]}])
    metrics = {**recorded, **glued}
    return Point(step=None, metrics=metrics, source=PointSource.DISPLAYED) if metrics else None


def _series(stored: Mapping[str, StoredSeries]) -> Series:
    """Select the series that have points."""
    return {name: series.points for name, series in stored.items() if series.steps}


class PrintedScores:
    """Finds scores in text while it is printed.

    Each match in a line is a point, whose step is its position among the matches. A match that is
    no number is a point too, without a value: no older number may stand for it. A line that is
    redrawn, like a progress bar, gives points only when its values change. A pattern that takes too
    long on a line, or on all lines together, is given up, which is a point without a value too. A
    pattern with a `\\n` is matched in a line together with the one above it.

    Args:
        sources: the sources of scores; those without a pattern are ignored.
        on_point: called with each point.
    """

    def __init__(
        self, sources: Mapping[str, ScoreSource], on_point: Callable[[Point], None]
    ) -> None:
        self._on_point = on_point
        self._patterns = {n: compile_pattern(s.pattern) for n, s in sources.items() if s.pattern}
        self._lines: dict[str, _Line] = {}
        self._counts: Counter[str] = Counter()
        self._slow_s: dict[str, float] = {}

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
            above = (line.text + drawn).rstrip() or line.above
            line = self._lines[stream] = _Line(previous=previous, above=above)
        rest = line.text + rest
        if len(rest) > _MAX_LINE_CHARACTERS:
            self._match(line, rest, is_whole=False)
            rest = rest[-_MAX_LINE_CHARACTERS // 2 :]
            kept = {name: self._found(name, rest, is_whole=False) for name in list(self._patterns)}
            self._lines[stream] = line = _Line(values=kept, above=line.above)
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
        for name in list(self._patterns):
            has_two_lines = r"\n" in self._patterns[name].pattern
            both = f"{line.above}\n{text}" if has_two_lines else text
            found = self._found(name, both, is_whole=is_whole)
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
        began_s = time.thread_time()
        try:
            found = self._numbers(self._patterns[name], text, is_whole=is_whole)
        except TimeoutError:
            return self._give_up(name)
        took_s = time.thread_time() - began_s
        if took_s > SLOW_S:
            self._slow_s[name] = self._slow_s.get(name, 0.0) + took_s
            if self._slow_s[name] > TRIAL_LIMIT_S:
                return self._give_up(name)
        return found

    def _give_up(self, name: str) -> list[float | str]:
        del self._patterns[name]
        step, source = self._counts[name], PointSource.PRINTED
        self._on_point(Point(step=step, metrics={}, source=source, too_slow=(name,)))
        return []

    def _numbers(
        self, pattern: regex.Pattern[str], text: str, *, is_whole: bool
    ) -> list[float | str]:
        found: list[float | str] = []
        end = 0
        for match in find_all(pattern, without_codes(text)):
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
        above: the last line before it that is not blank, for patterns with a `\\n`.
        previous: the values of the drawing before this one.
        values: the values of this one so far.
    """

    text: str = ""
    above: str = ""
    previous: Mapping[str, list[float | str]] = field(default_factory=dict)
    values: dict[str, list[float | str]] = field(default_factory=dict)
