"""Find the scores of an executed notebook.

`ScoreRank` defines the order of the sources of a score. The first source that gives the score
counts. The scores depend only on the notebook's file, so reading it again gives the same floats.

Printed text is read while the notebook runs, because a progress bar overwrites its text. The points
found in printed text are stored in the file, as reported points are.
"""

from __future__ import annotations

import math
import re
import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import regex

from ..notebook_api.messages import Point, PointSource
from ..settings.patterns import SLOW_S, TRIAL_LIMIT_S, compile_pattern
from ..settings.sections import Objective, ScoreSource
from ..trials import ScoreRank, lesser_name
from .metadata import StoredSeries, TrialMetadata
from .printed_numbers import read_numbers, without_codes

#: The (step, value) pairs of each score, in the order of the points.
Series = dict[str, list[tuple[int, float]]]

_SCRAP, _RECORD = "application/scrapbook.scrap.", "application/papermill.record+json"
_LINE_END = re.compile(r"([\r\n])")
#: An unfinished line is searched for scores once it has more than this number of characters
#: (chosen, not measured). Then only its last part of half this length is kept.
_MAX_LINE_CHARACTERS = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """A score as one source gives it, such as a report, a variable or the log of a library.

    Attributes:
        rank: Rank of the source among all sources. The lowest rank has priority.
        source: Name of the source for people, such as `variable test_acc` or `Keras`.
        value: Final value.
        points: The (step, value) pairs. Empty for a source that gives only a final value.
    """

    rank: ScoreRank
    source: str
    value: float
    points: Sequence[tuple[int, float]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Scraped:
    """The scores of a notebook.

    Attributes:
        scores: Final value of each score.
        series: The (step, value) pairs of each score that has a series. If a library logs a score
            that another source gives as well, or for which the parameters file names a source, the
            library's series has a longer name, such as `keras/loss` (see `lesser_name`).
        unread: Printed text where a number was expected, by score. The value of such a score is
            unknown.
        too_slow: Scores whose patterns took too long. Some values of these scores were not found.
        ranks: Rank of the source that counts, by score.
        given: What each source gives, by score. The source that counts comes first.
    """

    scores: dict[str, float] = field(default_factory=dict)
    series: Series = field(default_factory=dict)
    unread: dict[str, str] = field(default_factory=dict)
    too_slow: set[str] = field(default_factory=set)
    ranks: dict[str, ScoreRank] = field(default_factory=dict)
    given: dict[str, list[Given]] = field(default_factory=dict)


def variables_to_read(sources: Mapping[str, ScoreSource], objectives: Iterable[str]) -> list[str]:
    """Return the variables and expressions to read from the kernel after the last cell.

    Args:
        sources: Sources that the parameters file names, by score.
        objectives: Names of the objectives. Each may be the name of a variable, except a name such
            as `val/acc`, which belongs to a score that a library logs.
    """
    named = [
        source.variable or source.expression
        for source in sources.values()
        if source.pattern is None
    ]
    own = [name for name in objectives if name.isidentifier()]
    return list(dict.fromkeys([*filter(None, named), *own]))


def scrape(
    cells: Sequence[Mapping[str, Any]],
    metadata: TrialMetadata,
    *,
    sources: Mapping[str, ScoreSource],
    objectives: Mapping[str, Objective],
) -> Scraped:
    """Find all scores and series of an executed notebook.

    If the parameters file names the source of a score, only this source and reports count: a
    variable with the score's name may belong to another model. If the pattern of a score matched a
    text that is not a number, only a report can give the score.

    Args:
        cells: Cells of the notebook.
        metadata: Metadata of the notebook.
        sources: Sources that the parameters file names, by score.
        objectives: Objectives by score. They decide which value of a series is the score.
    """
    by_name: defaultdict[str, list[Given]] = defaultdict(list)
    for name, giver in [
        *_reported(metadata, objectives),
        *_named(metadata, sources, objectives),
        *_displayed(cells),
        *_of_own_names(metadata, objectives),
        *_logged(metadata, objectives),
    ]:
        by_name[name].append(giver)
    found = Scraped(
        unread=_unread(metadata, sources, objectives), too_slow=_too_slow(metadata, sources)
    )
    for name, givers in by_name.items():
        is_named = name in sources
        for giver in givers:
            if giver.rank is ScoreRank.LOGGED and (is_named or len(givers) > 1):
                # Another source has priority, and the score's name is kept for its series.
                found.series[lesser_name(name, giver.source)] = [*giver.points]
        last = ScoreRank.NAMED if is_named else ScoreRank.LOGGED
        if name in found.unread or name in found.too_slow:
            last = ScoreRank.REPORTED
        first = min(givers, key=lambda giver: giver.rank)
        if first.rank <= last:
            _use(first, givers, found, name)
        elif first.rank is ScoreRank.NAMED and first.points:
            found.series[name] = [*first.points]
    return found


def _use(first: Given, givers: Sequence[Given], found: Scraped, name: str) -> None:
    """Record a score as the source with the highest priority gives it: rank, value and series.

    Args:
        first: What this source gives.
        givers: What all sources give for the score, `first` included.
        found: Scores of the notebook, to which the score is added.
        name: Name of the score.
    """
    if first.rank is ScoreRank.REPORTED:
        found.unread.pop(name, None)
        found.too_slow.discard(name)
    found.ranks[name], found.scores[name] = first.rank, first.value
    if first.points:
        found.series[name] = [*first.points]
    found.given[name] = [first, *(giver for giver in givers if giver.rank > first.rank)]


def series_of(metadata: TrialMetadata) -> Series:
    """Return the (step, value) pairs of each score in the metadata of an executed notebook."""
    logged = {}
    for name, points in _series(metadata.logged).items():
        counts = metadata.given_by.get(name, ScoreRank.LOGGED) is ScoreRank.LOGGED
        library = metadata.logged[name].library
        logged[name if counts else lesser_name(name, library)] = points
    return {**logged, **_series(metadata.printed), **_series(metadata.series)}


# --- sources ---------------------------------------------------------------------------------


_Objectives = Mapping[str, Objective]


def _reported(metadata: TrialMetadata, objectives: _Objectives) -> Iterator[tuple[str, Given]]:
    rank, finals, series = ScoreRank.REPORTED, metadata.finals, _series(metadata.series)
    for name in dict.fromkeys([*series, *finals]):
        points = series.get(name, [])
        if name in finals:
            source, value = "sweeper.score", finals[name]
            yield name, Given(rank=rank, source=source, value=value, points=points)
        else:
            yield name, _last_of(points, rank, "sweeper.report", objectives.get(name))


def _named(
    metadata: TrialMetadata, sources: Mapping[str, ScoreSource], objectives: _Objectives
) -> Iterator[tuple[str, Given]]:
    printed, variables = _series(metadata.printed), metadata.variables
    for name, source in sources.items():
        if source.pattern is not None and name in printed:
            goal = objectives.get(name)
            yield name, _last_of(printed[name], ScoreRank.NAMED, "printed", goal)
        expression = source.variable or source.expression
        if expression is not None and expression in variables:
            text = f"variable {expression}" if source.variable else expression
            yield name, Given(rank=ScoreRank.NAMED, source=text, value=variables[expression])


def _displayed(cells: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, Given]]:
    for rank, values in _shown(cells).items():
        source = "glue" if rank is ScoreRank.GLUED else "record"
        for name, value in values.items():
            yield name, Given(rank=rank, source=source, value=value)


def _of_own_names(metadata: TrialMetadata, objectives: _Objectives) -> Iterator[tuple[str, Given]]:
    for name in objectives:
        if name in metadata.variables:
            value = metadata.variables[name]
            yield name, Given(rank=ScoreRank.VARIABLE, source=f"variable {name}", value=value)


def _logged(metadata: TrialMetadata, objectives: _Objectives) -> Iterator[tuple[str, Given]]:
    for name, points in _series(metadata.logged).items():
        library = metadata.logged[name].library
        yield name, _last_of(points, ScoreRank.LOGGED, library, objectives.get(name))


def _last_of(
    points: Sequence[tuple[int, float]], rank: ScoreRank, source: str, objective: Objective | None
) -> Given:
    """Return the score of a series: its last value, or the best or mean one.

    The key `take` of the objective decides which. Without an objective, the last value counts.

    Args:
        points: The (step, value) pairs of the series.
        rank: Rank of the source that gives the series.
        source: Name of this source for people.
        objective: Objective with the name of the score. None if no objective has it.
    """
    return Given(rank=rank, source=source, value=_final_value(points, objective), points=points)


def _unread(
    metadata: TrialMetadata, sources: Mapping[str, ScoreSource], objectives: _Objectives
) -> dict[str, str]:
    """Return the printed texts that are not numbers and leave a score unknown, by score.

    If the last match of a pattern is not a number, the last value is unknown. If any match is not a
    number, the mean is unknown.
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
    """Return the scores whose patterns took too long and are no longer used."""
    return {name for name, printed in metadata.printed.items() if printed.too_slow} & {*sources}


def _final_value(points: Sequence[tuple[int, float]], objective: Objective | None) -> float:
    values = [value for _, value in points]
    if objective is None or objective.take == "last":
        return values[-1]
    if objective.take == "mean":
        return float(statistics.mean(values))  # Computed with fractions and rounded once.
    finite = [value for value in values if not math.isnan(value)] or values
    return max(finite) if objective.direction == "maximize" else min(finite)


def _shown(cells: Iterable[Mapping[str, Any]]) -> dict[ScoreRank, dict[str, float]]:
    """Return the numbers displayed by scrapbook's `glue`, and those by papermill's old `record`.

    A display that cannot be read has no numbers. This function must not raise, because it is also
    called while the notebook runs, and an exception would fail the trial.
    """
    glued, recorded = dict[str, float](), dict[str, float]()
    for cell in cells:
        for output in cell.get("outputs", ()):
            for mime, content in output.get("data", {}).items():
                if not isinstance(content, Mapping):
                    continue
                if mime == _RECORD:
                    recorded.update(_numbers(content))
                elif mime.startswith(_SCRAP):
                    glued.update(_numbers({str(content.get("name")): content.get("data")}))
    return {ScoreRank.GLUED: glued, ScoreRank.RECORDED: recorded}


def _numbers(values: Mapping[Any, Any]) -> dict[str, float]:
    """Return the values that are numbers, or texts for NaN and infinity, which JSON lacks."""
    words = ("nan", "inf", "-inf", "infinity", "-infinity")
    numbers = {}
    for name, value in values.items():
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if is_number or (isinstance(value, str) and value.lower() in words):
            with suppress(OverflowError):  # Ignore an integer that is too large for a float.
                numbers[str(name)] = float(value)
    return numbers


def displayed_point(data: Mapping[str, Any]) -> Point | None:
    """Return the scores in one displayed output, as a point without a step. None if it has none."""
    shown = _shown([{"outputs": [{"data": data}]}])
    metrics = {**shown[ScoreRank.RECORDED], **shown[ScoreRank.GLUED]}
    return Point(step=None, metrics=metrics, source=PointSource.DISPLAYED) if metrics else None


def _series(stored: Mapping[str, StoredSeries]) -> Series:
    """Return the stored series that have points, as pairs of step and value."""
    return {name: series.points for name, series in stored.items() if series.steps}


class PrintedScores:
    """Finds scores in text while the notebook prints it.

    Each match of a pattern is a point, whose step is its position among all matches, from 0.

    - A match that is not a number is a point without a value, so that no older number counts in its
      place.
    - A line that is redrawn, such as a progress bar, gives points only when its values change.
    - A pattern that takes too long, on one line or on all lines together, is no longer searched.
      A point without a value reports this (`too_slow`).
    - A pattern with a `\\n` is matched in each line together with the line above.

    Args:
        sources: Sources of scores. Sources without a pattern are ignored.
        on_point: Function that is called with each point.
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
        """Find the points in the lines that a new piece of text completes.

        Args:
            stream: `stdout` or `stderr`. Their lines are independent.
            text: Next piece of the stream.
        """
        if not self._patterns:
            return
        line = self._lines.setdefault(stream, _Line())
        *ended, rest = _LINE_END.split(text)
        for drawn, end in zip(ended[::2], ended[1::2], strict=True):
            self._match(line, line.text + drawn)
            # Keep the earlier values of a redrawn line, because its new text may lack a number.
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
        """Find the points in unfinished lines. Callers do this if nothing was printed for a while.

        A number at the very end of a line is ignored, because more of its digits may follow.
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
        """Return the matches of a score's pattern in a line: numbers, or texts that are no numbers.

        Args:
            name: Name of the score.
            text: Line, with the line above if the pattern contains a `\\n`.
            is_whole: Whether the line is complete.
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
        for reading in read_numbers(pattern, without_codes(text)):
            if not (is_whole or reading.is_complete):
                break
            found.append(reading.text if reading.value is None else reading.value)
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
    """A line that the notebook is printing. A line that is redrawn counts as a new line.

    Attributes:
        text: Text of the line so far.
        above: Last line above that is not blank, for patterns with a `\\n`.
        previous: Values of the previous drawing, by score.
        values: Values of this drawing so far, by score.
    """

    text: str = ""
    above: str = ""
    previous: Mapping[str, list[float | str]] = field(default_factory=dict)
    values: dict[str, list[float | str]] = field(default_factory=dict)
