"""Execute the cells of one trial, and process every message of the kernel as it arrives."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Callable, Mapping
from typing import Any

import zmq
from jupyter_core.utils import ensure_event_loop
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from nbclient.util import run_sync
from nbformat import NotebookNode
from papermill.clientwrap import PapermillNotebookClient

from ...notebook_api.messages import (
    KERNEL_VARIABLE,
    MIME,
    REPORTS_VARIABLE,
    STOP_VARIABLE,
    Point,
)
from ...notebooks.reading import cell_tags
from ...notebooks.scores import PrintedScores, displayed_point
from ..forking.origins import RanCell, SharedRun
from ..forking.zygote.messages import RECORDED
from ..process.kernel import Kernel
from .expressions import Answer, Question, prepare_forked, prepare_started
from .outputs import joined, moved, notice, shorten_error, size
from .report_socket import ReportSocket
from .request import ExecutionRequest
from .stopping import NotebookStopper

_log = logging.getLogger(__name__)

#: How long a kernel may take to answer for the first time.
_START_LIMIT_S = 120.0
#: How often the file is brought up to date while a cell puts out anything; and how far the file may
#: be behind while short cells follow each other.
_AUTOSAVE_S = 2.0
CATCH_UP_S = 0.2
#: How often to see whether a printed line that has not ended is at rest.
_SETTLE_S = 0.5
#: How long a kernel may be silent about a request before it is made to look for it, and how long
#: the connection is open that makes it look.
_OVERLOOKED_S, _WOKEN_S = 2.0, 0.5
#: After a kernel's death, its messages are read until none has come for this long.
_LAST_MESSAGES_S = 0.03
#: The values of SystemExit after `sys.exit()`, `exit()` and `sys.exit(0)`, with which a notebook
#: ends itself without a failure.
_CLEAN_EXITS = ("", "None", "0", "False")
_ARGPARSE = "; argparse has read the arguments of the kernel: write parse_args([]) in the notebook"
_TERMINAL_CODES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


class SweepClient(PapermillNotebookClient):
    """Runs the cells of one trial, and evaluates expressions beside them.

    Attributes:
        kernel: the kernel's process, whose end also ends the wait for a reply.
        reports: receives what the notebook reports, and what it does about a stop.
        is_ready: whether the kernel has answered.
        has_finished: whether the notebook came to its end, or ended itself with `sys.exit()`.
        error: the cell that failed, with its exception; None when none did.
        exit_code: the code of a kernel that ended by itself; negative for a signal.
        answer: what was read in the kernel after the last cell.
    """

    def __init__(
        self,
        nb_man: Any,
        *,
        kernel: Kernel,
        request: ExecutionRequest,
        **options: Any,
    ) -> None:
        super().__init__(nb_man, km=kernel.manager, kernel_name=kernel.setup.name, **options)
        self.kernel = kernel
        self.request = request
        self.running = request.running
        self.printed = PrintedScores(request.score_sources, request.running.publish)
        self.reports = ReportSocket()
        self.error: str | None = None
        self.is_ready = False
        self.has_finished = False
        self.died = False
        self.exit_code: int | None = None
        self.answer = Answer()
        self._first_index = 0
        self._output_bytes = 0
        self._messages = 0

    def connect(self, env: Mapping[str, str] | None) -> None:
        """Wait until the kernel answers, and prepare it for its trial.

        Args:
            env: variables to set; None for a kernel that cannot be prepared, and has them.

        Raises:
            RuntimeError: the kernel died, did not answer in time, or its trial was stopped.
        """
        self.reset_execution_trackers()
        self.loop = ensure_event_loop()
        self.kc = self.km.client()
        self.kc.start_channels()
        run_sync(self.kc.wait_for_ready)(
            timeout=_START_LIMIT_S, is_wanted=lambda: self.running.stop_reason is None
        )
        self.nb.metadata["language_info"] = self.kc.language_info
        if env is not None:
            self.reports.bind(self.kernel.reports_socket)
            self.loop.add_reader(self.reports, self._take_reports)
            environment = {
                **env,
                STOP_VARIABLE: str(self.kernel.stop_file),
                REPORTS_VARIABLE: str(self.kernel.reports_socket),
                KERNEL_VARIABLE: str(self.kernel.pid),
            }
            fraction = self.request.gpu_fraction
            if self.kernel.origin.is_forked:
                code = prepare_forked(environment, fraction)
            else:
                code = prepare_started(environment, fraction, self.kernel.setup.frozen)
            self._run_silently(code)
        self.running.pid = self.kernel.pid
        self.running.cells = len(self.nb.cells)
        self.is_ready = True

    def take_over(self, shared: SharedRun, assignments: str) -> None:
        """Replay the outputs of shared cells, and assign this trial's values of swept parameters.

        Args:
            shared: the cells that ran before the kernel was forked.
            assignments: code for what the injected cell assigns in this trial only.
        """
        self._first_index = shared.until
        for index, cell in enumerate(self.nb.cells[: shared.until]):
            self.nb_man.cell_start(cell, index)
            if index in shared.cells:
                self._replay(shared.cells[index], cell, index)
            self.nb_man.cell_end(cell, self.nb_man.COMPLETED)
        if any("injected-parameters" in cell_tags(cell) for cell in self.nb.cells[: shared.until]):
            self._run_silently(assignments)

    def _replay(self, ran: RanCell, cell: NotebookNode, index: int) -> None:
        """Take the messages of a shared cell as if it ran now."""
        self._output_bytes, self.clear_before_next_output = 0, False
        cell.execution_count, cell.outputs = ran.execution_count, []
        for message in ran.messages:
            header = {"msg_type": message["msg_type"]}
            parts = {"header": header, "parent_header": {"msg_id": RECORDED}, "buffers": []}
            self.process_message({**message, **parts}, cell, index)
        self._end_outputs(cell, index)

    def disconnect(self) -> None:
        """Close the sockets; the kernel itself goes on."""
        self.loop.remove_reader(self.reports)
        self.reports.close()
        if self.kc is not None:
            self.kc.stop_channels()

    def run(self, *, reads_imports: bool) -> None:
        """Run all cells, and read the requested variables.

        Args:
            reads_imports: whether to read what the notebook has imported, too.
        """
        with NotebookStopper(
            kernel=self.kernel, request=self.request, reports=self.reports, loop=self.loop
        ):
            self.papermill_execute_cells()
            if not self.died:
                self._read_values(reads_imports=reads_imports)
                self.set_widgets_metadata()
            self._take_reports()

    def papermill_execute_cells(self) -> None:
        """Run the cells in order, up to the first that does not complete."""
        for index, cell in enumerate(self.nb.cells):
            if index < self._first_index:
                continue
            if self.running.stop_reason:
                return
            self._output_bytes = 0
            self.running.cell = index + 1
            self.nb_man.cell_start(cell, index)
            status = self._run_cell(cell, index)
            self.nb_man.cell_end(cell, status)
            if status != self.nb_man.COMPLETED or self.has_finished:
                return
        self.has_finished = True

    def _run_cell(self, cell: NotebookNode, index: int) -> str:
        try:
            self.execute_cell(cell, index)
        except CellExecutionError as error:
            if self.running.stop_reason:  # the stop made the cell raise
                self._replace_traceback(cell)
                return str(self.nb_man.STOPPED)
            if error.ename == "SystemExit" and error.evalue in _CLEAN_EXITS:
                self.has_finished = True
                return str(self.nb_man.COMPLETED)
            # Of a value that could not be displayed the reply does not say what was raised.
            shown = [it for it in cell.outputs if it.output_type == "error"][-1:]
            raised = shown[0] if shown and error.ename == "NoneType" else error
            text = _TERMINAL_CODES.sub("", f"{raised.ename}: {raised.evalue}").strip()
            if text == "SystemExit: 2" and any("parse_args" in it.source for it in self.nb.cells):
                text += _ARGPARSE
            self.error = f"In [{cell.execution_count}]: {text}"
            return str(self.nb_man.FAILED)
        except DeadKernelError:
            self.died = True
            self.exit_code = self.kernel.exit_code
            return str(self.nb_man.STOPPED if self.running.stop_reason else self.nb_man.FAILED)
        except CellTimeoutError as error:  # messages of the kernel were lost; see iopub_timeout
            self.error = f"In [{cell.execution_count}]: {error}"
            return str(self.nb_man.FAILED)
        return str(self.nb_man.COMPLETED)

    async def _async_execute_and_save(
        self, cell: NotebookNode, cell_index: int, *arguments: Any, **options: Any
    ) -> NotebookNode:
        """Run a cell; bring the file up to date now and then while it runs."""
        before = self._messages
        others = [
            asyncio.ensure_future(self._save_by_time()),
            asyncio.ensure_future(self._settle_by_time()),
            asyncio.ensure_future(self._wake(lambda: self._messages > before)),
        ]
        try:
            done: NotebookNode = await self.async_execute_cell(
                cell, cell_index, *arguments, **options
            )
            return done
        finally:
            for task in others:
                task.cancel()
            self._end_outputs(cell, cell_index)

    # nbclient binds its own coroutine under the public name.
    execute_cell = run_sync(_async_execute_and_save)

    def _end_outputs(self, cell: NotebookNode, cell_index: int) -> None:
        self.printed.end_cell()
        if outputs := cell.get("outputs", []):
            cell.outputs = joined(outputs)
            moved(self._display_id_map, cell_index, outputs, cell.outputs)

    async def _save_by_time(self) -> None:
        await asyncio.sleep(CATCH_UP_S)
        self.nb_man.catch_up()
        interval_s = _AUTOSAVE_S
        while True:
            seen = self._messages + self.running.reports
            await asyncio.sleep(interval_s)
            if self._messages + self.running.reports != seen:
                started = time.monotonic()
                try:
                    self.nb_man.save()
                except OSError as error:  # the next one, or the trial's end, writes it
                    _log.warning("the executed notebook is behind: %s", error)
                # A large file takes a while, in which no message is read.
                interval_s = max(_AUTOSAVE_S, 4 * (time.monotonic() - started))

    async def _settle_by_time(self) -> None:
        """Find the scores of a progress bar that stands still, too."""
        while True:
            seen = self._messages
            await asyncio.sleep(_SETTLE_S)
            if self._messages == seen:
                self.printed.settle()

    async def _async_poll_kernel_alive(self) -> None:
        """Wait for the kernel's death, which nbclient would look for every second."""
        await self.kernel.ended()
        seen = -1
        while seen != self._messages:  # the last outputs may still lie in the socket
            seen = self._messages
            await asyncio.sleep(_LAST_MESSAGES_S)
        assert self.task_poll_for_reply is not None
        self.task_poll_for_reply.cancel()

    # --- messages ---------------------------------------------------------------------------

    def _take_reports(self) -> None:
        for point in self.reports.take():
            self.running.publish(point)

    def process_message(
        self, msg: dict[str, Any], cell: NotebookNode, cell_index: int
    ) -> NotebookNode | None:
        """Take an output message of the running cell, as soon as it arrives."""
        self._messages += 1
        content = msg["content"]
        data = content.get("data")
        if isinstance(data, dict) and MIME in data:
            # The cell keeps the display without the point, which is kept in the metadata.
            self.running.publish(Point.decode(data.pop(MIME)))
        elif isinstance(data, dict) and (point := displayed_point(data)) is not None:
            self.running.publish(point)
        if msg["msg_type"] == "stream":
            self.printed.read(content["name"], content["text"])
        if self._is_too_much(msg["msg_type"], content, cell):
            return None
        output: NotebookNode | None = super().process_message(msg, cell, cell_index)
        if self.comm_objects:
            # An `Output` widget's answer is sent past asyncio, which then misses a message that
            # came meanwhile; without this line the wait for the cell's reply never ends.
            self.kc.shell_channel.socket.get(zmq.EVENTS)
        return output

    def _is_too_much(self, kind: str, content: dict[str, Any], cell: NotebookNode) -> bool:
        """Count a cell's output; note in the cell once that the rest is dropped.

        The last error says why the cell failed: it is shortened instead.
        """
        if kind == "clear_output":
            self._output_bytes = 0
        n_bytes, limit = size(kind, content), self.request.cell_output_bytes
        if not n_bytes:
            return False
        before = self._output_bytes
        if before <= limit:
            self._output_bytes += self._added(n_bytes, kind, content)
            if self._output_bytes <= limit:
                return False
            text = (
                f"this cell has put out more than {limit:,} bytes; "
                "the rest is not kept (limits.cell_output)"
            )
            cell.outputs.append(notice(text))
        if kind != "error":
            return True
        if cell.outputs[-1].output_type == "error":
            cell.outputs.pop()
        shorten_error(content)
        return False

    def _added(self, n_bytes: int, kind: str, content: Mapping[str, Any]) -> int:
        """By how much a message makes the notebook larger: it may change earlier displays."""
        display_id = (content.get("transient") or {}).get("display_id")
        changed = [
            self.nb.cells[cell].outputs[place]
            for cell, places in self._display_id_map.get(display_id, {}).items()
            for place in places
        ]
        is_new = kind != "update_display_data"
        added = n_bytes * (len(changed) + is_new)
        return added - sum(size(output.output_type, output) for output in changed)

    def _replace_traceback(self, cell: NotebookNode) -> None:
        """Note in a stopped cell why it was stopped; a traceback would look like a failure."""
        cell.outputs = [output for output in cell.outputs if output.output_type != "error"]
        cell.outputs.append(notice(self.running.message or f"stopped: {self.running.stop_reason}"))

    # --- requests beside the cells ------------------------------------------------------------

    async def _wake(self, has_begun: Callable[[], bool]) -> None:
        """Have the kernel find a request that it overlooks.

        ipykernel 7.0 to 7.3 may overlook a request that arrives while it sends a reply
        (ipython/ipykernel#1529). It then waits for ever; no further request wakes it, but a new
        connection does. A kernel that is merely busy is not disturbed by one.
        """
        await asyncio.sleep(_OVERLOOKED_S)
        while not has_begun():
            connection = self.km.connect_shell()
            try:
                await asyncio.sleep(_WOKEN_S)
            finally:  # the whole cell may be done by now, which cancels this
                connection.close(linger=0)
            await asyncio.sleep(_OVERLOOKED_S)

    def _run_silently(self, code: str) -> None:
        """Have the kernel run code that leaves no trace, before any later request."""
        self.kc.execute(code, silent=True, store_history=False)

    async def _async_ask(self, question: Question) -> Answer:
        """Ask the kernel next to the cells; a kernel that has died answers nothing."""
        request = self.kc.execute(
            "", silent=True, store_history=False, user_expressions=question.as_expressions()
        )
        reply = asyncio.ensure_future(self._reply_to(request))
        waker = asyncio.ensure_future(self._wake(reply.done))
        end = asyncio.ensure_future(self.kernel.ended())
        try:
            await asyncio.wait({reply, end}, return_when=asyncio.FIRST_COMPLETED)
            return Answer.of(reply.result()) if reply.done() else Answer()
        finally:
            for task in (reply, waker, end):
                task.cancel()

    async def _reply_to(self, request: str) -> dict[str, Any]:
        while True:
            message = await self.kc.shell_channel.get_msg(timeout=None)
            if message["parent_header"].get("msg_id") == request:
                return dict(message["content"].get("user_expressions", {}))

    _ask = run_sync(_async_ask)

    # --- the last request ---------------------------------------------------------------------

    def _read_values(self, *, reads_imports: bool) -> None:
        """Read the requested values out of the kernel, and prepare it to end in order."""
        self.answer = self._ask(
            Question(
                floats=() if self.error else self.request.variables,
                values=() if self.error else self.request.values,
                reads_imports=self.has_finished and reads_imports,
            )
        )
