"""Read a notebook file, mend what keeps nobody from running it, and refuse what is none."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

from ..errors import NotebookError, first_line
from .repair import mended

#: The key of our own metadata, in executed notebooks.
METADATA = "sweeper"


def read_notebook(path: Path, display_name: str, *, is_mended: bool = False) -> NotebookNode:
    """Read a notebook.

    Args:
        is_mended: for one that will be run: it loses its outputs, and is spared for what keeps
            nobody from running it.
    """
    try:
        raw = path.read_bytes()
        text = raw.decode(json.detect_encoding(raw))
    except FileNotFoundError as error:
        raise NotebookError(f"{display_name}: there is no such notebook") from error
    except (OSError, UnicodeDecodeError) as error:
        raise NotebookError(f"{display_name}: cannot be read: {error}") from error
    try:
        node = _parsed(text, is_mended=is_mended)
        nbformat.validate(node)
        if is_mended:
            nbformat.writes(node).encode()  # or no trial could write it
    except UnicodeEncodeError as error:
        half = error.object[error.start : error.end]
        raise NotebookError(
            f"{display_name}: holds {half!r}, half a character; take it out"
        ) from error
    except ValueError as error:
        raise NotebookError(f"{display_name}: not a notebook: {error}") from error
    except Exception as error:  # nbformat raises its own and jsonschema's, which share no base
        raise NotebookError(f"{display_name}: not a valid notebook: {first_line(error)}") from error
    # Every cell of ours and of papermill's needs these two; formats before 4.5 had no ids.
    node.nbformat_minor = max(node.nbformat_minor, 5)
    for cell in node.cells:
        cell.setdefault("id", nbformat.v4.new_code_cell().id)
    return node


def _parsed(text: str, *, is_mended: bool) -> NotebookNode:
    # Python alone writes NaN into JSON, and only where nobody misses it.
    data = json.loads(text, parse_constant=lambda _: None)
    if is_mended and isinstance(data, dict) and data.get("nbformat") == 4:
        text = json.dumps(mended(data))
    node: NotebookNode = nbformat.convert(nbformat.reader.reads(text), 4)
    if is_mended:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of each cell that gets an id
            _, node = nbformat.validator.normalize(node, strip_invalid_metadata=True)
    return node


def code_cells(node: NotebookNode) -> list[Any]:
    return [cell for cell in node.cells if cell.cell_type == "code"]


def cell_tags(cell: Any) -> list[str]:
    return list(cell.metadata.get("tags", []))
