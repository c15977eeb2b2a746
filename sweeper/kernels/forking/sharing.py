"""Shared cells: those that run once for all trials, in a fork of the zygote, and what they did."""

from __future__ import annotations

import socket
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from nbformat import NotebookNode

from ...notebooks.reading import cell_tags
from ...notebooks.shared_cells import SHARED_TAG
from .forked_process import request_fork
from .origins import KernelSetup, RanCell, SharedRun
from .zygote.messages import receive


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedCells:
    """The cells to run once for all trials.

    Attributes:
        sources: the code of the cells to run, by their place in the notebook; the parameters cell
            and the injected one are among them where they stand before the last shared cell.
        numbers: of these cells among the code cells of the user's notebook, for messages.
        tagged: how many cells are tagged.
    """

    sources: Mapping[int, str]
    numbers: Mapping[int, int]
    tagged: int

    @classmethod
    def of(cls, node: NotebookNode) -> SharedCells | None:
        """The tagged cells of a notebook; None where there are none.

        Args:
            node: the notebook as a trial starts from it, with the fixed params injected.
        """
        tagged = [i for i, cell in enumerate(node.cells) if SHARED_TAG in cell_tags(cell)]
        sources, numbers, number = {}, {}, 0
        for index, cell in enumerate(node.cells[: max(tagged, default=-1) + 1]):
            if cell.cell_type != "code":
                continue
            number += "injected-parameters" not in cell_tags(cell)
            if cell.source.strip() and "skip-execution" not in cell_tags(cell):
                sources[index], numbers[index] = cell.source, number
        return cls(sources=sources, numbers=numbers, tagged=len(tagged)) if sources else None


class NotShared(Exception):
    """Shared cells have to be run by each trial; the text says why."""


def run_shared_cells(
    cells: SharedCells, setup: KernelSetup, *, zygote: str, argv: Sequence[str]
) -> SharedRun:
    """Run the cells in a fork of a zygote, from which kernels can be forked then.

    Args:
        setup: of all kernels.
        zygote: the path of its socket.
        argv: arguments of all kernels but for the connection file.

    Raises:
        NotShared: a cell failed, or left what no fork has.
        OSError: the zygote does not answer.
    """
    path = f"{tempfile.mkdtemp(prefix='p', dir=setup.runtime_folder)}/s"
    request = {
        "cells": list(cells.sources.values()),
        "path": path,
        "argv": ["ipykernel_launcher", *argv],
        "env": dict(setup.env),
    }
    ours, theirs = socket.socketpair()
    with ours:
        with theirs, open(Path(path).with_name("output"), "w+b") as output:
            lease, _ = request_fork(zygote, request, [output.fileno(), theirs.fileno()])
        report, _ = receive(ours)
    if report is None or report["why"] is not None:
        lease.close()
        if report is None:
            raise NotShared("the process in which they run died")
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
