"""Slips in a notebook's JSON that keep nobody from running it: mended, before anything is checked.

papermill and Jupyter take such notebooks. What decides what is run stays as it is: a cell without
a kind or a source is left for the check to refuse.
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
#: The format that all cells of ours and of papermill's need: cells have ids.
_MINOR = 5


def mended(notebook: Mapping[str, Any]) -> dict[str, Any]:
    """A notebook of format 4 without its outputs, its harmless slips repaired.

    Args:
        notebook: as it stands in its file.
    """
    minor = notebook.get("nbformat_minor")
    cells = notebook.get("cells")
    ids: set[str] = set()
    return {
        "nbformat": 4,
        "nbformat_minor": max(minor, _MINOR) if isinstance(minor, int) else _MINOR,
        "metadata": _metadata(_mapping(notebook.get("metadata"))),
        "cells": [_cell(cell, ids) for cell in cells] if isinstance(cells, list) else cells,
    }


def _metadata(metadata: dict[str, Any]) -> dict[str, Any]:
    """That of the notebook: the kernel has a name, or is not there."""
    spec = _texts(_mapping(metadata.pop("kernelspec", None)))
    info = _mapping(metadata.pop("language_info", None))
    if not isinstance(info.get("name"), str):
        info = {}
    if spec.get("name"):
        metadata["kernelspec"] = {"display_name": spec["name"], **spec}
    elif not info and spec.get("language"):
        info = {"name": spec["language"]}
    if info:
        metadata["language_info"] = info
    return metadata


def _cell(cell: Any, ids: set[str]) -> Any:
    """One cell.

    Args:
        ids: of the cells before it; its own is added.
    """
    kind = str(cell.get("cell_type")) if isinstance(cell, dict) else ""
    if kind not in _CELL_KEYS:
        return cell
    kept = {key: cell[key] for key in _CELL_KEYS[kind] if key in cell}
    kept["metadata"] = _mapping(cell.get("metadata"))
    if "tags" in kept["metadata"]:
        kept["metadata"]["tags"] = _tags(kept["metadata"]["tags"])
    name = kept.get("id")
    if not isinstance(name, str) or not _ID.fullmatch(name) or name in ids:
        kept.pop("id", None)
    else:
        ids.add(name)
    if not isinstance(kept.get("attachments", {}), dict):
        del kept["attachments"]
    if kind == "code":
        kept |= {"outputs": [], "execution_count": None}
    return kept


def _tags(tags: Any) -> list[str]:
    """Each tag once; several in one text are separated by commas, which no tag may hold."""
    given = tags if isinstance(tags, list) else [tags]
    texts = (text for tag in given if isinstance(tag, str) for text in tag.split(","))
    return list(dict.fromkeys(text.strip() for text in texts if text.strip()))


def _mapping(value: Any) -> dict[str, Any]:
    return dict(value) if isinstance(value, dict) else {}


def _texts(mapping: dict[str, Any]) -> dict[str, Any]:
    """What of a kernel's description must be text, and is; and all else of it."""
    text = ("name", "display_name", "language")
    return {k: v for k, v in mapping.items() if k not in text or isinstance(v, str)}
