"""Join the pieces of a cell's printed text, and remove overwritten text.

A kernel sends printed text every 0.2 s. Adjacent pieces of one stream become one output, as in
Jupyter. Text and displays keep their order. nbclient's `coalesce_streams` does not keep the order:
it moves all text of a stream to the first piece. It is also slow, because its time grows with the
square of a line's length.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from nbformat import NotebookNode

from ...errors import shortened

#: Character that marks where two pieces of a stream were joined. It is removed from printed text:
#: it is a lone surrogate, which UTF-8 cannot encode, so no notebook can be saved with it.
_BREAK = "\ud800"
#: Matches a character, carriage returns, and a character of the text that overwrites the line.
_OVERWRITTEN = re.compile(r"[^\r\n]\r+[^\r\n]")
#: Types of messages that become an output.
_OUTPUTS = ("stream", "error", "display_data", "execute_result", "update_display_data")
#: Parts of an output whose size depends on what a notebook prints.
_PARTS = ("text", "data", "metadata", "ename", "evalue", "traceback")


def joined(outputs: Sequence[NotebookNode]) -> list[NotebookNode]:
    """Return the outputs in their order, with adjacent pieces of one stream joined.

    As in a terminal, a carriage return overwrites the unfinished line of its stream, even if the
    other stream has printed in between. So only the last state of a progress bar is kept. As in
    Jupyter, a display ends the line, so the state of a progress bar above a figure is kept too.
    """
    kept: list[NotebookNode] = []
    for is_text, run in itertools.groupby(outputs, _is_text):
        if is_text:
            kept += _joined_text(list(run))
        else:
            kept += run
    return kept


def _joined_text(pieces: Sequence[NotebookNode]) -> list[NotebookNode]:
    """Join the pieces of each stream, in text outputs that follow each other without a display."""
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


def redrawn(outputs: Sequence[NotebookNode]) -> list[str]:
    """Return the names of streams, such as `stderr`, in which a carriage return overwrote text."""
    pieces: dict[str, list[str]] = {}
    for output in filter(_is_text, outputs):
        pieces.setdefault(output.name, []).append(output.text)
    return [name for name, texts in pieces.items() if _OVERWRITTEN.search("".join(texts))]


def without_overwritten(pieces: Iterable[str]) -> list[str]:
    """Remove from the pieces of a stream the text that carriage returns overwrite, in linear time.

    A carriage return at the end of a line overwrites nothing.
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
    """Correct the recorded positions of a cell's displays after its outputs were joined.

    Args:
        places: Positions of each display's outputs, by display id, then by the index of the cell.
            This mapping is changed in place.
        cell_index: Index of the cell whose outputs were joined.
        before: Outputs before they were joined.
        after: Outputs after they were joined.
    """
    now = {id(output): position for position, output in enumerate(after)}
    for by_cell in places.values():
        if cell_index in by_cell:
            displays = [before[old] for old in by_cell[cell_index] if old < len(before)]
            by_cell[cell_index] = [now[id(display)] for display in displays]


def size(kind: str, content: Mapping[str, Any]) -> int:
    """Return about how many bytes a message adds to a cell's outputs. 0 if it has no output.

    Args:
        kind: Type of the message or of the output, such as `stream`.
        content: Content of the message, or the output.
    """
    if kind not in _OUTPUTS:
        return 0
    return sum(_length(content[part]) for part in _PARTS if part in content)


def _length(part: Any) -> int:
    if isinstance(part, str):
        return len(part)
    values = part.values() if isinstance(part, Mapping) else part
    length = 0
    for value in values:
        length += len(value if isinstance(value, str) else json.dumps(value))
    return length


def shorten_error(content: dict[str, Any]) -> None:
    """Shorten an exception's message and its traceback, by removing the middle of each."""
    content["evalue"] = shortened(content["evalue"])
    content["traceback"] = [shortened("\n".join(content["traceback"]))]


def notice(text: str) -> NotebookNode:
    """Return an output with a text that is marked as written by the sweep, not by the notebook."""
    return NotebookNode(output_type="stream", name="stderr", text=f"\n[sweeper: {text}]\n")


def _is_text(output: NotebookNode) -> bool:
    return bool(output.output_type == "stream")
