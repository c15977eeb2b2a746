"""Scores from an executed notebook, by every source that the contract names.

Works on the file's content alone, so that scraping again from disk gives the same floats. The
sources, first one wins: `report`/`score`, scrapbook's `glue`, papermill's old `record`, the
variable or pattern named in the parameters file, a top-level variable of the objective's name.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from .reporting import decode_float

Series = dict[str, list[tuple[int, float]]]


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
    series: Series = {
        name: list(zip(s["steps"], map(decode_float, s["values"]), strict=True))
        for name, s in told.get("series", {}).items()
    }
    finals = {name: decode_float(value) for name, value in told.get("finals", {}).items()}
    variables = {name: decode_float(value) for name, value in told.get("variables", {}).items()}
    reported = {*series, *finals}

    displayed = _displayed(node["cells"])
    finals = {**{k: v for k, v in displayed.items() if k not in reported}, **finals}
    for name, source in sources.items():
        if name in series or name in finals:
            continue
        if source.pattern is not None:
            series.update(_printed(node["cells"], name, source.pattern))
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
        return math.fsum(value / len(values) for value in values)


def _displayed(cells: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Numbers shown by scrapbook's `glue`, and below those by papermill's old `record`."""
    glued: dict[str, float] = {}
    recorded: dict[str, float] = {}
    for data in (o["data"] for cell in cells for o in cell.get("outputs", ()) if "data" in o):
        for mime, content in data.items():
            if mime.startswith("application/scrapbook.scrap.") and isinstance(content, Mapping):
                glued.update(_numbers({content.get("name"): content.get("data")}))
            elif mime == "application/papermill.record+json" and isinstance(content, Mapping):
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


def _printed(cells: Iterable[Mapping[str, Any]], name: str, pattern: str) -> Series:
    """Each match in the printed text is a point; its step is its place among the matches."""
    points: list[tuple[int, float]] = []
    for cell in cells:
        for stream in ("stdout", "stderr"):
            text = "".join(
                "".join(o["text"])
                for o in cell.get("outputs", ())
                if o.get("output_type") == "stream" and o.get("name") == stream
            )
            for match in re.finditer(pattern, text, re.MULTILINE):
                try:
                    points.append((len(points), float(match[1])))
                except (TypeError, ValueError):
                    continue  # the group matched something that is no number
    return {name: points} if points else {}
