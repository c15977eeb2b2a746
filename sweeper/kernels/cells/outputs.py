"""Join the pieces of a cell's printed text, and remove overwritten text. Keep the order.

A kernel sends text every 0.2 s. Adjacent pieces of one stream become one output, as in Jupyter.
Text and displays keep their order. nbclient's `coalesce_streams` cannot do this: it moves all text
of a stream to its first piece, and its time grows with the square of a line's length.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from nbformat import NotebookNode

from ...errors import shortened

#: A lone surrogate that marks the places where pieces of a stream were joined. No printed text
#: contains this character, because no file can contain it.
_BREAK = "\ud800"
#: Types of messages that become an output.
_OUTPUTS = ("stream", "error", "display_data", "execute_result", "update_display_data")
#: Parts of an output whose size depends on what a notebook prints.
_PARTS = ("text", "data", "metadata", "ename", "evalue", "traceback")


def joined(outputs: Sequence[NotebookNode]) -> list[NotebookNode]:
    """Return the outputs in their order, with adjacent text of one stream as one piece.

    As in a terminal, a carriage return overwrites the line that its stream has begun, even if the
    other stream has printed in between. So only the last state of a progress bar among printed
    lines is left. As in Jupyter, a display ends the line: what a progress bar showed above a figure
    is kept.
    """
    kept: list[NotebookNode] = []
    for is_text, run in itertools.groupby(outputs, _is_text):
        if is_text:
            kept += _joined_text(list(run))
        else:
            kept += run
    return kept


def _joined_text(pieces: Sequence[NotebookNode]) -> list[NotebookNode]:
    """Join pieces of text that have no display in between."""
    for name in {piece.name for piece in pieces}:
        stream = [piece for piece in pieces if piece.name == name]
        texts = without_overwritten(piece.text for piece in stream)
        for piece, text in zip(stream, texts, strict=True):
            piece.text = text
    visible = [piece for piece in pieces if piece.text]
    kept: list[NotebookNode] = []
    for _, run in itertools.groupby(visible, lambda piece: piece.name):
        first, *others = run
        first.text += "".join(piece.text for piece in others)
        kept.append(first)
    return kept


def without_overwritten(pieces: Iterable[str]) -> list[str]:
    """Remove from each piece of a stream the text that carriage returns overwrite, in linear time.

    A carriage return at the end of its line overwrites nothing.
    """
    text = _BREAK.join(piece.replace(_BREAK, "") for piece in pieces)
    left: list[str] = []
    for line in text.split("\n"):
        last = len(line.rstrip(_BREAK)) - 1
        begin = line.rfind("\r", 0, last) + 1
        breaks = line.count(_BREAK, 0, begin)
        left.append(_BREAK * breaks + line[begin:])
    return "\n".join(left).split(_BREAK)


def moved(
    places: dict[str, dict[int, list[int]]],
    cell_index: int,
    before: Sequence[NotebookNode],
    after: Sequence[NotebookNode],
) -> None:
    """Correct the places of a cell's displays after its outputs were joined.

    Args:
        places: Places of each display's outputs, by display id, then by cell. Changed in place.
        cell_index: Index of the cell.
        before: Outputs before they were joined.
        after: Outputs after they were joined.
    """
    now: dict[int, Any] = {id(output): index for index, output in enumerate(after)}
    for by_cell in places.values():
        if cell_index in by_cell:
            old = by_cell[cell_index]
            by_cell[cell_index] = [now[id(before[i])] for i in old if i < len(before)]


def size(kind: str, content: Mapping[str, Any]) -> int:
    """Return about how many bytes a message adds to its cell. 0 if it makes no output."""
    if kind not in _OUTPUTS:
        return 0
    return sum(_length(content[part]) for part in _PARTS if part in content)


def _length(part: Any) -> int:
    if isinstance(part, str):
        return len(part)
    values = part.values() if isinstance(part, Mapping) else part
    texts = (value if isinstance(value, str) else json.dumps(value) for value in values)
    return sum(map(len, texts))


def shorten_error(content: dict[str, Any]) -> None:
    """Remove the middle of an exception's message and of its traceback."""
    content["evalue"] = shortened(content["evalue"])
    content["traceback"] = [shortened("\n".join(content["traceback"]))]


def notice(text: str) -> NotebookNode:
    """Return an output that plainly comes from the sweep and not from the notebook."""
    return NotebookNode(output_type="stream", name="stderr", text=f"\n[sweeper: {text}]\n")


def _is_text(output: NotebookNode) -> bool:
    return bool(output.output_type == "stream")
