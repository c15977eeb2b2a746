"""Reads from an executed notebook's file how its trial is, without nbformat and its validation."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..notebook_api.messages import encode_float

#: The key of sweeper's metadata in executed notebooks.
METADATA = "sweeper"


def read_metadata(path: Path) -> Mapping[str, Any] | None:
    """Read the metadata of a trial from its file; None for a file that no sweep has written."""
    metadata, _ = read_progress(path)
    return metadata if metadata and isinstance(metadata, Mapping) else None


def entries_of(
    metadata: Mapping[str, Any], section: str, *keys: str
) -> dict[str, Mapping[str, Any]]:
    """The entries of a section that have all these keys.

    Anybody may have changed the file; an entry of another form is left out.
    """
    found = metadata.get(section)
    entries = found.items() if isinstance(found, Mapping) else ()
    return {
        name: entry
        for name, entry in entries
        if isinstance(entry, Mapping) and entry.keys() >= {*keys}
    }


def read_progress(path: Path) -> tuple[Mapping[str, Any], Sequence[str | None]]:
    """Read the metadata of a trial, and papermill's status of each cell, from its file.

    Returns:
        both empty where the file is missing or is not a notebook.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        statuses = [cell["metadata"].get("papermill", {}).get("status") for cell in data["cells"]]
        return data["metadata"].get(METADATA, {}), statuses
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}, []


def as_json(value: Any) -> Any:
    """Convert a value for JSON: NaN and infinities become strings, in lists and mappings too."""
    if isinstance(value, float):
        return encode_float(value)
    if isinstance(value, Mapping):
        return {key: as_json(inner) for key, inner in value.items()}
    return [as_json(inner) for inner in value] if isinstance(value, list | tuple) else value
