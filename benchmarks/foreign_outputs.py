"""What a reader sees of an executed notebook, made comparable with another run of it."""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

_WIDGETS = "application/vnd.jupyter.widget-state+json"
#: What differs between any two runs: addresses, processes, times, and ids drawn at random.
_MASKS = [
    (re.compile(r"\x1b\[[0-9;]*m"), ""),
    (re.compile(r"ipykernel_\d+"), "ipykernel_N"),
    (re.compile(r"/\d{4,}\.py"), "/N.py"),
    (re.compile(r"\b0x[0-9a-f]{6,}"), "0xN"),
    (re.compile(r"\b[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}\b"), "ID"),
    (re.compile(r"(?<![0-9A-Za-z+/])[0-9a-f]{32}(?![0-9A-Za-z+/])"), "ID"),
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d([.,]\d+)?"), "DATE"),
    (re.compile(r"CPU times:.*?Wall time: [^\n]*", re.DOTALL), "TIMES"),
    (re.compile(r"\[\d\d:\d\d(<|&lt;)[^]]*\] *"), "[TIMES] "),
    (re.compile(r"\b\d+(\.\d+)? ?(?:min|sec|ms|µs|us|s|it/s|s/it)\b"), "TIME"),
    (re.compile(r"\bPID:? ?\d+|\bpid=\d+"), "PID"),
]
#: Ids that a library gives out once per page; what they are does not matter, which are equal does.
_IDS = [
    re.compile(pattern)
    for pattern in (
        r"altair-viz-[0-9a-f]+",
        r"\bT_[0-9a-f]{5}",
        r"\bsk-container-id-\d+",
        r"\bp\d{4,}\b",
        r"anim[0-9a-f]{32}",
    )
]


class Seen:
    """An executed notebook as its reader sees it.

    Attributes:
        cells: per code cell its source and its outputs, each as a text.
        widgets: how many widget models of each kind the notebook keeps.
        states: the same by their whole states: what bars show, what `Output` caught.
    """

    def __init__(self, path: Path) -> None:
        node = nbformat.read(str(path), as_version=4)
        ids: dict[str, str] = {}
        self.cells = [
            (
                str(cell.source),
                [
                    f"count {cell.get('execution_count')}",
                    *(_as_text(output, ids) for output in _in_order(cell.get("outputs", []))),
                ],
            )
            for cell in node.cells
            if cell.cell_type == "code"
        ]
        models = node.metadata.get("widgets", {}).get(_WIDGETS, {}).get("state", {})
        self.widgets = Counter(str(model.get("model_name")) for model in models.values())
        self.states = Counter(
            f"{model.get('model_name')} {_masked(json.dumps(model['state'], sort_keys=True), ids)}"
            for model in models.values()
        )


def differences(expected: Seen, found: Seen) -> Iterator[str]:
    """Each cell that looks different, in a line: where, what it is, what it should be."""
    if len(expected.cells) != len(found.cells):
        yield f"{len(found.cells)} cells instead of {len(expected.cells)}"
    for index, ((source, theirs), (_, ours)) in enumerate(
        zip(expected.cells, found.cells, strict=False)
    ):
        if "# Parameters" in source.splitlines()[:1] or theirs == ours:
            continue
        yield f"cell {index} `{_head(source)}`: {_first_difference(theirs, ours)}"
    if expected.widgets != found.widgets:
        yield f"widgets: {_listed(found.widgets)} instead of {_listed(expected.widgets)}"
    elif expected.states != found.states:
        theirs, ours = (
            sorted((each - other).elements())
            for each, other in (
                (expected.states, found.states),
                (found.states, expected.states),
            )
        )
        yield f"widgets: {_first_difference(theirs, ours)}"


def _in_order(outputs: Sequence[NotebookNode]) -> list[NotebookNode]:
    """The outputs with one piece per stream between two displays, standard output first.

    A kernel sends each stream when it likes; only a display brings both up to date.
    """
    kept: list[NotebookNode] = []
    for is_text, run in itertools.groupby(outputs, lambda o: bool(o.output_type == "stream")):
        part = list(run)
        if not is_text:
            kept += part
            continue
        for name in ("stdout", "stderr"):
            if text := "".join(piece.text for piece in part if piece.name == name):
                kept.append(NotebookNode(output_type="stream", name=name, text=text))
    return kept


def _as_text(output: NotebookNode, ids: dict[str, str]) -> str:
    kind = str(output.output_type)
    if kind == "stream":
        return f"{output.name}: {_masked(output.text, ids)}"
    if kind == "error":
        return f"error: {_masked(chr(10).join(output.traceback), ids)}"
    parts = (
        f"{mime} {_masked(data if isinstance(data, str) else json.dumps(data), ids)}"
        for mime, data in sorted(output.data.items())
    )
    return f"{kind}: {' | '.join(parts)}"


def _masked(text: str, ids: dict[str, str]) -> str:
    for pattern, instead in _MASKS:
        text = pattern.sub(instead, text)
    for pattern in _IDS:
        text = pattern.sub(lambda match: ids.setdefault(match[0], f"ID{len(ids)}"), text)
    return text


def _first_difference(expected: Sequence[str], found: Sequence[str]) -> str:
    kinds = [[text.split(":")[0].split(" ")[0] for text in texts] for texts in (expected, found)]
    if kinds[0] != kinds[1]:
        return f"outputs are {kinds[1][1:]} instead of {kinds[0][1:]}"
    theirs, ours = next((a, b) for a, b in zip(expected, found, strict=True) if a != b)
    start = next(
        (i for i, (a, b) in enumerate(zip(theirs, ours, strict=False)) if a != b),
        min(len(theirs), len(ours)),
    )
    kind = theirs.split(" ")[0]
    return f"{kind} {_part(ours, start)!r} instead of {_part(theirs, start)!r}"


def _part(text: str, start: int) -> str:
    return text[max(0, start - 20) : start + 40]


def _head(source: str) -> str:
    lines = [line for line in source.splitlines() if line.strip()]
    return lines[0][:50] if lines else ""


def _listed(counts: dict[str, Any]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items())) or "none"
