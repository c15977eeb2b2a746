"""The research notebook (swept): its parameters cell, kernel, code, and a copy for each trial."""

from __future__ import annotations

import copy
import difflib
import os
import sys
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

from ..errors import MOST_LINES, NotebookError, listed
from ..notebook_code.assignments import Assignments, assigned_only, plain_values, with_values
from ..notebook_code.cell_code import parse, plain_python
from ..notebook_code.flows import Flows
from ..notebook_code.replacing import Cell
from ..settings.messages import nearest
from .local_code import local_code, sources_of
from .metadata import METADATA
from .reading import REDRAWN, cell_tags, code_cells, is_skipped, language_name, read_notebook

PARAMETERS_TAG = "parameters"
#: Tag that papermill gives the cell with a trial's params.
INJECTED_TAG = "injected-parameters"
#: Key in a cell's metadata with the cell's original code, present if values were replaced.
RESEARCH_SOURCE = "research_source"
#: A message about an unknown name proposes at most this number of known names (chosen, not
#: measured). Each proposal costs a search of the whole notebook.
_MOST_KNOWN = 10


class ResearchNotebook:
    """The notebook that is swept. Its file is read once and never written.

    Attributes:
        path: Absolute path of the file.
        display_name: Path as the user wrote it, for messages.
        node: Content of the notebook, repaired and without outputs.
        parameters_cell: Number of the parameters cell among the code cells, from 1. 0 if no cell
            is tagged `parameters`. If the file is an output of papermill, it is the cell that
            papermill has injected.

    Args:
        path: File of the notebook.
        is_executed: Whether the file is the executed notebook of a trial. Then its cells get back
            their original code.

    Raises:
        NotebookError: The file is missing or not a notebook, has several parameters cells, or has
            none and is not in Python.
    """

    def __init__(self, path: str | Path, *, is_executed: bool = False) -> None:
        self.path = Path(os.path.abspath(os.path.expanduser(path)))
        self.display_name = str(path)
        self.node = read_notebook(self.path, display_name=self.display_name, for_execution=True)
        if is_executed:
            cells = self.node.cells
            self.node.cells = [cell for cell in cells if INJECTED_TAG not in cell_tags(cell)]
            for cell in self.node.cells:
                cell.source = cell.metadata.get(RESEARCH_SOURCE, cell.source)
        _keep_injected(self.node)
        tagged = [
            number
            for number, cell in enumerate(code_cells(self.node), start=1)
            if PARAMETERS_TAG in cell_tags(cell)
        ]
        if len(tagged) > 1:
            raise NotebookError(
                f"{self.display_name}: {len(tagged)} code cells are tagged 'parameters'; keep the "
                "tag on one of them"
            )
        if not tagged and self.language != "python":
            raise NotebookError(
                f"{self.display_name}: a notebook in {self.language} needs a parameters cell: "
                "assign the swept names in one cell, and tag it 'parameters' (JupyterLab: property "
                "inspector, cell tags)"
            )
        self.parameters_cell = tagged[0] if tagged else 0

    @property
    def kernel_name(self) -> str:
        """The kernel that the notebook names. `python3` if a Python notebook names none.

        Raises:
            NotebookError: A notebook in another language names no kernel.
        """
        name = self.node.metadata.get("kernelspec", {}).get("name")
        if not name and self.language != "python":
            raise NotebookError(
                f"{self.display_name}: the notebook is in {self.language} and names no kernel; "
                "choose a kernel with --kernel"
            )
        return str(name or "python3")

    @property
    def language(self) -> str:
        """The language of the cells, such as `python`, in the spelling of `language_name`."""
        metadata = self.node.metadata
        spec, info = metadata.get("kernelspec", {}), metadata.get("language_info", {})
        return language_name(spec.get("language") or info.get("name"))

    @property
    def text(self) -> str:
        """The notebook as the text of a file, without outputs."""
        # This function does not validate. The notebook was validated when it was read.
        text: str = nbformat.v4.writes(self.node)
        return text

    @property
    def code(self) -> list[str]:
        """The sources of the code cells, in order. Empty for cells that trials skip."""
        return ["" if is_skipped(cell) else "".join(cell.source) for cell in code_cells(self.node)]

    @cached_property
    def assignments(self) -> Assignments:
        """The assignments in the code cells. Empty for a language other than Python."""
        return Assignments(self.code if self.language == "python" else [])

    @cached_property
    def flows(self) -> Flows:
        """The flows of values through the code of the notebook and of its local modules."""
        return Flows(self.assignments.cells, self.modules)

    @cached_property
    def modules(self) -> Mapping[str, Cell]:
        """The local modules that the notebook imports or runs, directly or indirectly, by name.

        Each module is one cell with the number 0 that contains all of its code. Empty for a
        language other than Python.
        """
        code = self.code if self.language == "python" else []
        modules = {}
        for file, content in local_code(code, self.path.parent).items():
            name = file.parent.name if file.stem == "__init__" else file.stem
            sources = [plain_python(source) for source in sources_of(file, content)]
            modules[name] = Cell(0, "\n".join(sources))
        return modules

    @cached_property
    def injected(self) -> frozenset[str]:
        """The names that papermill assigns in its injected cell, after the parameters cell."""
        return frozenset(injected_names(self.node))

    def check_names(self, sources: Mapping[str, str]) -> None:
        """Check that a trial can set all names. Only notebooks in Python are checked.

        Args:
            sources: For each name, where the user has written it, such as `my.yml: space`. Messages
                begin with this text.

        Raises:
            NotebookError: A trial cannot set some names. The message states the reason and a
                remedy for each.
        """
        if self.language != "python":
            return
        wrong: list[str] = []
        for name, source in sources.items():
            why = self.why_not(name)
            if why is None:
                continue
            known = self.assignments
            is_known = name in self.injected or known.knows(name) or known.bound_in(name)
            where = f" ({self.display_name})"
            # The message shows at most `MOST_LINES` + 1 names and counts the others, so remedies
            # for the others are not looked for.
            if not is_known and len(wrong) <= MOST_LINES:
                where = f" in {self.display_name}; {self._remedy_for_unknown(name)}"
            wrong.append(f"{source}: {name!r} is {why}{where}")
        for inner, outer in self.assignments.overlaps(sources):
            wrong.append(f"{sources[inner]}: {inner!r} is a part of {outer!r}; keep one of them")
        if wrong:
            raise NotebookError(listed(wrong))

    def _remedy_for_unknown(self, name: str) -> str:
        if remedy := self.syntax_error() or self.assignments.remedy_for_unknown(name):
            return remedy
        read = unicodedata.normalize("NFKC", name)
        if self.takes(read):
            return f"Python reads a letter of this name as another one; copy it from here: {read}"
        names = {known.lower(): known for known in reversed(self.assignments.names())}
        close = difflib.get_close_matches(name.lower(), names, n=1)
        near = [names[spelling] for spelling in close if self.takes(names[spelling])]
        known = [*sorted(self.injected), *near, *self._some_replaceable]
        if owner := name.rpartition(".")[0]:
            arguments = self.assignments.arguments()
            known = [other for other in arguments if other.startswith(owner)] or known
        if known:
            return nearest(name, dict.fromkeys(known))
        return (
            "no code reads such a variable: assign one at the top level, and use it in place of "
            "the value that should vary"
        )

    @cached_property
    def _some_replaceable(self) -> list[str]:
        return list(islice(self.assignments.replaceable(), _MOST_KNOWN))

    def syntax_error(self) -> str:
        """Return the place and message of the first syntax error.

        Returns:
            An empty text if all cells are valid Python.
        """
        for number, source in enumerate(self.code, start=1):
            try:
                parse("" if source.lstrip().startswith("%%") else plain_python(source))
            except SyntaxError as error:
                version = f"{sys.version_info.major}.{sys.version_info.minor}"
                return (
                    f"code cell {number}, line {error.lineno}: {error.msg} (for Python {version}, "
                    "which the sweep uses; if the kernel has a newer one, install the sweep there)"
                )
        return ""

    def used_in_parameters_cell(self, names: Iterable[str]) -> list[str]:
        """Return those names that the parameters cell reads, and to which it assigns a plain value.

        A plain value is a literal such as `0.1`. A trial's value for these names is written into
        the parameters cell itself. papermill's injected cell, which comes after it, would be too
        late.
        """
        if not self.parameters_cell:
            return []
        assigned = plain_values(self.code[self.parameters_cell - 1])
        return [name for name in names if name in assigned and name not in self.injected]

    def assigns(self, name: str) -> bool:
        """Return whether a name is a top-level variable of a notebook in Python."""
        return self.language == "python" and bool(self.assignments.at_top(name))

    def takes(self, name: str) -> bool:
        """Return whether the notebook has a top-level variable of this name that a trial can set.

        The result is False for a notebook in another language than Python.
        """
        return self.assigns(name) and not self.why_not(name)

    @property
    def all_code(self) -> str:
        """The code of the notebook and of its local modules."""
        modules = [module.source for module in self.modules.values()]
        return "\n".join(self.code + modules)

    def why_no_seed(self) -> str | None:
        """Return why trials cannot set the notebook's variable `seed`.

        Returns:
            None if trials can set it, or if the notebook has no such variable.
        """
        why = self.why_not("seed") if self.assignments.at_top("seed") else None
        return None if why is None else f"seed is {why}"

    def why_not(self, name: str) -> str | None:
        """Return why a trial cannot set a name, as a text that completes "NAME is …".

        Returns:
            None if a trial can set the name.
        """
        if name in self.injected:
            return self.assignments.other_value(name, after_cell=self.parameters_cell)
        return self.assignments.why_not(name)

    def fresh_copy(self, kernel_name: str | None = None) -> NotebookNode:
        """Return a copy of the notebook for a trial, without traces of an earlier execution.

        Args:
            kernel_name: Kernel to use if the notebook names none.
        """
        node = copy.deepcopy(self.node)
        for key in (METADATA, "papermill", "widgets"):
            node.metadata.pop(key, None)
        for cell in node.cells:
            cell.metadata.setdefault("tags", [])  # papermill reads this key of every cell.
            for key in ("papermill", "execution", RESEARCH_SOURCE, REDRAWN):
                cell.metadata.pop(key, None)
            if cell.cell_type == "code":
                cell.outputs, cell.execution_count = [], None
        spec = node.metadata.get("kernelspec", {})
        name = spec.get("name") or kernel_name or self.kernel_name
        defaults = {"name": name, "display_name": name, "language": self.language}
        node.metadata["kernelspec"] = {**defaults, **spec}
        return node


def _keep_injected(node: NotebookNode) -> None:
    """Give the tag `parameters` to the last cell that an earlier run of papermill has injected.

    Without the tag, papermill would replace this cell, and those of its values that a trial does
    not set would be lost. No other cell keeps the tag. A notebook without such a cell is not
    changed.
    """
    injected = [cell for cell in code_cells(node) if INJECTED_TAG in cell_tags(cell)]
    if not injected:
        return
    moved = {PARAMETERS_TAG, INJECTED_TAG}
    for cell in code_cells(node):
        cell.metadata["tags"] = [tag for tag in cell_tags(cell) if tag not in moved]
    injected[-1].metadata["tags"].append(PARAMETERS_TAG)


def injected_names(node: NotebookNode) -> list[str]:
    """Return the names that papermill assigns in its injected cell.

    These are the names that the parameters cell assigns but does not read. The injected cell comes
    after the parameters cell, too late for a name that the parameters cell reads. The value of such
    a name is replaced in the parameters cell.
    """
    tagged = (cell for cell in code_cells(node) if PARAMETERS_TAG in cell_tags(cell))
    return [name for cell in tagged for name in assigned_only(cell.source)]


def replace_values(
    node: NotebookNode, values: Mapping[str, Any], as_code: Callable[[Any], str]
) -> None:
    """Replace the plain values (literals such as `0.1`) of names in the cells of a notebook.

    Args:
        node: Notebook whose cells are changed in place.
        values: New values by name.
        as_code: Function that returns the Python code of a value.

    Raises:
        NotebookError: A value cannot be replaced without a change of other code.
    """
    cells = code_cells(node)
    sources = ["" if is_skipped(cell) else cell.source for cell in cells]
    changed = with_values(sources, values, as_code)
    for cell, before, after in zip(cells, sources, changed, strict=True):
        if after != before:
            cell.metadata[RESEARCH_SOURCE] = before
            cell.source = after
