"""Compare two executions of one notebook: scores, series, outputs, params and environment.

The proof that forked kernels come to the same, `replay` and `diff` all ask this module. Numbers are
compared to the last bit. Text is compared without what differs between any two processes: times,
rates, addresses, identifiers and how far a progress bar was drawn.
"""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

from .metadata import as_json

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")
Points = Sequence[tuple[int, float]]

#: A line of output is quoted up to this length.
_QUOTED_CHARACTERS = 60
#: So many differences of the environment are listed for people; two machines may have hundreds.
_MOST_LISTED = 8
_NONE = "none"
_TEXTS = ("text/plain", "text", "error")
_WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
_PROGRESS_BAR = re.compile(r"^.*\d%\|.*$", re.MULTILINE)
#: Where a warning was raised, and the line there: a forked kernel repeats those of its imports.
_PLACE = re.compile(r"^\S.*:\d+: (\w*Warning: .*)\n  .*$", re.MULTILINE)
#: What differs between any two processes. Digits before a rate are taken whole (`++`), as otherwise
#: the time grows with the square of their number.
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
    """What one execution of a notebook has come to.

    Attributes:
        cells: of the executed notebook, with their outputs.
        scores: the final value of each score.
        series: the (step, value) pairs of each score that was reported.
        environment: facts that may change results, by their names for people; empty where it is
            not known, and then not compared.
    """

    cells: Sequence[Mapping[str, Any]] = ()
    scores: Mapping[str, float]
    series: Mapping[str, Points]
    params: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parting:
    """Where two series of one score part, and by how much.

    Attributes:
        n_equal: how many points both have alike before.
        step: the first step that differs; None where none does.
        first: the value of the first execution there; None where it has none.
        second: that of the second.
        distance: the largest relative distance of two values at the same step; infinite where one
            of them is missing or not finite.
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
    """The first difference in what a cell put out.

    Attributes:
        cell: its position in the notebook, from 1 on, as the live table counts.
        is_same_kind: whether at least the kinds of its outputs are the same, in the same order.
        line: of its text, from 1 on; None where a picture differs, or whatever else is no text.
        first: that line of the first execution; empty where it has none.
        second: that of the second.
    """

    cell: int
    is_same_kind: bool
    line: int | None
    first: str
    second: str

    def __str__(self) -> str:
        if self.line is None:
            return f"cell {self.cell}: a picture, or another output that is no text, differs"
        quoted = " → ".join(_quoted(self.first, self.second))
        return f"cell {self.cell}, from line {self.line} on: {quoted}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Differences:
    """What differs between two executions; of each pair, the value of the first comes first.

    Attributes:
        scores: those that differ; None for an execution without one.
        series: where each series parts, also of those that are equal.
        outputs: the cells that put out something else.
        params: those that differ; None for one that an execution did not have.
        environment: the facts that differ.
    """

    scores: Mapping[str, tuple[float | None, float | None]]
    series: Mapping[str, Parting]
    outputs: Sequence[OutputDifference]
    params: Mapping[str, tuple[Any, Any]]
    environment: Mapping[str, tuple[str | None, str | None]]

    @property
    def has_equal_numbers(self) -> bool:
        """Whether all scores and steps are equal to the last bit."""
        return not self.scores and all(it.step is None for it in self.series.values())

    @property
    def agrees_in_kind(self) -> bool:
        """Whether both have the same scores, and outputs of the same kinds in the same order."""
        has_both = all(None not in pair for pair in self.scores.values())
        return has_both and all(it.is_same_kind for it in self.outputs)

    @property
    def distance(self) -> float:
        """How far two numbers are apart at most, relatively; infinite where one is missing."""
        of_scores = [_distance(*pair) for pair in self.scores.values()]
        return max([*of_scores, *(it.distance for it in self.series.values())], default=0.0)

    def numbers_in_words(self) -> list[str]:
        """The series that parts at the smallest step, and all scores that differ."""
        found = [f"{name} {change(*pair)}" for name, pair in self.scores.items()]
        apart = [(it.step, name) for name, it in self.series.items() if it.step is not None]
        if apart:
            _, name = min(apart)
            found.insert(0, f"{name}: {self.series[name]}")
        return found

    def environment_in_words(self) -> list[str]:
        """Each fact that differs, and how many more do."""
        found = [f"{name}: {change(*pair)}" for name, pair in self.environment.items()]
        more = len(found) - _MOST_LISTED
        return found[:_MOST_LISTED] + ([f"and {more} more"] if more > 0 else [])

    def __str__(self) -> str:
        """The first difference of scores, steps or outputs in words; empty where there is none."""
        return next(iter([*self.numbers_in_words(), *map(str, self.outputs)]), "")

    def to_json(self) -> dict[str, Any]:
        """The object that `--json` prints; numbers that JSON does not have are text."""
        data: dict[str, Any] = as_json(asdict(self))
        return data


def compare(a: Execution, b: Execution) -> Differences:
    """Find what differs between two executions of one notebook."""
    names = dict.fromkeys([*a.series, *b.series])
    return Differences(
        scores=_changed(a.scores, b.scores),
        series={n: _parting(a.series.get(n, ()), b.series.get(n, ())) for n in names},
        outputs=tuple(_output_differences(a.cells, b.cells)),
        params=_changed(a.params, b.params),
        environment=_changed(a.environment, b.environment)
        if a.environment and b.environment
        else {},
    )


def change(first: object, second: object) -> str:
    """Say how a value has changed, for people."""
    if isinstance(first, float) and isinstance(second, float):
        return f"{first!r} → {second!r} ({second - first:+.3g})"
    return " → ".join(_NONE if value is None else str(value) for value in (first, second))


def _distance(first: float | None, second: float | None) -> float:
    """How far two numbers are apart, relative to the larger; infinite unless both are finite."""
    if first is None or second is None or not (math.isfinite(first) and math.isfinite(second)):
        return math.inf
    largest = max(abs(first), abs(second))
    return abs(first / largest - second / largest) if largest else 0.0


def _changed(
    first: Mapping[_Key, _Value], second: Mapping[_Key, _Value]
) -> dict[_Key, tuple[_Value | None, _Value | None]]:
    pairs = {key: (first.get(key), second.get(key)) for key in {**first, **second}}
    # The representations are compared, because no NaN equals another.
    return {key: pair for key, pair in pairs.items() if repr(pair[0]) != repr(pair[1])}


def _parting(first: Points, second: Points) -> Parting:
    for index, (a, b) in enumerate(itertools.zip_longest(first, second)):
        if repr(a) != repr(b):
            step = min(point[0] for point in (a, b) if point is not None)
            at = [point[1] if point is not None and point[0] == step else None for point in (a, b)]
            apart = _changed(dict(first), dict(second)).values()
            far = max((_distance(*pair) for pair in apart), default=0.0)
            return Parting(n_equal=index, step=step, first=at[0], second=at[1], distance=far)
    return Parting(n_equal=len(first))


# --- outputs -------------------------------------------------------------------------------------

#: One output: its kind, and its content by MIME type.
_Output = tuple[str, Mapping[str, str]]


def _output_differences(
    first: Sequence[Mapping[str, Any]], second: Sequence[Mapping[str, Any]]
) -> Iterator[OutputDifference]:
    none: Mapping[str, Any] = {}
    for position, cells in enumerate(itertools.zip_longest(first, second, fillvalue=none), 1):
        a, b = (list(_outputs_in(cell.get("outputs", ()))) for cell in cells)
        if a == b:
            continue
        is_alike = [(kind, data.keys()) for kind, data in a] == [(k, d.keys()) for k, d in b]
        lines = itertools.zip_longest(_lines(a), _lines(b), fillvalue="")
        parted = next(((n, x, y) for n, (x, y) in enumerate(lines, 1) if x != y), (None, "", ""))
        yield OutputDifference(
            cell=position,
            is_same_kind=is_alike,
            line=parted[0],
            first=parted[1],
            second=parted[2],
        )


def _outputs_in(outputs: Sequence[Mapping[str, Any]]) -> Iterator[_Output]:
    """The outputs of a cell; of the two streams, only what lies between two displays is in order.

    ipykernel sends each stream by itself, several times a second.
    """
    is_stream = [output["output_type"] == "stream" for output in outputs]
    for are_streams, run in itertools.groupby(range(len(outputs)), is_stream.__getitem__):
        part = [outputs[index] for index in run]
        if not are_streams:
            yield from map(_display, part)
            continue
        for name in sorted({str(output["name"]) for output in part}):
            text = "".join(_joined(o["text"]) for o in part if o["name"] == name)
            yield name, {"text": _masked(text)}


def _display(output: Mapping[str, Any]) -> _Output:
    data = dict(output.get("data", {}))
    if output["output_type"] == "error":  # its traceback has places in it, which may move
        data["error"] = f"{output['ename']}: {output['evalue']}"
    if _WIDGET_VIEW in data:
        data[_WIDGET_VIEW] = "a widget"
    return output["output_type"], {
        mime: text if _is_picture(mime) else _masked(text)
        for mime, text in ((mime, _joined(part)) for mime, part in sorted(data.items()))
    }


def _is_picture(mime: str) -> bool:
    return mime.startswith(("image/", "audio/", "video/")) and mime != "image/svg+xml"


def _joined(part: Any) -> str:
    """A part of an output as text; a notebook's file may have it as a list of lines."""
    if isinstance(part, list) and all(isinstance(line, str) for line in part):
        return "".join(part)
    return part if isinstance(part, str) else json.dumps(part, sort_keys=True)


def _masked(text: str) -> str:
    bars = _PROGRESS_BAR.sub(lambda bar: re.sub(r"[\d.,:?█▏▎▍▌▋▊▉# ]+", "…", bar[0]), text)
    return _VOLATILE.sub("…", _PLACE.sub(r"\1", bars))


def _lines(outputs: Sequence[_Output]) -> list[str]:
    texts = [data[mime].rstrip("\n") for _, data in outputs for mime in _TEXTS if data.get(mime)]
    return "\n".join(texts).splitlines()


def _quoted(first: str, second: str) -> Iterator[str]:
    """Quote two lines; of long ones, the part from shortly before their difference."""
    place = next((i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), 0)
    start = max(0, place - _QUOTED_CHARACTERS // 3)
    for text in (first, second):
        part = text[start : start + _QUOTED_CHARACTERS]
        yield repr(part) if text else _NONE
