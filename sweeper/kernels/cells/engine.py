"""Execute a notebook in place of papermill's engine.

Unlike papermill's engine, this one does not mark cells that never ran as completed. It also keeps
the notebook's file up to date while a cell runs.
"""

from __future__ import annotations

import datetime
import math
import time
from collections.abc import Callable
from typing import Any

from nbformat import NotebookNode
from papermill.engines import NotebookExecutionManager
from zmq import ZMQError

from ...errors import first_line
from ...trials import Control
from ..process.event_loop import thread_event_loop
from ..process.manager import LIBRARY_LOG
from ..process.pool import KernelPool
from .client import CATCH_UP_S, CellStatus, SweepClient
from .inject import assignments
from .request import Ending, ExecutionRequest, Finished, KernelResult, NotStarted, Stopped

#: The last outputs of a cell may arrive up to this number of seconds after the kernel's reply that
#: the cell has ended (chosen, not measured). With a limit of one minute, trials failed: reading a
#: million lines takes minutes on a busy machine.
_IOPUB_TIMEOUT_S = 600
#: If a signal has ended a kernel, wait up to `_DOUBT_S` seconds for a stop of its trial, and check
#: for it every `_LOOK_S` seconds (chosen, not measured). A machine or a job of SLURM that ends may
#: kill kernels shortly before the sweep or the Dask worker. Then the trials must not fail.
_DOUBT_S, _LOOK_S = 2.0, 0.02


class LiveNotebook(NotebookExecutionManager):
    """Records how cells ran, in papermill's form, with the true state of each cell.

    papermill's own class marks each cell that did not raise as completed, even if it never ran.

    Args:
        nb: Notebook that is executed.
        write: Function that writes the notebook's file.
    """

    def __init__(self, nb: NotebookNode, *, write: Callable[[], None]) -> None:
        # Switch off papermill's saving, which saves only when a message arrives. The client saves
        # at intervals.
        super().__init__(nb, progress_bar=False, autosave_cell_every=0)
        self._write = write
        self._written_s = -math.inf
        self._is_behind = False

    def save(self, **_: Any) -> None:
        """Write the notebook's file, unless it was written less than 0.2 s ago.

        If the file is not written now, the next call of `catch_up` writes it.
        """
        self._is_behind = True
        if time.monotonic() - self._written_s >= CATCH_UP_S:
            self.catch_up()

    def catch_up(self) -> None:
        """Write the notebook's file if it is out of date."""
        if self._is_behind:
            self._write()
            self._is_behind = False
            self._written_s = time.monotonic()

    def cell_end(self, cell: NotebookNode, status: CellStatus) -> None:
        """Record how a cell ended, and save."""
        if status is CellStatus.FAILED:
            self.cell_exception(cell)
        record = cell.metadata.papermill
        ended = self.now()
        started = datetime.datetime.fromisoformat(record["start_time"])
        record["end_time"] = ended.isoformat()
        record["duration"] = (ended - started).total_seconds()
        record["status"] = str(status)
        self.save()

    def notebook_complete(self, **_: Any) -> None:
        """Record how long the notebook ran. Cells that never ran keep the status `pending`."""
        self.end_time = self.now()
        record = self.nb.metadata.papermill
        record["end_time"] = self.end_time.isoformat()
        record["duration"] = (self.end_time - self.start_time).total_seconds()


def execute(request: ExecutionRequest, *, pool: KernelPool) -> KernelResult:
    """Run all cells of a notebook in a kernel of its own.

    This function replaces papermill's engines, which do not see the kernel's messages.

    Args:
        request: Notebook to execute, with its running trial, settings and callbacks.
        pool: Provides the kernel.

    Raises:
        OSError: The notebook's file cannot be written.
    """
    live = LiveNotebook(request.node, write=request.write)
    live.notebook_start()
    try:
        with thread_event_loop():
            return _execute(live, request, pool)
    finally:
        live.notebook_complete()


def _execute(live: LiveNotebook, request: ExecutionRequest, pool: KernelPool) -> KernelResult:
    """Get a kernel, run the cells in it, and let it end in the background.

    Args:
        live: Record of how the cells ran, which also writes the notebook's file.
        request: Notebook to execute, with its running trial, settings and callbacks.
        pool: Provides the kernel.
    """
    try:
        kernel = pool.take(request.env, request.origin)
    except OSError as error:
        request.on_kernel_gone(True)
        return KernelResult(ending=NotStarted(first_line(error)))
    options = {"iopub_timeout": _IOPUB_TIMEOUT_S, "timeout": None, "log": LIBRARY_LOG}
    try:
        client = SweepClient(live, kernel=kernel, request=request, **options)
    except OSError as error:  # No file descriptor is left for the client's socket.
        kernel.kill(request.on_kernel_gone)
        return KernelResult(ending=NotStarted(first_line(error)))
    try:
        _run_cells(client, pool)
    except (RuntimeError, OSError, ZMQError) as error:
        if not isinstance(client.ending, NotStarted):
            # The kernel has started, so the error has another cause: a file cannot be written, or
            # this package has a bug.
            raise
        client.ending = NotStarted(first_line(error))
    finally:
        client.disconnect()
        stderr_tail = kernel.stderr_tail()
        if isinstance(client.ending, NotStarted):
            # A kernel that never answered might not receive a shutdown request either.
            kernel.kill(request.on_kernel_gone)
        else:
            pool.retire(kernel, request.on_kernel_gone)
    return KernelResult(
        ending=_ending(client),
        exit_code=client.exit_code,
        stderr_tail=stderr_tail,
        answer=client.answer,
        origin=kernel.origin,
        is_orphan=kernel.is_orphan,
        libraries=frozenset(client.reports.libraries),
    )


def _run_cells(client: SweepClient, pool: KernelPool) -> None:
    """Connect to the kernel, run the cells, and tell the fork server what the cells import."""
    request = client.request
    shared = client.kernel.origin.shared
    client.connect(request.env if pool.can_prepare else None)
    request.on_kernel_ready()
    if request.prepares_next:
        pool.prepare()
    if shared is not None:
        client.take_over(shared, assignments(request.own_params, request.node))
    client.run(reads_imports=pool.fork_server.wants_import_profile)
    imports = client.answer.imports
    # `record_imports` starts a process to fork kernels from, which only saves time in further
    # trials.
    if imports is not None and request.running.trials_left > 0:
        pool.fork_server.record_imports(imports)


def _ending(client: SweepClient) -> Ending:
    """Return how the execution ended.

    If the trial was stopped, this is `Stopped`, even if a cell failed or the kernel died. There is
    one exception: the notebook has finished, its scores were read before any interrupt of the
    kernel, and `should_stop` has not returned True.
    """
    if client.exit_code is not None and client.exit_code < 0:
        wait_for_stop(client.running.control)
    has_finished = isinstance(client.ending, Finished) and not client.reports.is_stopping
    if client.running.control.stop_reason and not has_finished:
        return Stopped()
    return client.ending


def wait_for_stop(control: Control) -> bool:
    """Wait up to 2 s for a stop of the trial, and return whether it was stopped.

    When a machine ends all processes, the signal may reach a kernel, or a process of its notebook,
    before the sweep has handled its own signal and stopped the trial. Without the wait, such a
    trial would count as failed.
    """
    end_s = time.monotonic() + _DOUBT_S
    while control.stop_reason is None and time.monotonic() < end_s:
        time.sleep(_LOOK_S)
    return control.stop_reason is not None
