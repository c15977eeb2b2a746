"""Execute a notebook as papermill does: true states of cells, and files written as they change."""

from __future__ import annotations

import datetime
import logging
import math
import time
from collections.abc import Callable
from typing import Any

from nbformat import NotebookNode
from papermill.engines import NotebookExecutionManager
from zmq import ZMQError

from ...errors import first_line, shortened
from ...trials import RunningTrial
from ..process.event_loop import thread_event_loop
from ..process.pool import KernelPool
from .client import CATCH_UP_S, SweepClient
from .expressions import Shown
from .inject import assignments
from .request import Ending, ExecutionRequest, KernelResult

#: How long after a cell's reply its last outputs may still arrive.
_IOPUB_TIMEOUT_S = 60

_log = logging.getLogger(__name__)


class LiveNotebook(NotebookExecutionManager):
    """papermill's record of how cells ran, with states that are true.

    papermill marks every cell as completed that did not raise, also those that never ran.

    Args:
        write: writes the notebook's file.
    """

    STOPPED = "stopped"

    def __init__(self, nb: NotebookNode, *, write: Callable[[], None]) -> None:
        # papermill saves only when a message arrives; the client does it by time.
        super().__init__(nb, progress_bar=False, autosave_cell_every=0)
        self._write = write
        self._written_s = -math.inf
        self._is_behind = False

    def save(self, **_: Any) -> None:
        """Write the notebook, unless it was written just before; `catch_up` writes it then."""
        self._is_behind = True
        if time.monotonic() - self._written_s >= CATCH_UP_S:
            self.catch_up()

    def catch_up(self) -> None:
        """Write what has changed since the last time."""
        if self._is_behind:
            self._write()
            self._is_behind, self._written_s = False, time.monotonic()

    def cell_end(self, cell: NotebookNode, status: str) -> None:
        """State how a cell ended, and save."""
        if status == self.FAILED:
            self.cell_exception(cell)
        ended = self.now()
        started = datetime.datetime.fromisoformat(cell.metadata.papermill["start_time"])
        cell.metadata.papermill["end_time"] = ended.isoformat()
        cell.metadata.papermill["duration"] = (ended - started).total_seconds()
        cell.metadata.papermill["status"] = status
        self.save()

    def notebook_complete(self, **_: Any) -> None:
        """State how long the notebook took; cells that never ran stay `pending`."""
        self.end_time = self.now()
        self.nb.metadata.papermill["end_time"] = self.end_time.isoformat()
        self.nb.metadata.papermill["duration"] = (self.end_time - self.start_time).total_seconds()


def execute(request: ExecutionRequest, *, pool: KernelPool) -> KernelResult:
    """Run all cells of a notebook in a kernel of its own; papermill's engines see no message.

    Args:
        request: the notebook, and what its trial needs.
        pool: gives the kernel.

    Raises:
        OSError: the notebook could not be written.
    """
    live = LiveNotebook(request.node, write=request.write)
    live.notebook_start()
    try:
        with thread_event_loop():
            return _execute(live, request, pool)
    finally:
        live.notebook_complete()


def _execute(live: LiveNotebook, request: ExecutionRequest, pool: KernelPool) -> KernelResult:
    """Take a kernel, run the cells in it, and have it end while the caller goes on."""
    try:
        kernel = pool.take(request.env, request.origin)
    except OSError as error:
        request.on_kernel_gone(True)
        return KernelResult(ending=Ending.NOT_STARTED, error=first_line(error))
    client = SweepClient(
        live, kernel=kernel, request=request, iopub_timeout=_IOPUB_TIMEOUT_S, timeout=None, log=_log
    )
    try:
        client.connect(request.env if pool.can_prepare else None)
        request.on_kernel_ready()
        if request.prepares_next:
            pool.prepare()
        if kernel.origin.shared is not None:
            client.take_over(kernel.origin.shared, assignments(request.own_params, request.node))
        client.run(reads_imports=pool.fork_server.wants_import_profile)
        # A zygote for no further trial would import everything for nothing.
        imports = client.answer.imports
        if imports is not None and request.running.trials_left > 0:
            pool.fork_server.record_imports(imports)
    except (RuntimeError, OSError, ZMQError) as error:
        if client.is_ready:  # what fails later is the notebook's file, or a defect
            raise
        client.error = first_line(error)
    finally:
        client.disconnect()
        tail = kernel.stderr_tail()
        if client.is_ready:
            pool.retire(kernel, request.on_kernel_gone)
        else:  # it has run nothing, and may not be reached by a request to end
            kernel.kill(request.on_kernel_gone)
    return KernelResult(
        ending=_ending(client, request.running),
        error=shortened(client.error or ""),
        exit_code=client.exit_code,
        stderr_tail=tail,
        variables=client.answer.floats,
        values={
            name: value.text if isinstance(value, Shown) else value
            for name, value in client.answer.values.items()
        },
        origin=kernel.origin,
        is_orphan=kernel.is_orphan,
        gpu_bytes=client.answer.gpu_bytes,
        not_replicable=client.answer.not_replicable,
        libraries=frozenset(client.reports.libraries),
    )


def _ending(client: SweepClient, running: RunningTrial) -> Ending:
    if client.has_finished and not client.reports.is_stopping:
        return Ending.FINISHED
    if running.stop_reason:
        return Ending.STOPPED
    if not client.is_ready:
        return Ending.NOT_STARTED
    if client.died:
        return Ending.KERNEL_DIED
    return Ending.CELL_FAILED
