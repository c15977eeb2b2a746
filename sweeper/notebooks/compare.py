"""Compare two executions of one notebook: scores, series, outputs, params and environment.

Commands such as `replay` and `diff` use this module. A sweep uses it to prove that forked kernels
give the same results as kernels that are not forked. Numbers are compared bit for bit. Texts are
compared without the parts that differ between any two processes: times, rates, addresses,
identifiers and the state of progress bars.
"""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from .metadata import as_json

Points = Sequence[tuple[int, float]]

#: Messages quote at most this number of characters of a line of output (chosen, not measured).
_QUOTED_CHARACTERS = 60
#: Messages list at most this number of differences of the environment (chosen, not measured). Two
#: machines may have hundreds.
_MOST_LISTED = 8
_NONE = "none"
_TEXTS = ("text/plain", "text", "error")
_WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
_PROGRESS_BAR = re.compile(r"^.*\d%\|.*$", re.MULTILINE)
_STATE_OF_BAR = re.compile(r"[\d.,:?█▏▎▍▌▋▊▉# ]+")
#: Matches a warning with its file, line number and source line. Only the warning is compared,
#: because a forked kernel repeats the warnings of its imports with other file names.
_PLACE = re.compile(r"^\S.*:\d+: (\w*Warning: .*)\n  .*$", re.MULTILINE)
#: Matches the log lines of TensorFlow, XLA and other native libraries, which state a time and a
#: thread. They are not compared: if kernels are forked, these libraries are imported in the fork
#: server's template process (zygote), and not in the trial.
_NATIVE_LOG = re.compile(
    r"^(?:WARNING: All log messages before absl|[IWEF]\d{4} [\d:.]+ +\d+ \S+:\d+\]"
    r"|\d{4}-\d\d-\d\d [\d:.]+: [IWEF] \S+:\d+\]).*\n?"
    r"(?:To enable the following instructions: .*\n?)?",
    re.MULTILINE,
)
#: Matches the terminal codes for coloured or bold text, such as those that Keras prints around the
#: duration `3s`. These codes are removed first, because they end in a letter: `_VOLATILE` finds
#: durations only at the beginning of a word, so not behind a letter.
_COLOURS = re.compile(r"\x1b\[[\d;]*m")
#: Matches texts that differ between any two processes, and so are not compared. The possessive
#: quantifiers (`++`) keep the search fast: without them, its time grows with the square of the
#: number of digits.
_VOLATILE = re.compile(
    r"0x[0-9a-fA-F]{4,}"
    r"|\b[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}\b"
    r"|\b(?=\d*[a-f])[0-9a-f]{16,}\b"
    r"|ipykernel_\d+(?:/\d+)?"
    r"|\b\d+(?:\.\d+)?\s?(?:ns|µs|us|ms|s|secs?|seconds?|min|mins|minutes?|h|hours?)\b"
    r"|\b\d++(?:\.\d++)?\s?(?:[kKMG]i?B/s|\w*+/s|s/\w+)"
    r"|\b\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d:\d\d(?:[.,]\d+)?)?\b"
    r"|\b\d{1,2}:\d\d(?::\d\d)?(?:\.\d+)?\b"
    r"|(?i:\b(?:time|elapsed|took|duration|eta|speed)\b\W{0,4}[\d.]+)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """The parts of one execution of a notebook that are compared with another execution.

    Attributes:
        cells: Cells of the executed notebook, with their outputs.
        scores: Final value of each score.
        series: The (step, value) pairs of each score that was reported.
        params: Params of the trial.
        environment: Facts that may change results, by their names for people, such as the version
            of Python. Environments are compared only if both executions state theirs.
    """

    cells: Sequence[Mapping[str, Any]] = ()
    scores: Mapping[str, float]
    series: Mapping[str, Points]
    params: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parting:
    """The first difference between two series of one score.

    Attributes:
        n_equal: Number of equal points before the difference.
        step: Step of the first difference. None if the series are equal.
        first: The first execution's value at this step. None if it has no value there.
        second: The second execution's value at this step. None if it has no value there.
        distance: Largest relative distance of two values at the same step. 0.0 if the series are
            equal. Infinite if one of two different values is missing or not finite.
    """

    n_equal: int
    step: int | None = None
    first: float | None = None
    second: float | None = None
    distance: float = 0.0

    def __str__(self) -> str:
        if self.step is None:
            return f"equal at all {self.n_equal} points"
        alike = f"equal at the first {self.n_equal} points; " if self.n_equal else ""
        return f"{alike}from step {self.step} on {change(self.first, self.second)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputDifference:
    """The first difference in the outputs of a cell.

    Attributes:
        cell: Position of the cell among all cells of the notebook, from 1, as in the live table.
        is_same_kind: Whether the outputs have the same types in the same order.
        line: Line of the text output, from 1. None if an image or another output without text
            differs.
        first: This line in the first execution. Empty if it has no such line.
        second: This line in the second execution. Empty if it has no such line.
    """

    cell: int
    is_same_kind: bool
    line: int | None
    first: str
    second: str

    def __str__(self) -> str:
        if self.line is None:
            return f"cell {self.cell}: a picture, or another output that is not text, differs"
        quoted = " → ".join(_quoted(self.first, self.second))
        return f"cell {self.cell}, from line {self.line} on: {quoted}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Differences:
    """The differences between two executions.

    In each pair of values, that of the first execution comes first. None stands for a value that
    one execution lacks.

    Attributes:
        scores: Both values of each score that differs.
        series: First difference of each series. Equal series are included.
        outputs: First difference of each cell whose outputs differ.
        params: Both values of each param that differs.
        environment: Both values of each fact of the environment that differs.
    """

    scores: Mapping[str, tuple[float | None, float | None]]
    series: Mapping[str, Parting]
    outputs: Sequence[OutputDifference]
    params: Mapping[str, tuple[Any, Any]]
    environment: Mapping[str, tuple[str | None, str | None]]

    @property
    def has_equal_numbers(self) -> bool:
        """Whether all scores, and all points of all series, are equal bit for bit."""
        return not self.scores and all(parting.step is None for parting in self.series.values())

    @property
    def agrees_in_kind(self) -> bool:
        """Whether both executions have scores of the same names, and outputs of the same types.

        Their values may differ.
        """
        has_both = all(None not in pair for pair in self.scores.values())
        return has_both and all(difference.is_same_kind for difference in self.outputs)

    @property
    def distance(self) -> float:
        """Largest relative distance of two compared numbers.

        Infinite if a score or point is missing in one execution, or differs and is not finite.
        """
        distances = [_distance(*pair) for pair in self.scores.values()]
        distances += [parting.distance for parting in self.series.values()]
        return max(distances, default=0.0)

    def numbers_in_words(self) -> list[str]:
        """Return a text for each score that differs.

        If series differ, the first text is for the series with the earliest difference.
        """
        found = [f"{name} {change(*pair)}" for name, pair in self.scores.items()]
        apart = [
            (parting.step, name)
            for name, parting in self.series.items()
            if parting.step is not None
        ]
        if apart:
            _, name = min(apart)
            found.insert(0, f"{name}: {self.series[name]}")
        return found

    def environment_in_words(self) -> list[str]:
        """Return the differences of the environment as texts.

        If there are more than eight differences, a last text counts those after the eighth.
        """
        found = [f"{name}: {change(*pair)}" for name, pair in self.environment.items()]
        if len(found) > _MOST_LISTED:
            found[_MOST_LISTED:] = [f"and {len(found) - _MOST_LISTED} more"]
        return found

    def __str__(self) -> str:
        """Return the first difference of series, scores or outputs in words.

        Returns:
            An empty text if there is no difference.
        """
        found = self.numbers_in_words() or [str(difference) for difference in self.outputs]
        return found[0] if found else ""

    def to_json(self) -> dict[str, Any]:
        """Return the differences as JSON data: a part of what `diff` and `replay` print as JSON.

        Infinity and NaN become texts, because JSON lacks them.
        """
        data: dict[str, Any] = as_json(asdict(self))
        return data


def compare(a: Execution, b: Execution) -> Differences:
    """Return the differences between two executions of one notebook."""
    environment = {}
    if a.environment and b.environment:
        environment = _changed(a.environment, b.environment)
    return Differences(
        scores=_changed(a.scores, b.scores),
        series={
            name: _parting(a.series.get(name, ()), b.series.get(name, ()))
            for name in {**a.series, **b.series}
        },
        outputs=tuple(_output_differences(a.cells, b.cells)),
        params=_changed(a.params, b.params),
        environment=environment,
    )


def change(first: object, second: object) -> str:
    """Return the change of a value as text for people, such as `1 → 2`."""
    if isinstance(first, float) and isinstance(second, float):
        return f"{first!r} → {second!r} ({second - first:+.3g})"
    return " → ".join(_NONE if value is None else str(value) for value in (first, second))


def _distance(first: float | None, second: float | None) -> float:
    """Return the distance of two numbers, relative to the one with the larger absolute value.

    Returns:
        Infinity if one of the numbers is missing or not finite.
    """
    if first is None or second is None:
        return math.inf
    if not math.isfinite(first) or not math.isfinite(second):
        return math.inf
    largest = max(abs(first), abs(second))
    return abs(first / largest - second / largest) if largest else 0.0


def _changed(first: Mapping[Any, Any], second: Mapping[Any, Any]) -> dict[Any, tuple[Any, Any]]:
    changed = {}
    for key in {**first, **second}:
        before, after = first.get(key), second.get(key)
        if repr(before) != repr(after):  # As text, because NaN does not equal itself.
            changed[key] = before, after
    return changed


def _parting(first: Points, second: Points) -> Parting:
    n_equal = _n_equal(first, second)
    next_of_first = dict(first[n_equal : n_equal + 1])
    next_of_second = dict(second[n_equal : n_equal + 1])
    if not next_of_first and not next_of_second:
        return Parting(n_equal=n_equal)
    step = min(next_of_first | next_of_second)
    changed = _changed(dict(first), dict(second))
    distances = [_distance(*pair) for pair in changed.values()]
    return Parting(
        n_equal=n_equal,
        step=step,
        first=next_of_first.get(step),
        second=next_of_second.get(step),
        distance=max(distances, default=0.0),
    )


def _n_equal(first: Sequence[object], second: Sequence[object]) -> int:
    """Return how many elements at the beginning of two sequences are equal."""
    n_equal = 0
    for a, b in zip(first, second, strict=False):
        if repr(a) != repr(b):
            break
        n_equal += 1
    return n_equal


# --- outputs -------------------------------------------------------------------------------------

#: Type of an output, and its content by MIME type.
_Output = tuple[str, Mapping[str, str]]


def _output_differences(
    first: Sequence[Mapping[str, Any]], second: Sequence[Mapping[str, Any]]
) -> Iterator[OutputDifference]:
    cells = itertools.zip_longest(first, second, fillvalue=dict[str, Any]())
    for position, (cell, other_cell) in enumerate(cells, start=1):
        outputs, others = _outputs_in(cell), _outputs_in(other_cell)
        if outputs == others:
            continue
        line, text, other_text = _first_change(_lines(outputs), _lines(others))
        yield OutputDifference(
            cell=position,
            is_same_kind=_kinds(outputs) == _kinds(others),
            line=line,
            first=text,
            second=other_text,
        )


def _kinds(outputs: Sequence[_Output]) -> list[tuple[str, list[str]]]:
    return [(kind, list(data)) for kind, data in outputs]


def _first_change(first: Sequence[str], second: Sequence[str]) -> tuple[int | None, str, str]:
    """Return the number of the first line that differs, from 1, and both versions of it.

    The number is None if all lines are equal.
    """
    lines = itertools.zip_longest(first, second, fillvalue="")
    for number, (line, other) in enumerate(lines, start=1):
        if line != other:
            return number, line, other
    return None, "", ""


def _outputs_in(cell: Mapping[str, Any]) -> list[_Output]:
    """Return the outputs of a cell in an order that is the same in all executions.

    ipykernel sends the text of stdout and stderr in pieces, whose order depends on timing. So all
    text that a stream prints between two displays is joined, and the streams are sorted by name.
    """
    found: list[_Output] = []
    printed: dict[str, str] = {}
    for output in cell.get("outputs", ()):
        if output["output_type"] == "stream":
            name = output["name"]
            printed[name] = printed.get(name, "") + _joined(output["text"])
        else:
            found += [*_streams(printed), _display(output)]
            printed = {}
    return [*found, *_streams(printed)]


def _streams(printed: Mapping[str, str]) -> Iterator[_Output]:
    for name, text in sorted(printed.items()):
        own = _NATIVE_LOG.sub("", text)
        if own:
            yield name, {"text": _masked(own)}


def _display(output: Mapping[str, Any]) -> _Output:
    data = dict(output.get("data", {}))
    if output["output_type"] == "error":
        # Leave out the traceback: its file names and line numbers differ between kernels.
        data["error"] = f"{output['ename']}: {output['evalue']}"
    if _WIDGET_VIEW in data:
        data[_WIDGET_VIEW] = "a widget"
    texts = {mime: _joined(part) for mime, part in sorted(data.items())}
    for mime, text in texts.items():
        if not _is_picture(mime):
            texts[mime] = _masked(text)
    return output["output_type"], texts


def _is_picture(mime: str) -> bool:
    return mime.startswith(("image/", "audio/", "video/")) and mime != "image/svg+xml"


def _joined(part: Any) -> str:
    """Return the content of an output as text. A notebook file may store it as a list of lines."""
    if isinstance(part, list) and all(isinstance(line, str) for line in part):
        return "".join(part)
    return part if isinstance(part, str) else json.dumps(part, sort_keys=True)


def _masked(text: str) -> str:
    text = _COLOURS.sub("", text)
    text = _PROGRESS_BAR.sub(lambda bar: _STATE_OF_BAR.sub("…", bar[0]), text)
    text = _PLACE.sub(r"\1", text)
    return _VOLATILE.sub("…", text)


def _lines(outputs: Sequence[_Output]) -> list[str]:
    lines: list[str] = []
    for _, data in outputs:
        for mime in _TEXTS:
            lines += data.get(mime, "").rstrip("\n").splitlines()
    return lines


def _quoted(first: str, second: str) -> Iterator[str]:
    """Yield two lines as quoted texts, each cut to the part around their first difference."""
    n_equal = _n_equal(first, second)
    start = max(0, n_equal - _QUOTED_CHARACTERS // 3)
    for text in (first, second):
        part = text[start : start + _QUOTED_CHARACTERS]
        yield repr(part) if text else _NONE
