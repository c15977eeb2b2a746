"""The notebook that is swept: its parameters cell, its code, and a fresh copy for each trial."""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from nbformat import NotebookNode

from ..errors import NotebookError
from ..settings.messages import nearest
from .cell_code import assigned_names, find_parameters_candidate, parse, plain_python
from .reading import METADATA, cell_tags, code_cells, read_notebook

PARAMETERS_TAG = "parameters"


_HOW_TO_TAG = "'parameters' (JupyterLab: property inspector, cell tags)"


_NAMES_SHOWN = 4


class ResearchNotebook:
    """The notebook that is swept; read once, never written.

    Raises:
        NotebookError: the file is missing or is no notebook, or has no parameters cell.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(os.path.abspath(os.path.expanduser(path)))
        self.display_name = str(path)
        self.node = read_notebook(self.path, self.display_name, for_execution=True)
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
        """The kernel that the notebook asks for; python3 where a Python notebook names none.

        Raises:
            NotebookError: one in another language names none.
        """
        name = self.node.metadata.get("kernelspec", {}).get("name")
        if not name and self.language != "python":
            raise NotebookError(
                f"{self.display_name}: names no kernel, and its language is {self.language}; "
                "choose a "
                "kernel with --kernel"
            )
        return str(name or "python3")

    @property
    def language(self) -> str:
        """The language of its cells; `python`, however it is spelled."""
        metadata = self.node.metadata
        told = metadata.get("kernelspec", {}).get("language") or metadata.get(
            "language_info", {}
        ).get("name")
        language = str(told or "python")
        return "python" if language.lower() == "python" else language

    @property
    def code(self) -> list[str]:
        """Sources of its code cells, in their order."""
        return ["".join(cell.source) for cell in code_cells(self.node)]

    def parameters(self) -> list[str] | None:
        """Names that the parameters cell assigns; None for a language that we cannot read.

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
        """Refuse names that the parameters cell does not assign: papermill would only warn.

        Args:
            sources: from each name to where it was given, for the message.

        Raises:
            NotebookError: a name is not assigned; the text names it, and the nearest right one.
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
        """The notebook as a trial starts from it: nothing left of an earlier execution.

        Args:
            kernel_name: the kernel that will run it, for a notebook that names none.
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
        usual = {"name": name, "display_name": name, "language": self.language}
        node.metadata["kernelspec"] = {**usual, **spec}
        return node


def _what_to_tag(sources: Sequence[str]) -> str:
    """What to do in a notebook without a parameters cell."""
    candidate = find_parameters_candidate(sources)
    if candidate is None:
        return f"put what should vary into one, as in `lr = 1e-3`, and tag it {_HOW_TO_TAG}"
    names = ", ".join(candidate.names[:_NAMES_SHOWN])
    more = len(candidate.names) - _NAMES_SHOWN
    names += f" and {more} more" if more > 0 else ""
    which = f"code cell {candidate.number} assigns {names}"
    if candidate.is_pure:
        return f"{which}: tag it {_HOW_TO_TAG}"
    return f"{which} among other things: move these to a cell of their own, tagged {_HOW_TO_TAG}"
