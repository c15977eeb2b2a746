"""Read and validate a notebook file. A notebook that will be executed is repaired first."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

from ..errors import NotebookError, first_line
from ..settings.units import size
from .metadata import STATE_TAG
from .repair import repair_notebook

#: Key in the metadata of an executed cell. Its value lists the streams (`stdout`, `stderr`) in
#: which a progress bar has overwritten lines. The file has only the last state of such lines.
REDRAWN = "redrawn"
#: Tags of a cell that trials skip, such as one that needs a server which trials cannot reach.
#: nbclient, which runs the cells, skips a cell tagged `skip-execution` by itself.
_SKIP_TAGS = {"skip", "skip-execution"}
#: Largest notebook that can be swept (chosen, not measured): bytes of the file with outputs, number
#: of code cells, bytes of all code, and lines of one cell. The checks of such a notebook take about
#: ten seconds.
_MOST_BYTES, _MOST_CELLS, _MOST_CODE_BYTES, _MOST_LINES = 200_000_000, 2_000, 1_000_000, 10_000


class TooLargeError(Exception):
    """The notebook has more code than can be checked in seconds."""


def language_name(spelling: object) -> str:
    """Return the usual name of a language that a notebook or kernelspec may spell differently.

    `python3` and `ipython3` become `python`. So does a name that is missing or not a text.
    """
    named = spelling if spelling and isinstance(spelling, str) else "python"
    return "python" if re.fullmatch(r"i?python *[\d.]*", named.lower()) else named


def read_notebook(
    path: Path, *, display_name: str = "", for_execution: bool = False
) -> NotebookNode:
    """Read a notebook file, or a Python script with cells (py:percent).

    Args:
        path: File to read.
        display_name: Name of the file in messages. Default: its path.
        for_execution: Whether the notebook will be executed. Then its outputs are removed, and
            faults in its JSON are repaired.

    Returns:
        The notebook in format 4.5 or later. The first cell of an executed notebook, which a sweep
        adds to show the trial's state, is left out.

    Raises:
        NotebookError: The file is missing, cannot be read, or is not a valid notebook.
    """
    display_name = display_name or str(path)
    try:
        text = _text_of(path, for_execution=for_execution)
    except FileNotFoundError as error:
        raise NotebookError(f"{display_name}: there is no such notebook") from error
    except (OSError, UnicodeDecodeError) as error:
        raise NotebookError(f"{display_name}: cannot be read: {error}") from error
    if path.suffix == ".py":
        text = _notebook_of(text, display_name)
    try:
        node = _parsed(text, for_execution=for_execution)
        nbformat.validate(node)
        if for_execution:
            # This fails for half of a surrogate pair, which UTF-8 cannot encode.
            nbformat.writes(node).encode()
    except json.JSONDecodeError as error:
        raise NotebookError(
            f"{display_name}: not a notebook but another text ({error}); `jupytext --to ipynb` "
            "converts a script to a notebook"
        ) from error
    except TooLargeError as error:
        raise NotebookError(f"{display_name}: {error}") from error
    except ValueError as error:
        raise NotebookError(f"{display_name}: not a notebook: {error}") from error
    except Exception as error:  # The errors of nbformat and jsonschema share no base class.
        raise NotebookError(f"{display_name}: not a valid notebook: {first_line(error)}") from error
    # The sweep and papermill find cells by their ids. Formats before 4.5 have no ids.
    node.nbformat_minor = max(node.nbformat_minor, 5)
    node.cells = [cell for cell in node.cells if STATE_TAG not in cell_tags(cell)]
    for cell in node.cells:
        if "id" not in cell:
            cell["id"] = nbformat.v4.new_code_cell().id
    return node


def _text_of(path: Path, *, for_execution: bool) -> str:
    """Return the text of a file.

    Raises:
        OSError: The file cannot be read, or is too large for execution.
        UnicodeDecodeError: The file is not text.
    """
    if path.exists() and not path.is_file():
        raise OSError("it is not a file")
    n_bytes = path.stat().st_size
    if for_execution and n_bytes > _MOST_BYTES:
        raise OSError(
            f"it has {size(n_bytes)}; expected {size(_MOST_BYTES)} at most: clear its outputs"
        )
    raw = path.read_bytes()
    return raw.decode(json.detect_encoding(raw))


def _notebook_of(script: str, display_name: str) -> str:
    """Convert a Python script with cells (py:percent) to the text of a notebook.

    Raises:
        NotebookError: jupytext is not installed, or the script has no cells.
    """
    try:
        import jupytext
    except ImportError as error:
        raise NotebookError(
            f"{display_name}: reading a script needs jupytext: pip install 'notebook-hpo[jupytext]'"
        ) from error
    if not re.search(r"^# ?%%", script, re.MULTILINE):
        raise NotebookError(
            f"{display_name}: the script has no cells; begin each cell with a line `# %%`"
        )
    text: str = jupytext.writes(jupytext.reads(script, fmt="py:percent"), fmt="ipynb")
    return text


def _parsed(text: str, *, for_execution: bool) -> NotebookNode:
    # Python's json module writes NaN, which is not valid JSON. Read it as None: only metadata have
    # such numbers, and nothing uses them.
    data = json.loads(text, parse_constant=lambda _: None)
    if not isinstance(data, dict):
        raise ValueError("it has no cells")
    if for_execution:
        _refuse_endless(data)
    if for_execution and data.get("nbformat") == 4:
        text = json.dumps(repair_notebook(data))
    node: NotebookNode = nbformat.convert(nbformat.reader.reads(text), 4)
    if for_execution:
        with warnings.catch_warnings(action="ignore"):  # nbformat warns when it adds an id.
            _, node = nbformat.validator.normalize(node, strip_invalid_metadata=True)
    return node


def _refuse_endless(data: Mapping[str, Any]) -> None:
    """Check that a notebook has no more code than can be checked in seconds.

    Raises:
        TooLargeError: The notebook has too much code.
    """
    sources = _code_in(data)
    if len(sources) > _MOST_CELLS:
        raise TooLargeError(
            f"{len(sources):,} code cells; expected {_MOST_CELLS:,} at most, so split the notebook"
        )
    for number, source in enumerate(sources, start=1):
        n_lines = source.count("\n") + 1
        if n_lines > _MOST_LINES:
            raise TooLargeError(
                f"code cell {number} has {n_lines:,} lines; expected {_MOST_LINES:,} at most, so "
                "move some into a module"
            )
    n_bytes = sum(map(len, sources))
    if n_bytes > _MOST_CODE_BYTES:
        raise TooLargeError(
            f"{size(n_bytes)} of code; expected {size(_MOST_CODE_BYTES)} at most, so move some "
            "into a module, and data into a file"
        )


def _code_in(data: Mapping[str, Any]) -> list[str]:
    """Return the sources of the code cells in a notebook that was not validated."""
    sources = []
    cells = data.get("cells")
    for cell in cells if isinstance(cells, list) else ():
        if isinstance(cell, dict) and cell.get("cell_type") == "code":
            source = cell.get("source")
            lines = source if isinstance(source, list) else [source]
            sources.append("".join(map(str, lines)))
    return sources


def code_cells(node: NotebookNode) -> list[Any]:
    """Return the code cells of a notebook, in order."""
    return [cell for cell in node.cells if cell.cell_type == "code"]


def is_skipped(cell: Any) -> bool:
    """Return whether trials skip a cell because it is tagged `skip` or `skip-execution`."""
    return not _SKIP_TAGS.isdisjoint(cell_tags(cell))


def cell_tags(cell: Any) -> list[str]:
    """Return the tags of a cell. Empty if it has none."""
    return list(cell.metadata.get("tags", []))
