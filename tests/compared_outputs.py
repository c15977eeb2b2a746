"""Executed notebooks as tests compare them: cell by cell, in order, times and addresses masked."""

from __future__ import annotations

import itertools
import re
from typing import Any

import nbformat
from nbclient.client import _RGX_CARRIAGERETURN
from nbformat import NotebookNode
from nbformat.v4 import new_output

_MASKS = [
    (re.compile(r"ipykernel_\d+"), "ipykernel_N"),
    (re.compile(r"/tmp/[\w./-]*/(?=\d+\.py)"), "/tmp/"),
    (re.compile(r"\b0x[0-9a-f]{6,}"), "0xN"),
    (re.compile(r"/\d{6,}\.py"), "/N.py"),
    (re.compile(r"CPU times:.*?Wall time: .*?(?=\\n)"), "CPU times"),
    (re.compile(r"\[\d\d:\d\d<[^]]*\] *"), "[time]"),
]


def masked(text: str) -> str:
    for pattern, instead in _MASKS:
        text = pattern.sub(instead, text)
    return text


def seen(node: NotebookNode) -> list[Any]:
    """What a reader sees of each cell, without the numbers of processes and addresses."""
    return [
        (
            cell.source,
            cell.get("execution_count"),
            [masked(nbformat.from_dict(o).__repr__()) for o in in_order(cell.get("outputs", []))],
        )
        for cell in node.cells
    ]


def in_order(outputs: list[NotebookNode]) -> list[NotebookNode]:
    """The outputs with one piece per stream between two displays, standard output first.

    A kernel sends each stream when it likes; only a display brings both up to date.
    """
    kept: list[NotebookNode] = []
    for is_text, run in itertools.groupby(outputs, lambda o: bool(o.output_type == "stream")):
        pieces = list(run)
        if not is_text:
            kept += pieces
            continue
        for name in ("stdout", "stderr"):
            text = "".join(piece.text for piece in pieces if piece.name == name)
            if text:
                kept.append(new_output("stream", name=name, text=_RGX_CARRIAGERETURN.sub("", text)))
    return kept
