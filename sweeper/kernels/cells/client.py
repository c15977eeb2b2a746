"""Execute the cells of one trial, and process each message of the kernel as it arrives."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from enum import StrEnum
from typing import Any

import zmq
from jupyter_core.utils import ensure_event_loop
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from nbclient.util import run_sync
from nbformat import NotebookNode
from papermill.clientwrap import PapermillNotebookClient

from ...errors import shortened
from ...notebook_api.messages import (
    KERNEL_VARIABLE,
    MIME,
    REPORTS_VARIABLE,
    STOP_VARIABLE,
    Point,
)
from ...notebooks.reading import REDRAWN, cell_tags, is_skipped
from ...notebooks.research import INJECTED_TAG
from ...notebooks.scores import PrintedScores, displayed_point
from ..forking.origins import RanCell, SharedRun
from ..forking.zygote.messages import RECORDED
from ..process.kernel import Kernel
from .expressions import Answer, Question, TrialArguments, prepare_forked, prepare_started
from .outputs import joined, moved, notice, redrawn, shorten_error, size
from .report_socket import ReportSocket
from .request import (
    CellFailed,
    Ending,
    ExecutionRequest,
    Finished,
    KernelDied,
    NotStarted,
    Raised,
    Stopped,
)
from .stopping import NotebookStopper

_log = logging.getLogger(__name__)

# All times below are in seconds. They are chosen, not measured.
#: Longest wait for a kernel's first answer.
_START_LIMIT_S = 120.0
#: While a cell prints or reports, the notebook's file is written at most once per this time.
_AUTOSAVE_S = 2.0
#: While short cells follow each other, the notebook's file may lag behind by this time.
CATCH_UP_S = 0.2
#: While a cell runs, writes of the notebook's file may take at most this share of the time, because
#: no message is read during a write.
_SAVE_SHARE = 1 / 4
#: If the kernel sends no message for this time, a printed line without a line end is also searched
#: for scores.
_SETTLE_S = 0.5
#: If the kernel does not react to a request within this time, it may have overlooked the request.
#: Then a new connection wakes the kernel; see `SweepClient._wake`.
_OVERLOOKED_S = 2.0
#: The connection that wakes the kernel stays open for this time.
_WOKEN_S = 0.5
#: If a cell's output is within its limit once overwritten text is removed, the removal is repeated
#: after the output has grown by this share of the limit (chosen, not measured). If it were repeated
#: after each message, its time would grow with the square of the output.
_SLACK = 0.1
#: If a dead kernel's sockets bring no message for this time, its messages count as complete.
_LAST_MESSAGES_S = 0.03
#: Values of SystemExit after `sys.exit()`, `exit()` and `sys.exit(0)`. With one of them, a notebook
#: ends itself without a failure.
_CLEAN_EXITS = ("", "None", "0", "False")
_ARGPARSE_HINT = (
    "; argparse has read the arguments of the kernel: write parse_args([]) in the notebook"
)
_TERMINAL_CODES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


class CellStatus(StrEnum):
    """How a cell ended. The first two values are papermill's.

    Attributes:
        COMPLETED: The cell raised no exception, or ended the notebook by a clean `exit()`.
        FAILED: The cell raised an exception or the kernel died, and the trial was not stopped. Or
            messages of the kernel were lost.
        STOPPED: The cell raised an exception or the kernel died after the trial was stopped.
    """

    COMPLETED = "completed"
    FAILED = "failed"
    STOPPED = "stopped"


class SweepClient(PapermillNotebookClient):
    """Runs the cells of one trial, and evaluates expressions in its kernel.

    Args:
        nb_man: papermill's record of how cells ran.
        kernel: Process of the kernel.
        request: Notebook to execute, with its running trial, settings and callbacks.
        **options: Further options of nbclient.

    Attributes:
        kernel: Process of the kernel. If it ends, the client no longer waits for a reply.
        request: Notebook to execute, with its running trial, settings and callbacks.
        running: The running trial, which receives the points (reported values) and can be stopped.
        printed: Finds scores in printed text.
        reports: Socket that receives the notebook's points, and messages about its reaction to a
            stop.
        ending: How the execution has ended. `NotStarted` until `connect` has succeeded. Then
            `Stopped`, until the notebook finishes, a cell fails without a stop or the kernel dies.
            `Stopped` again if the kernel was interrupted before the last value was read.
        exit_code: Exit code of a kernel that died (see `KernelDied`), even if a stop has killed it.
            Negative for a signal. None if the kernel has not died.
        answer: Values that the client read in the kernel after the last cell.
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
        self.printed = PrintedScores(request.score_sources, request.running.points.publish)
        self.loop = ensure_event_loop()
        self.reports = ReportSocket()
        self.ending: Ending = NotStarted("it has given no answer")
        self.exit_code: int | None = None
        self.answer = Answer()
        self._first_index = 0
        self._output_bytes = 0
        #: When a cell's output exceeds this size in bytes, overwritten text is removed from it, and
        #: the rest is compared with the limit.
        self._unchecked_bytes = request.cell_output_bytes
        self._messages = 0

    def connect(self, env: Mapping[str, str] | None) -> None:
        """Wait until the kernel answers, and prepare it for its trial.

        Args:
            env: Environment variables to set in the kernel. None for a kernel other than ipykernel:
                such a kernel was started with the trial's variables, and is not prepared.

        Raises:
            RuntimeError: The kernel died, did not answer in time, or its trial was stopped.
        """
        self.reset_execution_trackers()
        self.kc = self.km.client()
        self.kc.start_channels()
        run_sync(self.kc.wait_until_ready)(
            limit_s=_START_LIMIT_S, is_wanted=lambda: self.running.control.stop_reason is None
        )
        self.nb.metadata["language_info"] = self.kc.language_info
        if env is not None:
            self._prepare(env)
        self.running.points.note_kernel(self.kernel.pid)
        self.running.points.note_cells(0, len(self.nb.cells))
        self.ending = Stopped()

    def _prepare(self, env: Mapping[str, str]) -> None:
        """Begin to receive points (reported values), and let the kernel run the code for its trial.

        The code sets, for example, the environment variables, the GPU memory limit and the seed.

        Args:
            env: Environment variables of the trial.
        """
        self.reports.bind(self.kernel.reports_socket)
        self.loop.add_reader(self.reports, self._take_reports)
        environment = {
            **env,
            STOP_VARIABLE: str(self.kernel.stop_file),
            REPORTS_VARIABLE: str(self.kernel.reports_socket),
            KERNEL_VARIABLE: str(self.kernel.pid),
        }
        trial = TrialArguments(
            environment=environment,
            gpu_fraction=self.request.gpu_fraction,
            random_seed=self.request.random_seed,
        )
        if self.kernel.origin.is_forked:
            code = prepare_forked(trial)
        else:
            code = prepare_started(trial, self.kernel.setup.frozen)
        self._run_silently(code)

    def take_over(self, shared: SharedRun, assignments: str) -> None:
        """Write the outputs of the shared cells into the notebook, as if these cells ran now.

        These are the cells up to the last one tagged `shared`. They have run once for all trials,
        before the kernel was forked. If the injected cell is one of them, also assign this trial's
        params in the kernel.

        Args:
            shared: The cells that ran before the fork, with the messages that they sent.
            assignments: Code that assigns the injected params that differ between trials.
        """
        self._first_index = shared.until
        cells = self.nb.cells[: shared.until]
        for index, cell in enumerate(cells):
            self.nb_man.cell_start(cell, index)
            if index in shared.cells:
                self._replay(shared.cells[index], cell, index)
            self.nb_man.cell_end(cell, CellStatus.COMPLETED)
        if any(INJECTED_TAG in cell_tags(cell) for cell in cells):
            self._run_silently(assignments)

    def _replay(self, ran: RanCell, cell: NotebookNode, index: int) -> None:
        """Process the recorded messages of a shared cell as if the cell ran now.

        Args:
            ran: The cell's messages and execution count, recorded before the kernel was forked.
            cell: The cell in this trial's notebook, which gets the outputs.
            index: Index of the cell in the notebook.
        """
        self._begin_outputs()
        self.clear_before_next_output = False
        cell.execution_count = ran.execution_count
        cell.outputs = []
        for message in ran.messages:
            complete = {
                **deepcopy(message),  # Each trial gets a copy of its own.
                "header": {"msg_type": message["msg_type"]},
                "parent_header": {"msg_id": RECORDED},
                "buffers": [],
            }
            self.process_message(complete, cell, index)
        self._end_outputs(cell, index)

    def disconnect(self) -> None:
        """Close the sockets. The kernel itself keeps running."""
        self.loop.remove_reader(self.reports)
        self.reports.close()
        if self.kc is not None:
            self.kc.stop_channels()

    def run(self, *, reads_imports: bool) -> None:
        """Run all cells, and read the requested variables.

        Args:
            reads_imports: Whether to also read which modules the notebook has imported.
        """
        with NotebookStopper(
            kernel=self.kernel, request=self.request, reports=self.reports, loop=self.loop
        ) as stopper:
            self.papermill_execute_cells()
            if not isinstance(self.ending, KernelDied):
                self._read_values(reads_imports=reads_imports)
                if stopper.has_interrupted and isinstance(self.ending, Finished):
                    # The interrupt may have cut short the last cell or the reading of a score.
                    self.ending = Stopped()
                self.set_widgets_metadata()
            self._take_reports()

    def papermill_execute_cells(self) -> None:
        """Run the cells in order, up to the first cell that does not complete."""
        for index, cell in enumerate(self.nb.cells):
            if index < self._first_index or is_skipped(cell):
                continue
            if self.running.control.stop_reason:
                return
            self._begin_outputs()
            self.running.points.note_cells(index + 1, len(self.nb.cells))
            self.nb_man.cell_start(cell, index)
            status = self._run_cell(cell, index)
            self.nb_man.cell_end(cell, status)
            if status is not CellStatus.COMPLETED or isinstance(self.ending, Finished):
                return
        self.ending = Finished()

    def _run_cell(self, cell: NotebookNode, index: int) -> CellStatus:
        """Run one cell. Set `ending` if the cell fails or calls `exit()`, or if the kernel dies.

        If the trial was stopped, an exception of the cell does not change `ending`.
        """
        try:
            self.execute_cell(cell, index)
        except CellExecutionError as error:
            if self.running.control.stop_reason:  # The stop made the cell raise.
                self._replace_traceback(cell)
                return CellStatus.STOPPED
            if error.ename == "SystemExit" and error.evalue in _CLEAN_EXITS:
                self.ending = Finished()
                return CellStatus.COMPLETED
            return self._failed(cell, *self._raised(error, cell))
        except DeadKernelError:
            self._died()
            return CellStatus.STOPPED if self.running.control.stop_reason else CellStatus.FAILED
        except CellTimeoutError as error:
            # nbclient raises this error after `iopub_timeout` seconds if messages were lost.
            return self._failed(cell, type(error).__name__, str(error))
        return CellStatus.COMPLETED

    def _died(self) -> None:
        self.ending = KernelDied()
        self.exit_code = self.kernel.exit_code

    def _failed(self, cell: NotebookNode, exception: str, why: str) -> CellStatus:
        count = cell.execution_count
        error = shortened(f"In [{count}]: {why}")
        self.ending = CellFailed(Raised(count, exception), error)
        return CellStatus.FAILED

    def _raised(self, error: CellExecutionError, cell: NotebookNode) -> tuple[str, str]:
        """Return the class name of the exception that a cell has raised, and a message for people.

        The message has the class name and the exception's text. If argparse seems to have raised
        the exception, the message also says how to correct the notebook.
        """
        name, value = error.ename, error.evalue
        shown = [output for output in cell.outputs if output.output_type == "error"]
        if shown and name == "NoneType":
            # IPython could not display the value of the cell's last line. Then only the cell's
            # output names the exception.
            name, value = shown[-1].ename, shown[-1].evalue
        text = _TERMINAL_CODES.sub("", f"{name}: {value}").strip()
        parses = any("parse_args" in other.source for other in self.nb.cells)
        if (name, value) == ("SystemExit", "2") and parses:
            text += _ARGPARSE_HINT
        return name, text

    async def _async_execute_and_save(
        self, cell: NotebookNode, cell_index: int, *arguments: Any, **options: Any
    ) -> None:
        """Run a cell. Write the notebook's file at intervals while the cell runs."""
        before = self._messages
        companions = [
            asyncio.ensure_future(self._save_by_time()),
            asyncio.ensure_future(self._settle_by_time()),
            asyncio.ensure_future(self._wake(lambda: self._messages > before)),
        ]
        try:
            await self.async_execute_cell(cell, cell_index, *arguments, **options)
        finally:
            for task in companions:
                task.cancel()
            self._end_outputs(cell, cell_index)

    # nbclient's `execute_cell` runs nbclient's own coroutine. Run the coroutine above instead.
    execute_cell = run_sync(_async_execute_and_save)

    def _end_outputs(self, cell: NotebookNode, cell_index: int) -> None:
        self.printed.end_cell()
        if cell.get("outputs"):
            self._join_outputs(cell, cell_index)

    def _join_outputs(self, cell: NotebookNode, cell_index: int) -> None:
        outputs = cell.outputs
        bytes_before = _bytes_of(outputs)
        if streams := {*cell.metadata.get(REDRAWN, ()), *redrawn(outputs)}:
            cell.metadata[REDRAWN] = sorted(streams)
        cell.outputs = joined(outputs)
        moved(self._display_id_map, cell_index, outputs, cell.outputs)
        self._output_bytes -= bytes_before - _bytes_of(cell.outputs)

    async def _save_by_time(self) -> None:
        saved = self._messages + self.running.points.reports
        await asyncio.sleep(CATCH_UP_S)
        _save_if_possible(self.nb_man.catch_up)
        interval_s = _AUTOSAVE_S
        while True:
            await asyncio.sleep(interval_s)
            seen = self._messages + self.running.points.reports
            if seen == saved:
                continue
            saved, started_s = seen, time.monotonic()
            _save_if_possible(self.nb_man.save)
            took_s = time.monotonic() - started_s
            interval_s = max(_AUTOSAVE_S, took_s / _SAVE_SHARE)

    async def _settle_by_time(self) -> None:
        """Find scores in unfinished lines if the kernel has sent no message for 0.5 s.

        Progress bars print lines without a line end.
        """
        while True:
            seen = self._messages
            await asyncio.sleep(_SETTLE_S)
            if self._messages == seen:
                self.printed.settle()

    async def _async_poll_kernel_alive(self) -> None:
        """Wait until the kernel dies. nbclient's own method would notice up to a second later."""
        await self.kernel.ended()
        seen = -1
        while seen != self._messages:
            # Wait until no more messages arrive: outputs that the dead kernel has sent may not be
            # read yet.
            seen = self._messages
            await asyncio.sleep(_LAST_MESSAGES_S)
        assert self.task_poll_for_reply is not None
        self.task_poll_for_reply.cancel()

    # --- messages ---------------------------------------------------------------------------

    def _take_reports(self) -> None:
        for point in self.reports.take():
            self.running.points.publish(point)

    def process_message(
        self, msg: dict[str, Any], cell: NotebookNode, cell_index: int
    ) -> NotebookNode | None:
        """Process a message of the running cell as soon as it arrives."""
        self._messages += 1
        kind, content = msg["msg_type"], msg["content"]
        self._publish_displayed(content.get("data"))
        if kind == "stream":
            self.printed.read(content["name"], content["text"])
        if self._is_too_much(kind, content, cell, cell_index) or _is_odd_comm(kind, content):
            return None
        output: NotebookNode | None = super().process_message(msg, cell, cell_index)
        if self.comm_objects:
            # nbclient answers an `Output` widget without asyncio. asyncio then misses a message
            # that has arrived in the meantime, and would wait forever for the cell's reply. Reading
            # the socket's events makes asyncio notice this message.
            self.kc.shell_channel.socket.get(zmq.EVENTS)
        return output

    def _publish_displayed(self, data: Any) -> None:
        """Give the running trial the point (values of metrics) in a display's data, if any."""
        if not isinstance(data, dict):
            return
        if MIME in data:
            # The point is stored in the notebook's metadata, so remove it from the cell's output.
            self.running.points.publish(Point.decode(data.pop(MIME)))
            return
        point = displayed_point(data)
        if point is not None:
            self.running.points.publish(point)

    def _begin_outputs(self) -> None:
        """Begin to count the bytes of a cell's output from 0.

        Called when a cell begins, and when its output is cleared.
        """
        self._output_bytes = 0
        self._unchecked_bytes = self.request.cell_output_bytes

    def _is_too_much(
        self, kind: str, content: dict[str, Any], cell: NotebookNode, cell_index: int
    ) -> bool:
        """Count the bytes of a cell's output. Return whether a message must be dropped.

        It must be dropped if the output with the message exceeds `limits.cell_output`. Text that a
        progress bar has overwritten does not count. One line in the cell's output says that the
        rest is dropped. A message without output is never dropped. An error is shortened instead,
        because it says why the cell failed.

        Args:
            kind: Type of the message, such as `stream`.
            content: Content of the message. The content of an error may be shortened in place.
            cell: Cell that is running.
            cell_index: Index of the cell in the notebook.
        """
        limit = self.request.cell_output_bytes
        if kind == "clear_output":
            self._begin_outputs()
        if not size(kind, content):
            # A message without output is never dropped, because nbclient may wait for it, as for
            # the kernel's state.
            return False
        if self._output_bytes <= self._unchecked_bytes:
            self._output_bytes += self._added(kind, content)
            if self._output_bytes <= self._unchecked_bytes:
                return False
            self._join_outputs(cell, cell_index)
            self._unchecked_bytes = limit
            if self._output_bytes <= limit:
                self._unchecked_bytes = max(limit, self._output_bytes + int(_SLACK * limit))
                return False
            text = (
                f"the output of this cell exceeds {limit:,} bytes; "
                "the rest is left out (limits.cell_output)"
            )
            cell.outputs.append(notice(text))
        if kind != "error":
            return True
        if cell.outputs[-1].output_type == "error":
            cell.outputs.pop()
        shorten_error(content)
        return False

    def _added(self, kind: str, content: Mapping[str, Any]) -> int:
        """Return by how many bytes a message enlarges the notebook.

        A display that has an id also replaces the content of all earlier displays with this id.

        Args:
            kind: Type of the message, such as `stream`.
            content: Content of the message.
        """
        display_id = (content.get("transient") or {}).get("display_id")
        displays = [
            self.nb.cells[cell].outputs[place]
            for cell, places in self._display_id_map.get(display_id, {}).items()
            for place in places
        ]
        copies = len(displays)
        if kind != "update_display_data":
            copies += 1
        replaced = sum(size(display.output_type, display) for display in displays)
        return copies * size(kind, content) - replaced

    def _replace_traceback(self, cell: NotebookNode) -> None:
        """Replace the traceback in a stopped cell with the reason for the stop."""
        cell.outputs = [output for output in cell.outputs if output.output_type != "error"]
        control = self.running.control
        cell.outputs.append(notice(control.message or f"stopped: {control.stop_reason}"))

    # --- requests while a cell runs, or between cells -------------------------------------------

    async def _wake(self, has_begun: Callable[[], bool]) -> None:
        """Make the kernel find a request that it has overlooked, by opening a new connection.

        ipykernel 7.0 to 7.3 may overlook a request that arrives while it sends a reply
        (ipython/ipykernel#1529). The kernel then waits forever. Further requests do not wake the
        kernel, but a new connection does. A new connection does not disturb a busy kernel.

        Args:
            has_begun: Returns whether the kernel has begun to work on the request.
        """
        await asyncio.sleep(_OVERLOOKED_S)
        while not has_begun():
            connection = self.km.connect_shell()
            try:
                await asyncio.sleep(_WOKEN_S)
            finally:
                # Close the connection also if the end of the cell cancels this task.
                connection.close(linger=0)
            await asyncio.sleep(_OVERLOOKED_S)

    def _run_silently(self, code: str) -> None:
        """Send code to the kernel, but do not wait until it has run.

        The code leaves no trace in the notebook. The kernel runs it before any request that is sent
        later.
        """
        self.kc.execute(code, silent=True, store_history=False)

    async def _async_ask(self, question: Question) -> Answer | None:
        """Ask the kernel a question. Return None if the kernel dies."""
        request = self.kc.execute(
            "", silent=True, store_history=False, user_expressions=question.as_expressions()
        )
        reply = asyncio.ensure_future(self._reply_to(request))
        waker = asyncio.ensure_future(self._wake(reply.done))
        death = asyncio.ensure_future(self.kernel.ended())
        try:
            await asyncio.wait({reply, death}, return_when=asyncio.FIRST_COMPLETED)
            return Answer.of(reply.result()) if reply.done() else None
        finally:
            for task in (reply, waker, death):
                task.cancel()

    async def _reply_to(self, request: str) -> dict[str, Any]:
        while True:
            message = await self.kc.shell_channel.get_msg(timeout=None)
            if message["parent_header"].get("msg_id") == request:
                return dict(message["content"].get("user_expressions", {}))

    _ask = run_sync(_async_ask)

    # --- the last request ---------------------------------------------------------------------

    def _read_values(self, *, reads_imports: bool) -> None:
        """Ask the kernel for the requested values, and store them in `answer`.

        With its answer, the kernel also prepares for a quick exit; see `in_kernel._end_in_order`.
        """
        has_failed = isinstance(self.ending, CellFailed)
        answer = self._ask(
            Question(
                floats=self.request.variables,
                values=() if has_failed else self.request.values,
                reads_imports=reads_imports and isinstance(self.ending, Finished),
            )
        )
        if answer is not None:
            self.answer = answer
        elif isinstance(self.ending, Finished) and self.kernel.exit_code != 0:
            # With exit code 0, the last cell has ended the kernel on purpose, as to free the GPU.
            self._died()


def _save_if_possible(save: Callable[[], None]) -> None:
    try:
        save()
    except OSError as error:
        # Ignore the error: the file is written again within seconds, and at the trial's end. If the
        # write at the end fails too, users get a warning.
        _log.info("the executed notebook could not be saved, and is saved later: %s", error)


def _bytes_of(outputs: Sequence[NotebookNode]) -> int:
    return sum(size(output.output_type, output) for output in outputs)


def _is_odd_comm(kind: str, content: dict[str, Any]) -> bool:
    """Return whether a message of a widget has data that is not a dictionary.

    nbclient expects that the data is a dictionary.

    Args:
        kind: Type of the message, such as `comm_open`.
        content: Content of the message.
    """
    return kind in ("comm_open", "comm_msg") and not isinstance(content.get("data"), dict)
