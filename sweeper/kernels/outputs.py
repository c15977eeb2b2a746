"""A cell's outputs as a reader sees them: one piece of text per stream, overwritten text gone.

As nbclient does it, with two differences: a line of megabytes takes no longer than many short
ones (its regular expressions take the square of a line's length), and a display that is updated in
a later cell is found although outputs before it were joined.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nbformat import NotebookNode


def joined(outputs: Sequence[NotebookNode]) -> list[NotebookNode]:
    """All text of a stream in the place of its first piece; standard output before errors."""
    kept: list[NotebookNode] = []
    pieces: dict[str, list[str]] = {}
    streams: dict[str, NotebookNode] = {}
    for output in outputs:
        if output.output_type != "stream":
            kept.append(output)
            continue
        if output.name not in streams:
            streams[output.name] = output
            kept.append(output)
        pieces.setdefault(output.name, []).append(output.text)
    for name, output in streams.items():
        output.text = as_shown("".join(pieces[name]))
    for index in range(len(kept) - 1):
        if [_stream(output) for output in kept[index : index + 2]] == ["stderr", "stdout"]:
            kept[index], kept[index + 1] = kept[index + 1], kept[index]
    return kept


def as_shown(text: str) -> str:
    """Text without what a carriage return has overwritten."""
    if "\r" not in text:
        return text
    # A return at the end of a line overwrites nothing.
    return "\n".join(line[line.rfind("\r", 0, -1) + 1 :] for line in text.split("\n"))


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


def notice(said: str) -> NotebookNode:
    """An output of ours, plainly not the notebook's."""
    return NotebookNode(output_type="stream", name="stderr", text=f"\n[sweeper: {said}]\n")


def _stream(output: NotebookNode) -> str:
    return str(output.name) if output.output_type == "stream" else ""
