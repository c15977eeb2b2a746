"""Leading cells that run once for all trials: which are wanted, and what has run."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nbformat import NotebookNode

from ...notebooks.shared_cells import find_shared_cells
from ...trials import Params
from ..cells.inject import inject

_IMPORTING = re.compile(r"^(import|from)\s", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class CellsToShare:
    """Cells that cannot depend on a swept parameter.

    Attributes:
        sources: the code of the cells to run, by their place in the notebook.
        parameters_at: the place of the parameters cell, if it is among them.
        swept: names that each trial gets its own value of.
        ended_by: why there are no more; empty when the whole notebook can be shared.
    """

    sources: Mapping[int, str]
    parameters_at: int | None
    swept: Sequence[str]
    ended_by: str

    def request(self, count: int) -> dict[str, Any]:
        """The first of them, for the zygote."""
        cells = [
            {"source": source, "is_parameters": index == self.parameters_at}
            for index, source in list(self.sources.items())[:count]
        ]
        return {"cells": cells, "swept": list(self.swept)}


@dataclass(frozen=True, slots=True, kw_only=True)
class RanCell:
    """One shared cell that has run: its messages, and how long it took."""

    messages: Sequence[Mapping[str, Any]]
    execution_count: int | None
    started_at_s: float
    duration_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedRun:
    """Cells that have run; kernels can be forked after them.

    Attributes:
        path: the socket of the process in which the cells ran.
        cells: the cells by their place in the notebook.
        seeded: the global random generators that the cells have seeded.
    """

    path: str
    cells: Mapping[int, RanCell]
    seeded: Sequence[str] = ()

    @property
    def until(self) -> int:
        """The place of the first cell that each trial runs itself."""
        return max(self.cells) + 1

    @property
    def duration_s(self) -> float:
        """How long the cells ran, which each trial saves."""
        return sum(cell.duration_s for cell in self.cells.values())


def cells_to_share(
    node: NotebookNode, *, fixed: Params, swept: Sequence[str], kernel_name: str
) -> CellsToShare | None:
    """The leading cells of a notebook that are the same in all trials; None when there are none.

    Args:
        node: the notebook as a trial starts from it.
        fixed: parameters that are the same for all trials.
        swept: names that are not.
    """
    node = inject(node, fixed, kernel_name=kernel_name, language="python")
    prefix = find_shared_cells(node.cells, swept)
    leading = {
        index: cell
        for index, cell in enumerate(node.cells[: prefix.cells])
        if cell.cell_type == "code"
        and cell.source.strip()
        and "skip-execution" not in cell.metadata.get("tags", [])
    }
    if not leading:
        return None
    tagged = [i for i, c in leading.items() if "parameters" in c.metadata.get("tags", [])]
    return CellsToShare(
        sources={index: cell.source for index, cell in leading.items()},
        parameters_at=tagged[0] if tagged else None,
        swept=swept,
        ended_by=prefix.ended_by,
    )


def leading_s(node: NotebookNode, shared: CellsToShare | None) -> float:
    """How long cells ran that forked kernels do not run, or whose libraries they have, in seconds.

    It is a guess before anything has been imported in advance: a cell that imports may do more.

    Args:
        node: an executed notebook.
        shared: the cells to run once for all trials.
    """
    spared = () if shared is None else shared.sources
    return sum(
        cell.metadata.get("papermill", {}).get("duration") or 0.0
        for index, cell in enumerate(node.cells)
        if cell.cell_type == "code" and (index in spared or _IMPORTING.search(cell.source))
    )
