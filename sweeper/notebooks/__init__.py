"""A notebook as data: the research notebook, the executed one, scores, shared cells, fingerprint.

The owner of nbformat and nbconvert. What executes cells does not belong here.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .executed import ExecutedNotebook, annotate, mark_ended, read_executed
    from .html import render, write_cells
    from .metadata import METADATA, read_metadata, read_progress
    from .research import PARAMETERS_TAG, ResearchNotebook

__all__ = [
    "METADATA",
    "PARAMETERS_TAG",
    "ExecutedNotebook",
    "ResearchNotebook",
    "annotate",
    "mark_ended",
    "read_executed",
    "read_metadata",
    "read_progress",
    "render",
    "write_cells",
]

#: Names are loaded when they are first used: those in `metadata` do without nbformat.
_HOMES = {
    "METADATA": "metadata",
    "PARAMETERS_TAG": "research",
    "ExecutedNotebook": "executed",
    "ResearchNotebook": "research",
    "annotate": "executed",
    "mark_ended": "executed",
    "read_executed": "executed",
    "read_metadata": "metadata",
    "read_progress": "metadata",
    "render": "html",
    "write_cells": "html",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOMES[name]}", __name__), name)
