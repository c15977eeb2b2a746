"""Cells that a user has tagged `shared`: they run once, before kernels are forked."""

from __future__ import annotations

import re
from collections.abc import Set

from nbformat import NotebookNode

from ..errors import NotebookError
from ..notebook_code.cell_code import parse_or_none, plain_python, uses_in, words_in
from .reading import cell_tags, code_cells
from .research import (
    INJECTED_TAG,
    PARAMETERS_TAG,
    RESEARCH_SOURCE,
    ResearchNotebook,
    injected_names,
)

SHARED_TAG = "shared"
#: Matches calls of `sweeper.trial`. Shared cells must not make such a call, because its result
#: differs between trials.
_OWN_CALL = re.compile(r"\bsweeper\.trial\b|\bfrom\s+sweeper\s+import\b.*\btrial\b")
#: The advice to tag cells is given only if a trial saves at least `_WORTH_S` seconds, and at least
#: the share `_WORTH_PART` of its duration (both chosen, not measured).
_WORTH_S, _WORTH_PART = 1.0, 0.2


def last_shared_cell(node: NotebookNode) -> int:
    """Return the number of the last code cell tagged `shared`. 0 if no cell has the tag.

    If a trial's kernel is forked after shared cells, the trial runs only the cells after this one.
    """
    last = 0
    for number, cell in enumerate(code_cells(node), start=1):
        if SHARED_TAG in cell_tags(cell):
            last = number
    return last


def check_shared_cells(notebook: ResearchNotebook, own_names: Set[str]) -> None:
    """Check that cells tagged `shared` are the same in all trials, and come before other cells.

    Empty cells are ignored. A parameters cell is ignored, too, if it neither calls `sweeper.trial`
    nor reads or assigns a name whose value differs between trials. Names that papermill's injected
    cell assigns are not checked in the parameters cell.

    Args:
        notebook: Research notebook.
        own_names: Names whose values differ between trials.

    Raises:
        NotebookError: A tagged cell differs between trials, or comes after a cell without the tag.
    """
    first_untagged, its_own = 0, ""
    replaced_in = {
        place.cell: name
        for name in own_names - notebook.injected
        for place in notebook.assignments.places(name)
    }
    cells = code_cells(notebook.node)[: last_shared_cell(notebook.node)]
    for number, cell in enumerate(cells, start=1):
        tags, where = cell_tags(cell), f"{notebook.display_name}: code cell {number}"
        if not cell.source.strip():
            continue
        is_parameters = PARAMETERS_TAG in tags
        names = own_names - notebook.injected if is_parameters else own_names
        own = _own_in(cell.source, names) or replaced_in.get(number, "")
        if is_parameters and not own:
            continue
        if SHARED_TAG not in tags:
            if not first_untagged:
                first_untagged, its_own = number, own if is_parameters else ""
        elif its_own:
            raise NotebookError(
                f"{where} is tagged 'shared', and the parameters cell above (code cell "
                f"{first_untagged}) would run only once with it, but uses {its_own}, whose value "
                f"differs between trials; remove the tag, or move the code that uses {its_own} to "
                "a cell after the shared ones"
            )
        elif first_untagged:
            raise NotebookError(
                f"{where} is tagged 'shared', and code cell {first_untagged} before it is not; "
                f"shared cells come first: tag code cell {first_untagged} as well, or remove the "
                f"tag from code cell {number}"
            )
        elif own:
            raise NotebookError(
                f"{where} is tagged 'shared', so it runs once for all trials, but it uses {own}, "
                "whose value differs between trials; remove the tag, or move the code that uses "
                f"{own} to a later cell"
            )


def sharing_advice(node: NotebookNode, own_names: Set[str]) -> str | None:
    """Return how much time a trial would save if the first cells had the tag `shared`.

    Args:
        node: Notebook that was executed in a forked kernel, with papermill's injected cell and
            without shared cells.
        own_names: Names whose values differ between trials.

    Returns:
        The advice to tag these cells, which then run once for all trials. None if that would save
        too little time.
    """
    total_s = leading_s = 0.0
    numbers: list[int] = []
    is_leading = True
    cells = [cell for cell in code_cells(node) if INJECTED_TAG not in cell_tags(cell)]
    for number, cell in enumerate(cells, start=1):
        took_s = cell.metadata.get("papermill", {}).get("duration") or 0.0
        total_s += took_s
        is_tagged = PARAMETERS_TAG in cell_tags(cell)
        own = own_names - {*injected_names(node)} if is_tagged else own_names
        is_leading &= not _own_in(cell.source, own) and RESEARCH_SOURCE not in cell.metadata
        if is_leading and not is_tagged:
            leading_s += took_s
            numbers.append(number)
    if leading_s < max(_WORTH_S, _WORTH_PART * total_s):
        return None
    which = f"cell {numbers[0]} takes"
    if len(numbers) > 1:
        which = f"cells {numbers[0]} to {numbers[-1]} take"
    return (
        f"{which} {leading_s:.1f} of {total_s:.1f} s of each trial without using a parameter: "
        f"add the tag `{SHARED_TAG}`, so that this code runs only once for all trials"
    )


def _own_in(source: str, own_names: Set[str]) -> str:
    """Return what differs between trials in a cell: a name, or a call of `sweeper.trial`.

    A name counts if the cell reads or assigns it.

    Args:
        source: Code of the cell.
        own_names: Names whose values differ between trials.

    Returns:
        The name or the call. An empty text if the cell has nothing of this kind.
    """
    if _OWN_CALL.search(source):
        return "sweeper.trial()"
    return min(_global_names(source).intersection(own_names), default="")


def _global_names(source: str) -> set[str]:
    """Return the global names that code reads or assigns, also inside of its functions.

    If the code does not compile, these are all its words, because the kernel may have a newer
    version of Python, which can run the code.
    """
    tree = parse_or_none(plain_python(source))
    uses = None if tree is None else uses_in(tree.body)
    if uses is None:
        return {*words_in(source)}
    return {use.name for use in uses}
