"""What a sweep writes to MLflow, and what it knows of it; no trial waits for MLflow.

A process of its own writes. If it dies, another one goes on; the end of a trial that it took with
it is written at the sweep's end, from the executed notebook, or by the next command.
"""

from __future__ import annotations

import logging
import math
import queue
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from multiprocessing.connection import Connection

from ..errors import TrackingError
from ..notebook_api.messages import Point
from ..settings.units import duration
from ..trials import TrialRecord
from . import writer
from .messages import Call, Reply, Series, Store, TimedPoint
from .opening import free_port
from .values import now_ms
from .views import view_url

#: The port of `mlflow ui`, if nothing else has it.
USUAL_PORT = 5000
#: The start and the end of a sweep wait so long for a store that gives no answer (chosen).
PATIENCE_S = 60.0
#: After so long the start says what it waits for (chosen).
_SAY_S = 10.0
#: A call waits so long for others: the slot that makes it starts the next trial meanwhile, and one
#: of MLflow's calls takes as long for many points as for one: 5 ms of CPU with a file (7 ms for ten
#: points), a request with a server.
_GATHER_S = 0.5
#: So many calls are sent ahead of their answers: the thread that reads these waits for the sweep's
#: interpreter, and the process would wait with it.
_AHEAD = 8
#: While something is waited for, it is checked so often whether the wait is over.
_POLL_S = 0.05
#: While nothing is written, it is noticed so often whether the process has ended.
_LOOK_S = 2.0
#: A process that has ended is followed by another one after so long, one that has never opened the
#: store after more: that takes seconds of CPU time.
_PAUSE_S, _PAUSE_UNOPENED_S = 2.0, 15.0
#: A store that has not answered for so long hangs, or is away; otherwise it is slow.
_SILENT_S = 2.0
#: The process may take so long to close the store.
_END_S = 10
_WHAT = {
    "start": "the start of trial",
    "log": "a report of trial",
    "end": "the end of trial",
    "drop_others": "the deletion of what is unknown to",
}

_log = logging.getLogger(__name__)

#: An event is set when all calls before it have been carried out; None ends all.
_Entry = Call | threading.Event | None


class Tracker:
    """Writes the trials of one study to MLflow, through a process of its own.

    It begins to open the experiment, which is created if it does not exist. A store that cannot be
    opened is tried again until the sweep ends.

    Attributes:
        uri: the MLflow store or server, without its password.
        mlflow_run_ids: MLflow's ids of the runs, by the trials' run ids.
        experiment_id: MLflow's id of the study's experiment; empty before the store is open.
        problem: why the last call that failed was not carried out; None where none failed.
    """

    def __init__(self, store: Store) -> None:
        self.uri = str(store.address)
        self.mlflow_run_ids: dict[str, str] = {}
        self.experiment_id = ""
        self.problem: str | None = None
        self._store = store
        self._ui_port: int | None = None
        #: Of each run that has ended, which attempt at its trial that was.
        self._attempts: dict[str, str] = {}
        self._warned: set[str] = set()
        self._on_open: Callable[[], object] = lambda: None
        self._calls: queue.SimpleQueue[_Entry] = queue.SimpleQueue()
        #: Those that were in the queue together.
        self._gathered: deque[_Entry] = deque()
        #: The points of each run that the process has not been sent.
        self._points: dict[str, list[TimedPoint]] = {}
        #: Ends of trials that the process was to write, and those that it has answered.
        self._n_ended = self._n_written = 0
        self._adding = threading.Lock()
        self._heard_s = time.monotonic()
        self._process: subprocess.Popen[bytes] | None = None
        self._launching = threading.Lock()
        #: Set once a process has opened the store, or could not: for this reason.
        self._has_tried, self._problem = threading.Event(), ""
        self._is_open = False
        #: Set when the sweep's end waits for the last calls; when nothing is written any more.
        self._ending, self._over = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._work, name="tracker", daemon=True)
        self._thread.start()

    def wait_until_open(self, is_stopped: Callable[[], bool] = lambda: False) -> None:
        """Wait until MLflow has opened the store.

        Args:
            is_stopped: whether the sweep was stopped, which ends the wait.

        Raises:
            TrackingError: MLflow cannot open it, or gives no answer for a minute.
        """
        began_s, is_said = time.monotonic(), False
        while not self._has_tried.wait(_POLL_S):
            waited_s = time.monotonic() - began_s
            if is_stopped():
                return
            if waited_s > PATIENCE_S:
                self._over.set()
                raise TrackingError(
                    f"--tracking-uri {self.uri}: MLflow gives no answer for {duration(waited_s)}",
                    "start the server again, or leave the option out for a store beside the "
                    "outputs",
                )
            if waited_s > _SAY_S and not is_said:
                is_said = True
                _log.warning(
                    "waiting for MLflow at %s, for %s at most", self.uri, duration(PATIENCE_S)
                )
        if not self.experiment_id:
            self._over.set()
            raise TrackingError(self._problem)

    def when_open(self, call: Callable[[], object]) -> None:
        """Call a function, perhaps from another thread, once MLflow has opened the store."""
        self._on_open = call
        if self.experiment_id:  # perhaps for the second time
            call()

    # --- calls of the scheduler ------------------------------------------------------------------

    def started(self, record: TrialRecord, described: Mapping[str, str]) -> None:
        """Write that a trial has begun.

        Args:
            described: the trial's params as text, with `n/a` for those outside its branch.
        """
        self._calls.put(Call("start", record.run_id, (record, described)))

    def reported(self, run_id: str, point: Point) -> None:
        """Write a point, with others that arrive soon after."""
        if point.step is None:  # a final value, which is written with the trial's end
            return
        at_ms, step = now_ms(), point.step
        with self._adding:
            if run_id not in self._points:
                self._calls.put(Call("log", run_id, (run_id,)))
            points = self._points.setdefault(run_id, [])
            points += [(name, step, value, at_ms) for name, value in point.metrics.items()]

    def ended(
        self,
        record: TrialRecord,
        described: Mapping[str, str],
        series: Series,
        tags: Mapping[str, str],
    ) -> None:
        """Write all of a trial that has ended, also what was written before; see `RunWriter.end`.

        Its executed notebook is complete.
        """
        with self._adding:
            self._n_ended += 1
        self._calls.put(Call("end", record.run_id, (record, described, series, tags, now_ms())))

    def drop_others(self, run_ids: Collection[str]) -> None:
        """Delete the runs of the study's other trials.

        MLflow may be newer than the copy from which the study was restored; other trials will get
        the numbers of those.
        """
        self._calls.put(Call("drop_others", "the study", (run_ids,)))

    # --- the sweep's end -------------------------------------------------------------------------

    def wait(
        self,
        left_s: Callable[[], float] = lambda: math.inf,
        *,
        patience_s: Callable[[], float] = lambda: PATIENCE_S,
    ) -> bool:
        """Wait until all calls have been carried out.

        Args:
            left_s: how long to wait yet, asked again and again.
            patience_s: how long to wait for the answer to a call, likewise.

        Returns:
            False where the time is over, or MLflow takes nothing any more.
        """
        self._ending.set()
        reached, began_s = threading.Event(), time.monotonic()
        self._calls.put(reached)
        while not reached.wait(_POLL_S):
            silent_s = time.monotonic() - max(began_s, self._heard_s)
            if self._over.is_set() or left_s() <= 0 or silent_s >= patience_s():
                return False
        return True

    def close(self, left_s: Callable[[], float] = lambda: math.inf) -> None:
        """Wait as `wait` does, and end the process within the time that is left."""
        is_done = not self._over.is_set() and self.wait(left_s)
        with self._launching:
            if not is_done and not self._over.is_set():
                self.problem = self._why_unfinished()
            self._over.set()
        self._calls.put(None)
        if self._process is not None:
            if is_done:  # it ends the runs that notebooks have left open
                with suppress(subprocess.TimeoutExpired):
                    self._process.wait(max(0.0, min(left_s(), _END_S)))
            self._process.kill()
            self._process.wait()
        self._thread.join(_END_S)

    def _why_unfinished(self) -> str:
        silent_s = time.monotonic() - self._heard_s
        if silent_s < _SILENT_S:
            return "the sweep's time was over"
        return f"no answer for {duration(silent_s)}"

    # --- what MLflow has ----------------------------------------------------------------------

    def progress(self) -> tuple[int, int]:
        """How many ends of trials are written, of how many that were to be written so far."""
        return self._n_written, self._n_ended

    def has_end_of(self, record: TrialRecord) -> bool:
        """Whether MLflow has the end of this attempt at a trial, once the store is open."""
        return self._attempts.get(record.run_id) == str(record.attempt)

    def compare_url(self) -> str | None:
        """The page of MLflow's UI that draws parallel coordinates over all runs; None if none."""
        if not self.mlflow_run_ids:
            return None
        with self._adding:  # or two threads that ask first get two ports
            if self._ui_port is None:
                self._ui_port = free_port(USUAL_PORT)
            ui = f"http://127.0.0.1:{self._ui_port}"
        return view_url(self._store.address, self.experiment_id, ui=ui)

    # --- the thread that speaks with the process -------------------------------------------------

    def _work(self) -> None:
        """Have one process after another carry out all calls."""
        while (problem := self._use_process()) is not None:
            if self._over.is_set():  # the sweep's end has killed the process
                break
            self._problem = self.problem = problem
            self._has_tried.set()
            if self._ending.is_set() and not self._is_open:
                break  # it cannot be opened, and nobody waits until it can
            self._ending.wait(_PAUSE_S if self._is_open else _PAUSE_UNOPENED_S)
            if self._over.is_set():
                break
            self._warn_once(problem, f"{problem}; trials go on, and another process tries again")
        self._over.set()

    def _use_process(self) -> str | None:
        """Have a process carry out calls until it ends; why it did so, or None at the very end.

        The call over which it has died is not repeated.
        """
        self._is_open = False
        with self._launching:
            if self._over.is_set():
                return None
            try:
                self._process, connection = writer.launch()
            except OSError as error:
                return f"the process that writes to MLflow cannot be started: {error}"
        with connection:
            try:
                connection.send(self._store)
                opened = self._answer(connection)
                if opened.error is not None:
                    return opened.error
                self._take_opened(*opened.value)
                self._carry_out_all(connection, self._process)
                connection.send(None)
                self._process.wait(_END_S)
            except (EOFError, OSError):
                code = self._process.wait()
                how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
                return f"the process that writes to MLflow has died ({how})"
            except subprocess.TimeoutExpired:
                pass
        return None

    def _answer(self, connection: Connection) -> Reply:
        """The next answer; what the process logs until it comes is logged here."""
        while isinstance(received := connection.recv(), logging.LogRecord):
            if _log.isEnabledFor(received.levelno):
                _log.handle(received)
        reply: Reply = received
        return reply

    def _carry_out_all(self, connection: Connection, process: subprocess.Popen[bytes]) -> None:
        """Have the process carry out calls until there will be none any more.

        Raises:
            EOFError: the process has ended before that.
            OSError: likewise.
        """
        sent: deque[Call | threading.Event] = deque()
        is_over = False
        try:
            while sent or not is_over:
                if not sent and not self._gathered:
                    self._gather(process)
                while self._gathered and len(sent) < _AHEAD and not is_over:
                    match self._gathered.popleft():
                        case None:
                            is_over = True
                        case Call() as call:
                            sent.append(call)
                            connection.send(call)
                        case reached:
                            sent.append(reached)
                match sent.popleft() if sent else None:
                    case Call() as call:
                        self._take(call, self._answer(connection))
                    case threading.Event() as reached:
                        reached.set()
        finally:
            # The process has died over the call that is no longer among them.
            self._gathered.extendleft(reversed(sent))

    def _gather(self, process: subprocess.Popen[bytes]) -> None:
        """Wait for a call, and for those that come soon after.

        Raises:
            EOFError: the process has ended before there was one.
        """
        while not self._gathered:
            if process.poll() is not None:
                raise EOFError
            with suppress(queue.Empty):
                self._gathered.append(self._calls.get(timeout=_LOOK_S))
                self._ending.wait(_GATHER_S)
                while True:
                    self._gathered.append(self._calls.get_nowait())
        self._gathered = deque(map(self._with_points, _merged(self._gathered)))

    def _with_points(self, call: _Entry) -> _Entry:
        """A call with the points of its trial that no call before it has."""
        if not isinstance(call, Call) or call.method not in ("log", "end"):
            return call
        with self._adding:
            points = self._points.pop(call.about, [])
        return Call(call.method, call.about, (*call.arguments, points))

    def _take_opened(
        self, experiment_id: str, runs: Mapping[str, str], attempts: Mapping[str, str]
    ) -> None:
        self.mlflow_run_ids.update(runs)
        self._attempts = dict(attempts)
        self.experiment_id, self._is_open = experiment_id, True
        self._heard_s = time.monotonic()
        if self._problem:
            _log.info("MLflow can be written again")
        try:
            self._on_open()
        except Exception as error:  # noqa: BLE001  what others do must not end this thread
            _log.info("%s", error)
        self._has_tried.set()

    def _take(self, call: Call, reply: Reply) -> None:
        self._heard_s = time.monotonic()
        self._n_written += call.method == "end"
        if reply.error is not None:  # a server that is away fails each call alike
            self.problem = reply.error
            written = f"{_WHAT[call.method]} {call.about}"
            self._warn_once(reply.error, f"MLflow did not take {written}: {reply.error}")
        elif call.method in ("start", "end"):
            self.mlflow_run_ids[call.about] = reply.value
            if call.method == "end":
                self._attempts[call.about] = str(call.arguments[0].attempt)

    def _warn_once(self, reason: str, message: str) -> None:
        """Log a message, as a warning where its reason is new."""
        _log.log(logging.INFO if reason in self._warned else logging.WARNING, "%s", message)
        self._warned.add(reason)


def _merged(calls: deque[_Entry]) -> deque[_Entry]:
    """Leave out the start and the reports of a trial whose end follows them, which has them all."""
    kept: deque[_Entry] = deque()
    ended: set[str] = set()
    for call in reversed(calls):
        match call:
            case Call("start" | "log", run_id, _) if run_id in ended:
                continue
            case Call("end", run_id, _):
                ended.add(run_id)
        kept.appendleft(call)
    return kept
