"""Join a cell's outputs: text in few pieces, overwritten text removed, the order kept.

A kernel sends text in pieces of a fifth of a second. Pieces that follow each other in one stream
become one, as Jupyter shows them; text and displays keep their order. Unlike nbclient's
`coalesce_streams`, which moves all text of a stream to the place of its first piece, and takes the
square of a line's length.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from nbformat import NotebookNode

from ...errors import shortened

#: Marks where pieces of a stream were joined: half of a character, which no file can have.
_BREAK = "\ud800"
#: The parts of an output that grow with what a notebook puts out.
_PARTS = ("text", "data", "metadata", "ename", "evalue", "traceback")


def joined(outputs: Sequence[NotebookNode]) -> list[NotebookNode]:
    """The outputs in their order; adjacent text of one stream is one piece.

    A carriage return overwrites the line that its stream has begun, also where the other stream has
    printed in between, as in a terminal: of a progress bar among printed lines its last drawing is
    left. A display ends the line, as in Jupyter: what the bar showed above a figure stays there.
    """
    kept: list[NotebookNode] = []
    for is_text, run in itertools.groupby(outputs, lambda output: bool(_stream(output))):
        part = list(run)
        kept += _joined_text(part) if is_text else part
    return kept


def _joined_text(pieces: Sequence[NotebookNode]) -> list[NotebookNode]:
    """The same for pieces of text with no display among them."""
    left = [""] * len(pieces)
    for name in {_stream(piece) for piece in pieces}:
        places = [place for place, piece in enumerate(pieces) if _stream(piece) == name]
        texts = without_overwritten(pieces[place].text for place in places)
        for place, text in zip(places, texts, strict=True):
            left[place] = text
    visible = ((piece, text) for piece, text in zip(pieces, left, strict=True) if text)
    kept: list[NotebookNode] = []
    for _, run in itertools.groupby(visible, lambda pair: _stream(pair[0])):
        adjacent = list(run)
        first, _ = adjacent[0]
        first.text = "".join(text for _, text in adjacent)
        kept.append(first)
    return kept


def without_overwritten(pieces: Iterable[str]) -> list[str]:
    """Remove from each piece of a stream what carriage returns overwrite; the time is linear.

    A return that ends its line overwrites nothing.
    """
    left = []
    for line in _BREAK.join(piece.replace(_BREAK, "") for piece in pieces).split("\n"):
        end = 1 + line.rfind("\r", 0, len(line.rstrip(_BREAK)) - 1)
        left.append(_BREAK * line.count(_BREAK, 0, end) + line[end:])
    return "\n".join(left).split(_BREAK)


def moved(
    places: dict[str, dict[int, list[int]]],
    cell_index: int,
    before: Sequence[NotebookNode],
    after: Sequence[NotebookNode],
) -> None:
    """Correct where the displays of a cell are found, once its outputs were joined.

    Args:
        places: from a display's id to the places of its outputs, by cell; changed in place.
    """
    now: dict[int, Any] = {id(output): index for index, output in enumerate(after)}
    for by_cell in places.values():
        if cell_index in by_cell:
            old = by_cell[cell_index]
            by_cell[cell_index] = [now[id(before[i])] for i in old if i < len(before)]


def size(kind: str, content: Mapping[str, Any]) -> int:
    """About how many bytes a message puts into its cell; 0 for one without an output."""
    displays = ("display_data", "execute_result", "update_display_data")
    if kind not in ("stream", "error", *displays):
        return 0
    return sum(_length(content[part]) for part in _PARTS if part in content)


def _length(part: Any) -> int:
    if isinstance(part, str):
        return len(part)
    values = part.values() if isinstance(part, Mapping) else part
    return sum(len(it) if isinstance(it, str) else len(json.dumps(it)) for it in values)


def shorten_error(content: dict[str, Any]) -> None:
    """Leave out the middle of an exception's message and of its traceback."""
    content["evalue"] = shortened(content["evalue"])
    content["traceback"] = [shortened("\n".join(content["traceback"]))]


def notice(text: str) -> NotebookNode:
    """An output that is plainly from the sweep and not from the notebook."""
    return NotebookNode(output_type="stream", name="stderr", text=f"\n[sweeper: {text}]\n")


def _stream(output: NotebookNode) -> str:
    return str(output.name) if output.output_type == "stream" else ""
