"""What differs between two trials of a study: params, scores, series, and what their cells put out.

Two trials with the same params and the same seed should differ in nothing but times.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ..notebooks import METADATA
from ..trials import TrialRecord, value_text
from .lookup import ExistingStudy

#: How much of a line of output is quoted.
_QUOTED = 60
_NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parting:
    """Where two series of one score part.

    Attributes:
        steps: how many steps both have alike before.
        step: the first step that differs; None where none does.
        first: the value of the first trial there; None where it has none.
        second: that of the second.
    """

    steps: int
    step: int | None = None
    first: float | None = None
    second: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CellDifference:
    """The first difference in what a cell put out.

    Attributes:
        cell: its position in the notebook, from 1 on, as the live table counts.
        line: of its text, from 1 on; None where a picture differs, or whatever else is no text.
        first: that line of the first trial; empty where it has none.
        second: that of the second.
    """

    cell: int
    line: int | None
    first: str
    second: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Differences:
    """What differs between two trials; each pair has the value of the first trial first.

    Attributes:
        params: those that differ, as text.
        scores: those that differ; None for a trial without one.
        facts: state, seed and attempt, where they differ.
        series: where each series parts, by the score's name.
        cells: the cells that put out something else.
    """

    run_ids: tuple[str, str]
    params: Mapping[str, tuple[str, str]]
    scores: Mapping[str, tuple[float | None, float | None]]
    facts: Mapping[str, tuple[str, str]]
    series: Mapping[str, Parting]
    cells: Sequence[CellDifference]

    def to_json(self) -> dict[str, Any]:
        """The object that `--json` prints; numbers that JSON does not have are text."""
        return asdict(self, dict_factory=_finite)

    def lines(self) -> list[str]:
        """The same in words."""
        first, second = self.run_ids
        lines = [f"{first} and {second}:"]
        lines += [f"  {name}: {a} → {b}" for name, (a, b) in self.facts.items()]
        lines += ["params", *(f"  {name}: {a} → {b}" for name, (a, b) in self.params.items())]
        lines += ["scores", *(f"  {name}: {_change(*pair)}" for name, pair in self.scores.items())]
        lines += [
            "series",
            *(f"  {name}: {parting_in_words(it)}" for name, it in self.series.items()),
        ]
        lines += ["outputs", *(f"  {_cell(it)}" for it in self.cells)]
        return _without_empty(lines, "params", "scores", "series", "outputs")


def _finite(items: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """A record as JSON data."""
    return {name: _finite_value(value) for name, value in items}


def _finite_value(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite_value(item) for name, item in value.items()}
    if isinstance(value, tuple):
        return [_finite_value(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def differences(existing: ExistingStudy, first: str, second: str) -> Differences:
    """Compare two trials of a study.

    Raises:
        StudyError: the study has no such trial.
        NotebookError: an executed notebook is missing.
    """
    from ..notebooks import read_executed
    from ..notebooks.scores import scrape

    a, b = existing.record(first), existing.record(second)
    settings = existing.settings
    nodes = [read_executed(record.notebook) for record in (a, b)]
    found = [
        scrape(node, sources=settings.scores, objectives=settings.objective).series
        for node in nodes
    ]
    names = dict.fromkeys([*found[0], *found[1]])
    return Differences(
        run_ids=(a.run_id, b.run_id),
        params=_changed(_texts(a.params), _texts(b.params)),
        scores={
            name: (a.scores.get(name), b.scores.get(name))
            for name in dict.fromkeys([*a.scores, *b.scores])
            if repr(a.scores.get(name)) != repr(b.scores.get(name))  # NaN is NaN
        },
        facts=_changed(*(_facts(*it) for it in zip((a, b), nodes, strict=True))),
        series={name: parting(found[0].get(name, []), found[1].get(name, [])) for name in names},
        cells=list(_cells(nodes[0].cells, nodes[1].cells)),
    )


def _texts(params: Mapping[str, Any]) -> dict[str, str]:
    return {name: value_text(value) for name, value in params.items()}


def _facts(record: TrialRecord, node: Mapping[str, Any]) -> dict[str, str]:
    data = node["metadata"].get(METADATA, {}).get("data", {})
    return {
        "state": str(record.state),
        "seed": str(record.seed),
        "attempt": str(record.attempt),
        "message": record.message or _NONE,
        "data": str(data.get("version", _NONE)),
    }


def _changed(first: Mapping[str, str], second: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    return {
        name: (first.get(name, _NONE), second.get(name, _NONE))
        for name in dict.fromkeys([*first, *second])
        if first.get(name) != second.get(name)
    }


def parting(first: Sequence[tuple[int, float]], second: Sequence[tuple[int, float]]) -> Parting:
    """Where two series part; their points are (step, value) pairs."""
    for index, (a, b) in enumerate(itertools.zip_longest(first, second)):
        # The representation is compared, because no NaN equals another.
        if repr(a) != repr(b):
            step = min(point[0] for point in (a, b) if point is not None)
            at = [point[1] if point is not None and point[0] == step else None for point in (a, b)]
            return Parting(steps=index, step=step, first=at[0], second=at[1])
    return Parting(steps=len(first))


def _cells(
    first: Sequence[Mapping[str, Any]], second: Sequence[Mapping[str, Any]]
) -> Iterable[CellDifference]:
    for position, cells in enumerate(itertools.zip_longest(first, second), 1):
        outputs_a, outputs_b = ([] if cell is None else cell.get("outputs", []) for cell in cells)
        lines = itertools.zip_longest(_lines(outputs_a), _lines(outputs_b), fillvalue="")
        parted = next(((n, x, y) for n, (x, y) in enumerate(lines, 1) if x != y), None)
        if parted is not None:
            number, x, y = parted
            yield CellDifference(cell=position, line=number, first=x, second=y)
        elif _pictures(outputs_a) != _pictures(outputs_b):
            yield CellDifference(cell=position, line=None, first="", second="")


def _lines(outputs: Iterable[Mapping[str, Any]]) -> list[str]:
    """The text of a cell's outputs."""
    texts = []
    for output in outputs:
        if output["output_type"] == "stream":
            texts.append(output["text"])
        elif output["output_type"] == "error":
            texts.append(f"{output['ename']}: {output['evalue']}")
        else:
            texts.append(output.get("data", {}).get("text/plain", ""))
    return "\n".join(text.rstrip("\n") for text in texts if text).splitlines()


def _pictures(outputs: Iterable[Mapping[str, Any]]) -> list[Any]:
    """What a cell's outputs have beside text."""
    return [
        (kind, data)
        for output in outputs
        for kind, data in output.get("data", {}).items()
        if not kind.startswith("text/")
    ]


# --- in words ------------------------------------------------------------------------------------


def _change(first: float | None, second: float | None) -> str:
    if first is None or second is None:
        return " → ".join(_NONE if value is None else repr(value) for value in (first, second))
    return f"{first!r} → {second!r} ({second - first:+.3g})"


def parting_in_words(it: Parting) -> str:
    """Say where two series part, for people."""
    if it.step is None:
        return f"equal at all {it.steps} points"
    alike = f"equal at the first {it.steps} points; " if it.steps else ""
    return f"{alike}from step {it.step} on {_change(it.first, it.second)}"


def _cell(it: CellDifference) -> str:
    if it.line is None:
        return f"cell {it.cell}: a picture, or another output that is no text, differs"
    first, second = (_quoted(text) for text in (it.first, it.second))
    return f"cell {it.cell}, from line {it.line} on: {first} → {second}"


def _quoted(text: str) -> str:
    short = text if len(text) <= _QUOTED else text[: _QUOTED - 1] + "…"
    return f"'{short}'" if text else _NONE


def _without_empty(lines: Sequence[str], *headings: str) -> list[str]:
    """The lines, where headings without a line below say that there is no difference."""
    result = []
    for line, following in itertools.pairwise([*lines, ""]):
        is_empty = line in headings and not following.startswith("  ")
        result.append(f"{line}: no difference" if is_empty else line)
    return result
