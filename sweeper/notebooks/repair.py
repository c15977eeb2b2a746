"""Repair small faults in a notebook's JSON before it is validated.

papermill and Jupyter accept notebooks with these faults. A repair never changes which code runs.
Validation still refuses a cell without a type or a source, because no repair adds them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_CELL_KEYS: Mapping[str, tuple[str, ...]] = {
    "code": ("id", "cell_type", "metadata", "source"),
    "markdown": ("id", "cell_type", "metadata", "source", "attachments"),
    "raw": ("id", "cell_type", "metadata", "source", "attachments"),
}
_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
#: Minor version of the first notebook format in which cells have ids. Sweeps write cells with ids.
_MINOR = 5


def repair_notebook(notebook: Mapping[str, Any]) -> dict[str, Any]:
    """Repair a notebook of format 4, and remove its outputs.

    Args:
        notebook: JSON data of the notebook's file.

    Returns:
        A repaired copy.
    """
    minor, cells = notebook.get("nbformat_minor"), notebook.get("cells")
    metadata = _mapping(notebook.get("metadata"))
    spec = _mapping(metadata.get("kernelspec"))
    if isinstance(spec.get("name"), str):  # nbformat removes a kernel without a display name.
        metadata["kernelspec"] = {"display_name": spec["name"], **spec}
    return {
        "nbformat": 4,
        "nbformat_minor": max(minor, _MINOR) if isinstance(minor, int) else _MINOR,
        "metadata": metadata,
        "cells": [_cell(cell) for cell in cells] if isinstance(cells, list) else cells,
    }


def _cell(cell: Any) -> Any:
    """Repair one cell. An invalid id is removed, and nbformat adds a new one."""
    kind = str(cell.get("cell_type")) if isinstance(cell, dict) else ""
    if kind not in _CELL_KEYS:
        return cell
    kept = {key: cell[key] for key in _CELL_KEYS[kind] if key in cell}
    metadata = _mapping(cell.get("metadata"))
    tags = metadata.get("tags")
    if isinstance(tags, list):
        metadata["tags"] = list(dict.fromkeys(tags))
    kept["metadata"] = metadata
    name = kept.get("id")
    if not isinstance(name, str) or not _ID.fullmatch(name):
        kept.pop("id", None)
    if kind == "code":
        kept |= {"outputs": [], "execution_count": None}
    return kept


def _mapping(value: Any) -> dict[str, Any]:
    return dict(value) if isinstance(value, dict) else {}
