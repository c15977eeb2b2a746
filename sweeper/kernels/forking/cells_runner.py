"""Run leading cells once, in a fork of the zygote, and keep that process for later forks."""

from __future__ import annotations

import logging
import os
import socket
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...notebooks.shared_cells import why_module_unsharable
from ..frozen_modules import FrozenModules
from .process import request_fork
from .sharing import CellsToShare, RanCell, SharedRun
from .zygote_process import read_report

_log = logging.getLogger(__name__)


class SharedCellsRunner:
    """Runs leading cells for all trials, as many as a fork can carry over.

    Args:
        env: the environment of all kernels.
        argv: arguments of all kernels but for the connection file.
        cwd: the working directory of all kernels.
        runtime_folder: a private folder with a short path, for sockets.
        frozen: the modules that kernels import from a snapshot.
    """

    def __init__(
        self,
        *,
        env: Mapping[str, str],
        argv: Sequence[str],
        cwd: Path,
        runtime_folder: Path,
        frozen: FrozenModules,
    ) -> None:
        self._env = env
        self._argv = argv
        self._cwd = cwd
        self._runtime_folder = runtime_folder
        self._frozen = frozen
        self._lock = threading.Lock()
        self._shared: SharedRun | None = None
        self._lease: socket.socket | None = None
        #: Stands for the latest call of `run`, until `end`.
        self._current: object = None

    @property
    def shared(self) -> SharedRun | None:
        """The cells that have run; None while there are none."""
        return self._shared

    def run(self, wanted: CellsToShare, zygote: str) -> None:
        """Run the cells in a fork of a zygote; without those from the first that cannot be shared.

        Args:
            zygote: the path of its socket.
        """
        with self._lock:
            current = self._current = object()
        count = len(wanted.sources)
        while count:
            path = f"{tempfile.mkdtemp(prefix='p', dir=self._runtime_folder)}/s"
            try:
                lease, report = self._try(wanted, count, zygote, path)
            except OSError as error:
                _log.info("the zygote does not answer: %s", error)
                return
            if report["why"] is None:
                report.update(_unsharable_modules(wanted, report["cells"], self._frozen))
            if report["why"] is None:
                self._keep(wanted, path, report, lease, current)
                return
            lease.close()
            count = report["refused_at"]
            place = list(wanted.sources)[count]
            _log.info("cell %d is not shared: %s", place, report["why"])

    def end(self, *, only: SharedRun | None = None) -> None:
        """End the process in which the cells have run; kernels that were forked from it go on.

        Args:
            only: the run to end, if it is still the latest one; None for whichever it is.
        """
        with self._lock:
            if only is not None and only is not self._shared:
                return
            self._shared = self._current = None
            lease, self._lease = self._lease, None
        if lease is not None:
            lease.close()

    def _try(
        self, wanted: CellsToShare, count: int, zygote: str, path: str
    ) -> tuple[socket.socket, dict[str, Any]]:
        """Run the first `count` cells; return the lease of their process, and its report."""
        reading, writing = os.pipe()
        request = {
            **wanted.request(count),
            "path": path,
            "argv": ["ipykernel_launcher", *self._argv],
            "env": dict(self._env),
            "cwd": str(self._cwd),
        }
        try:
            with open(Path(path).with_name("output"), "w+b") as output:
                lease, _ = request_fork(zygote, request, [output.fileno(), writing])
        except OSError:
            os.close(reading)
            raise
        finally:
            os.close(writing)
        report = read_report(reading, None)
        return lease, report or {"why": "the process died", "refused_at": 0}

    def _keep(
        self,
        wanted: CellsToShare,
        path: str,
        report: Mapping[str, Any],
        lease: socket.socket,
        current: object,
    ) -> None:
        cells = {
            index: RanCell(**ran)
            for index, ran in zip(wanted.sources, report["cells"], strict=False)
        }
        shared = SharedRun(path=path, cells=cells, seeded=report["seeded"])
        with self._lock:
            if self._current is not current:
                lease.close()
                return
            self._shared, self._lease = shared, lease
        until = f" (then {wanted.ended_by})" if wanted.ended_by else ""
        took_s = shared.duration_s
        _log.info("%d cells have run for all trials in %.1f s%s", len(cells), took_s, until)


def _unsharable_modules(
    wanted: CellsToShare, ran: Sequence[dict[str, Any]], frozen: FrozenModules
) -> dict[str, Any]:
    """Whether a module of the project that the cells have imported keeps them from being shared.

    Returns:
        `why` and `refused_at`, as the report of the cells has them.
    """
    files: list[str] = []
    for place, cell in enumerate(ran):
        files += cell.pop("local_modules")
        cells = list(wanted.sources.values())[: place + 1]
        why = why_module_unsharable(files, cells, frozen.sources) if files else None
        if why is not None:
            for later in ran:
                later.pop("local_modules", None)
            return {"why": why, "refused_at": place}
    return {"why": None, "refused_at": None}
