"""Run the cells tagged `shared` once for all trials, in a process that kernels are forked from.

That process is itself a fork of the zygote: a process that has imported the notebook's libraries.
"""

from __future__ import annotations

import socket
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from nbformat import NotebookNode

from ...notebooks.reading import cell_tags, is_skipped
from ...notebooks.research import INJECTED_TAG
from ...notebooks.shared_cells import SHARED_TAG
from .forked_process import request_fork
from .origins import KernelSetup, RanCell, SharedRun
from .zygote.messages import receive


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedCells:
    """The cells tagged `shared`, and the cells before them, which run once for all trials.

    Attributes:
        sources: Code of the cells by their index in the notebook. It includes the parameters cell
            and the injected cell if they come before the last shared cell.
        numbers: Number of each cell in messages, by its index in the notebook. The number is the
            cell's position among the code cells of the user's notebook, from 1.
        tagged: Number of cells that are tagged `shared`.
    """

    sources: Mapping[int, str]
    numbers: Mapping[int, int]
    tagged: int

    @classmethod
    def of(cls, node: NotebookNode) -> SharedCells | None:
        """Return the code cells up to the last one that is tagged `shared`.

        Empty and skipped cells are left out. Return None if no cell is tagged, or if all these
        cells are left out.

        Args:
            node: Notebook of a trial before its first cell runs, with the fixed params injected.
        """
        tagged = [index for index, cell in enumerate(node.cells) if SHARED_TAG in cell_tags(cell)]
        if not tagged:
            return None
        sources: dict[int, str] = {}
        numbers: dict[int, int] = {}
        number = 0
        for index, cell in enumerate(node.cells[: tagged[-1] + 1]):
            if cell.cell_type != "code":
                continue
            if INJECTED_TAG not in cell_tags(cell):
                number += 1
            if cell.source.strip() and not is_skipped(cell):
                sources[index] = cell.source
                numbers[index] = number
        if not sources:
            return None
        return cls(sources=sources, numbers=numbers, tagged=len(tagged))


class NotShared(Exception):
    """The shared cells cannot run once for all trials, so each trial must run them.

    The message of the exception says why.
    """


def run_shared_cells(
    cells: SharedCells, setup: KernelSetup, *, zygote: str, argv: Sequence[str]
) -> SharedRun:
    """Run the shared cells in a fork of the zygote. Later, kernels are forked from this fork.

    Args:
        cells: Cells to run.
        setup: What all kernels have in common.
        zygote: Socket path of the zygote, the process that has imported the libraries.
        argv: Arguments of all kernels, without the connection file.

    Raises:
        NotShared: A cell failed, or left something that a fork would not have, such as a thread.
        OSError: The zygote does not answer.
    """
    path = f"{tempfile.mkdtemp(prefix='p', dir=setup.runtime_folder)}/s"
    request = {
        "cells": list(cells.sources.values()),
        "random_seed": setup.random_seed,
        "path": path,
        "argv": ["ipykernel_launcher", *argv],
        "env": dict(setup.env),
    }
    ours, theirs = socket.socketpair()
    with ours:
        with theirs, open(Path(path).with_name("output"), "w+b") as output:
            lease, _ = request_fork(zygote, request, [output.fileno(), theirs.fileno()])
        report, _ = receive(ours)
    if report is None:
        lease.close()
        raise NotShared("the process that ran these cells died")
    if report["why"] is not None:
        lease.close()
        number = list(cells.numbers.values())[report["failed_at"]]
        raise NotShared(f"code cell {number} {report['why']}")
    ran = (RanCell(**cell) for cell in report["cells"])
    return SharedRun(
        path=path,
        lease=lease,
        cells=dict(zip(cells.sources, ran, strict=True)),
        tagged=cells.tagged,
        duration_s=report["duration_s"],
    )
