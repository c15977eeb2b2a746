"""The research notebook: its parameters cell, its kernel, its code, and the copy for each trial."""

from __future__ import annotations

import copy
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from ..errors import NotebookError
from ..settings.messages import nearest
from .cell_code import assigned_names, assigned_values, parse, plain_python
from .metadata import METADATA
from .reading import cell_tags, code_cells, read_notebook

PARAMETERS_TAG = "parameters"
#: papermill's tag of the cell with a trial's params.
INJECTED_TAG = "injected-parameters"
_HOW_TO_TAG = "'parameters' (JupyterLab: property inspector, cell tags)"
#: The most names that a message lists.
_MAX_NAMES = 4


class ResearchNotebook:
    """The notebook that is swept; it is read once and never written.

    Attributes:
        path: its absolute path.
        display_name: its path as the user wrote it, for messages.
        node: its content, repaired and without outputs.
        parameters_source: the source of the parameters cell.

    Args:
        is_executed: whether it is the executed notebook of a trial, whose injected parameters are
            to be left out.

    Raises:
        NotebookError: the file is missing or not a notebook, or does not have one parameters cell.
    """

    def __init__(self, path: str | Path, *, is_executed: bool = False) -> None:
        self.path = Path(os.path.abspath(os.path.expanduser(path)))
        self.display_name = str(path)
        self.node = read_notebook(self.path, display_name=self.display_name, for_execution=True)
        if is_executed:
            cells = self.node.cells
            self.node.cells = [cell for cell in cells if INJECTED_TAG not in cell_tags(cell)]
        tagged = [c for c in code_cells(self.node) if PARAMETERS_TAG in cell_tags(c)]
        if not tagged:
            raise NotebookError(
                f"{self.display_name}: no parameters cell; {_what_to_tag(self.code)}"
            )
        if len(tagged) > 1:
            raise NotebookError(
                f"{self.display_name}: {len(tagged)} cells are tagged 'parameters'; keep the tag "
                "on one"
            )
        self.parameters_source = "".join(tagged[0].source)

    @property
    def kernel_name(self) -> str:
        """The kernel that the notebook names; `python3` where a Python notebook names none.

        Raises:
            NotebookError: a notebook in another language names no kernel.
        """
        name = self.node.metadata.get("kernelspec", {}).get("name")
        if not name and self.language != "python":
            raise NotebookError(
                f"{self.display_name}: names no kernel, and its language is "
                f"{self.language}; choose a kernel with --kernel"
            )
        return str(name or "python3")

    @property
    def language(self) -> str:
        """The language of the cells; `python` where none is named, and for all spellings of it.

        Some tools write `python3` or `ipython3` there.
        """
        metadata = self.node.metadata
        spec, info = metadata.get("kernelspec", {}), metadata.get("language_info", {})
        language = str(spec.get("language") or info.get("name") or "python")
        return "python" if re.fullmatch(r"i?python *[\d.]*", language.lower()) else language

    @property
    def text(self) -> str:
        """The notebook as its file, without outputs."""
        text: str = nbformat.v4.writes(self.node)  # it was validated when it was read
        return text

    @property
    def code(self) -> list[str]:
        """The sources of the code cells, in order."""
        return ["".join(cell.source) for cell in code_cells(self.node)]

    def parameters(self) -> list[str] | None:
        """List the names that the parameters cell assigns; None for a language other than Python.

        Raises:
            NotebookError: the parameters cell is not valid Python.
        """
        if self.language != "python":
            return None
        try:
            return assigned_names(parse(plain_python(self.parameters_source)))
        except SyntaxError as error:
            where = f", line {error.lineno}" if error.lineno else ""
            raise NotebookError(
                f"{self.display_name}: the parameters cell{where}: {error.msg}; "
                "it should only assign names, as in `lr = 1e-3`"
            ) from error

    def check_parameters(self, sources: Mapping[str, str]) -> None:
        """Refuse names that the parameters cell does not assign, of which papermill only warns.

        Args:
            sources: the origin of each name, for the message.

        Raises:
            NotebookError: with each name that is not assigned, and the nearest one that is.
        """
        assigned = self.parameters()
        if assigned is None:
            return
        wrong = [
            f"{source}: {name!r} is not assigned in the parameters cell of {self.display_name}; "
            f"{nearest(name, assigned)}"
            for name, source in sources.items()
            if name not in assigned
        ]
        if wrong:
            raise NotebookError("\n".join(wrong))

    def assigns(self, name: str) -> bool:
        """Whether the parameters cell assigns this name."""
        return name in (self.parameters() or ())

    def fresh_copy(self, kernel_name: str | None = None) -> NotebookNode:
        """Copy the notebook for a trial, without anything of an earlier execution.

        Args:
            kernel_name: the kernel for a notebook that names none.
        """
        node = copy.deepcopy(self.node)
        for key in (METADATA, "papermill", "widgets"):
            node.metadata.pop(key, None)
        for cell in node.cells:
            cell.metadata.setdefault("tags", [])  # papermill looks for tags on every cell
            cell.metadata.pop("papermill", None)
            cell.metadata.pop("execution", None)
            if cell.cell_type == "code":
                cell.outputs, cell.execution_count = [], None
        spec = node.metadata.get("kernelspec", {})
        name = spec.get("name") or kernel_name or self.kernel_name
        defaults = {"name": name, "display_name": name, "language": self.language}
        node.metadata["kernelspec"] = {**defaults, **spec}
        return node


def _what_to_tag(sources: Sequence[str]) -> str:
    """Say what to do about a missing parameters cell: name the cell that assigns most numbers."""
    numbers = [
        [
            name
            for name, (value, _) in assigned_values(source).items()
            if type(value) in (int, float)
        ]
        for source in sources
    ]
    most = max(numbers, key=len, default=[])
    if not most:
        return f"put what should vary into one, as in `lr = 1e-3`, and tag it {_HOW_TO_TAG}"
    more = len(most) - _MAX_NAMES
    names = ", ".join(most[:_MAX_NAMES]) + (f" and {more} more" if more > 0 else "")
    return (
        f"code cell {numbers.index(most) + 1} assigns {names}: keep what should vary in a cell of "
        f"its own, which computes nothing from it, and tag it {_HOW_TO_TAG}"
    )
