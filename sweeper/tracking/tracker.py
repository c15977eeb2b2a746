"""Write a sweep's trials to MLflow. No trial waits for MLflow.

A separate process writes. If it dies, another one is started, and the call during which it died is
not repeated. If that call was to write the end of a trial, the sweep's end or the next command
reads the trial's end from the executed notebook and writes it.
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
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection

from ..errors import TrackingError, first_line
from ..notebook_api.messages import Point
from ..settings.units import duration
from ..trials import Sentence, TrialRecord
from . import writer
from .messages import Call, Reply, Series, Store, TimedPoint, Upload
from .opening import free_port
from .refused_starts import RefusedStarts
from .values import now_ms
from .views import view_url

#: Port in links to MLflow's UI, if it is free. It is the default port of `mlflow ui`.
USUAL_PORT = 5000
#: The start and the end of a sweep wait this many seconds for a store that does not answer (chosen,
#: not measured).
PATIENCE_S = 60.0
#: If the start of a sweep has waited for MLflow for this many seconds, a log message says so
#: (chosen, not measured).
_SAY_S = 10.0
#: A call waits this many seconds for further calls, to be sent together with them (chosen, not
#: measured). No trial waits meanwhile. A call to MLflow with many points takes about as long as one
#: with a single point. With a store in a file, a call with ten points was measured to take 7 ms of
#: CPU time, and one with a single point 5 ms. With a server, each call is one request.
_GATHER_S = 0.5
#: The files of trials are logged while no other calls wait. If other calls are made all the time,
#: a trial's files wait this many seconds (chosen, not measured). From then on, the files of one
#: trial are logged after each batch of calls.
_FILES_WAIT_S = 30.0
#: At most this many calls are sent before the answer to the first one is read (chosen, not
#: measured). The thread that reads the answers often waits for the interpreter lock of the sweep's
#: process. Meanwhile, the writing process carries out the calls that were sent ahead.
_AHEAD = 8
#: Seconds between two checks whether a wait is over.
_POLL_S = 0.05
#: While there are no calls, this many seconds pass between two checks whether the writing process
#: has ended.
_LOOK_S = 2.0
#: After the writing process has died, another one is started after the first number of seconds, or
#: after the second number if the process could not open the store (chosen, not measured). These
#: pauses limit the CPU time, of which each process needs seconds to import MLflow.
_PAUSE_S, _PAUSE_UNOPENED_S = 2.0, 15.0
#: If calls remain unwritten at the end of a sweep, and the last answer is at least this many
#: seconds old, `problem` says that the store does not answer. Otherwise, it says that the sweep had
#: no time left (chosen, not measured).
_SILENT_S = 2.0
#: An upload of a file extends the wait for an answer by the time that it takes at this rate
#: (chosen, not measured).
_UPLOADED_BYTES_PER_S = 500_000
#: The writing process may take this many seconds to close the store (chosen, not measured).
_END_S = 10
#: MLflow's description of the experiment has at most this number of sentences about the study's
#: result (chosen): the best trial, its params, and what mattered.
_MOST_DESCRIBED = 3
_WHAT = {
    "start": "the start of trial",
    "log": "a report of trial",
    "end": "the end of trial",
    "files": "the files of trial",
    "describe": "the description of",
    "set_others_aside": "the new names of runs that are unknown to",
}

_log = logging.getLogger(__name__)

#: An entry of the queue of calls: a call, an event that is set once all calls before it are carried
#: out, or None, which ends the writing process.
_Entry = Call | threading.Event | None


class Tracker:
    """Writes the trials of one study to MLflow, through a separate process.

    The tracker opens the experiment at once, and creates it if it does not exist. If the store
    cannot be opened, the tracker tries again until the sweep ends.

    Args:
        store: The store.

    Attributes:
        uri: Address of the MLflow store or server, without its password.
        mlflow_run_ids: MLflow's ids of the runs, by the run ids of the trials.
        experiment_id: MLflow's id of the study's experiment. Empty before the store is open.
        problem: Text about the last problem so far: a call that MLflow did not accept, a process
            that died or could not open the store, or calls that were not carried out before the
            sweep's end. None if there was none.
    """

    def __init__(self, store: Store) -> None:
        self.uri = str(store.address)
        self.mlflow_run_ids: dict[str, str] = {}
        self.experiment_id = ""
        self.problem: str | None = None
        self._store = store
        self._ui_port: int | None = None
        #: Number of the attempt (as text) whose end MLflow has, by run id.
        self._attempts: dict[str, str] = {}
        self._warned: set[str] = set()
        self._on_open: Callable[[], object] = lambda: None
        self._calls: queue.SimpleQueue[_Entry] = queue.SimpleQueue()
        #: Calls that were gathered from the queue and are not sent yet.
        self._gathered: deque[_Entry] = deque()
        #: Calls that log the files of ended trials, by run id, each with the time at which the
        #: trial's end was written. All other calls have priority: files may take minutes, and a
        #: notebook may wait for its run in MLflow.
        self._uploads: dict[str, tuple[float, Call]] = {}
        #: Whether the last call has logged files.
        self._has_just_uploaded = False
        self._refused_starts = RefusedStarts()
        #: Points that were not sent to the process yet, by run id.
        self._points: dict[str, list[TimedPoint]] = {}
        #: Number of calls of `ended`, and number of those for which the process has answered that
        #: the end and the files were accepted or refused.
        self._n_ended = self._n_written = 0
        self._adding = threading.Lock()
        self._heard_s = time.monotonic()
        self._process: subprocess.Popen[bytes] | None = None
        self._launching = threading.Lock()
        #: Set once a process has opened the store, or has failed to open it.
        self._has_tried = threading.Event()
        self._is_open = False
        #: `_ending` is set when the end of the sweep waits for the last calls. `_over` is set when
        #: nothing is written any more.
        self._ending, self._over = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._work, name="tracker", daemon=True)
        self._thread.start()

    def wait_until_open(self, is_stopped: Callable[[], bool] = lambda: False) -> None:
        """Wait until MLflow has opened the store.

        Args:
            is_stopped: Returns whether the sweep was stopped, which ends the wait.

        Raises:
            TrackingError: MLflow cannot open the store, or does not answer within a minute.
        """
        began_s, is_said = time.monotonic(), False
        while not self._has_tried.wait(_POLL_S):
            waited_s = time.monotonic() - began_s
            if is_stopped():
                return
            if waited_s > PATIENCE_S:
                self._over.set()
                raise TrackingError(
                    f"--tracking-uri {self.uri}: MLflow has not answered for {duration(waited_s)}",
                    "start the server again, or leave --tracking-uri out and MLFLOW_TRACKING_URI "
                    "unset to use a store next to the outputs",
                )
            if waited_s > _SAY_S and not is_said:
                is_said = True
                _log.warning(
                    "waiting for MLflow at %s, for %s at most", self.uri, duration(PATIENCE_S)
                )
        if not self.experiment_id:
            self._over.set()
            assert self.problem is not None
            raise TrackingError(self.problem)

    def when_open(self, call: Callable[[], object]) -> None:
        """Call a function once MLflow has opened the store.

        The function may be called from another thread, and more than once.
        """
        self._on_open = call
        if self.experiment_id:  # The tracker's thread may have called the function, too.
            call()

    # --- calls of the scheduler ------------------------------------------------------------------
    #
    # These methods do not wait for MLflow: a thread sends the calls to the writing process.

    def started(self, record: TrialRecord, described: Mapping[str, str]) -> None:
        """Write that a trial has begun.

        Args:
            record: The trial.
            described: Params of the trial as text, as `run_params` returns them.
        """
        self._calls.put(Call("start", record.run_id, (record, described)))

    def reported(self, run_id: str, point: Point) -> None:
        """Write a point (values at a step) of a running trial.

        The point is sent together with points of the trial that follow soon.
        """
        if point.step is None:  # A final value is written with the trial's end.
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
        """Write everything about a trial that has ended. `RunWriter.end` describes the arguments.

        The executed notebook of the trial must be complete. Values that were already written are
        not written again.
        """
        with self._adding:
            self._n_ended += 1
        self._calls.put(Call("end", record.run_id, (record, described, series, tags, now_ms())))

    def set_others_aside(self, run_ids: Collection[str]) -> None:
        """Rename the runs in MLflow whose trials the study does not have.

        A study that was restored from a remote copy lacks the trials that ran after the copy was
        made. MLflow may have runs of these trials, and new trials get the same numbers.

        Args:
            run_ids: Run ids of all trials that the study has.
        """
        self._calls.put(Call("set_others_aside", "the study", (run_ids,)))

    def describe(self, answer: Sequence[Sentence]) -> None:
        """Write one line above the study's runs in MLflow.

        Args:
            answer: Sentences about the study's result. The line has the first three of them.
        """
        line = " · ".join(f"**{said.topic}** {said.text}" for said in answer[:_MOST_DESCRIBED])
        self._calls.put(Call("describe", "the study", (line,)))

    # --- the sweep's end -------------------------------------------------------------------------

    def wait(
        self,
        left_s: Callable[[], float] = lambda: math.inf,
        *,
        patience_s: Callable[[], float] = lambda: PATIENCE_S,
    ) -> bool:
        """Wait until all calls have been carried out.

        Args:
            left_s: Returns the seconds that are left for the wait. It is called repeatedly.
            patience_s: Returns the seconds to wait for the answer to one call. It is called
                repeatedly.

        Returns:
            False if the time is over, or if nothing is written to MLflow any more.
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
        """Wait for all calls as `wait` does, then end the process.

        Args:
            left_s: Returns the seconds that are left for the wait and for the process's end.
        """
        is_done = not self._over.is_set() and self.wait(left_s)
        with self._launching:
            if not is_done and not self._over.is_set():
                self.problem = self._why_unfinished()
            self._over.set()
        self._calls.put(None)
        if self._process is not None:
            if is_done:  # The process still has to end runs that notebooks have left open.
                with suppress(subprocess.TimeoutExpired):
                    self._process.wait(max(0.0, min(left_s(), _END_S)))
            self._process.kill()
            self._process.wait()
        self._thread.join(_END_S)

    def _why_unfinished(self) -> str:
        silent_s = time.monotonic() - self._heard_s
        if silent_s < _SILENT_S:
            return "the sweep had no time left"
        return f"no answer for {duration(silent_s)}"

    # --- state of MLflow ----------------------------------------------------------------------

    def progress(self) -> tuple[int, int]:
        """Return for how many trials MLflow has answered, and how many trials have ended.

        MLflow has answered if it has accepted or refused the trial's end and files.
        """
        return self._n_written, self._n_ended

    def has_end_of(self, record: TrialRecord) -> bool:
        """Return whether MLflow has the end and the files of this attempt at a trial.

        The store must be open.
        """
        return self._attempts.get(record.run_id) == str(record.attempt)

    def compare_url(self) -> str | None:
        """Return the URL in MLflow's UI that draws parallel coordinates of all runs.

        Returns:
            None if there are no runs.
        """
        if not self.mlflow_run_ids:
            return None
        with self._adding:  # Otherwise, two threads could choose two ports.
            if self._ui_port is None:
                self._ui_port = free_port(USUAL_PORT)
            ui = f"http://127.0.0.1:{self._ui_port}"
        return view_url(self._store.address, self.experiment_id, ui=ui)

    # --- the thread that exchanges messages with the process -------------------------------------

    def _work(self) -> None:
        """Let a process carry out all calls. If the process dies, start another one."""
        while (problem := self._use_process()) is not None:
            if self._over.is_set():  # `close` has killed the process at the sweep's end.
                break
            self.problem = problem
            self._has_tried.set()
            if self._ending.is_set() and not self._is_open:
                break  # The store cannot be opened, and the sweep is ending, so do not try again.
            self._ending.wait(_PAUSE_S if self._is_open else _PAUSE_UNOPENED_S)
            if self._over.is_set():
                break
            self._warn_once(problem, f"{problem}; trials continue, and another process tries again")
        self._over.set()

    def _use_process(self) -> str | None:
        """Start a process and let it carry out calls until it ends.

        The call during which the process died is not repeated.

        Returns:
            Why the process ended. None if the sweep has ended.
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
        """Return the next answer of the process.

        Log messages of the process that come before the answer are logged in this process, too. If
        an `Upload` comes before it, the store has more time to answer, by the size of the file.
        """
        while not isinstance(received := connection.recv(), Reply):
            if isinstance(received, Upload):
                self._heard_s = time.monotonic() + received.n_bytes / _UPLOADED_BYTES_PER_S
            elif _log.isEnabledFor(received.levelno):
                _log.handle(received)
        reply: Reply = received
        return reply

    def _carry_out_all(self, connection: Connection, process: subprocess.Popen[bytes]) -> None:
        """Let the process carry out calls until the last one.

        Raises:
            EOFError: The process has ended before the last call.
            OSError: The process has ended before the last call.
        """
        sent: deque[Call] = deque()
        try:
            while True:
                if not sent and not self._gathered:
                    self._gathered.extend(self._refused_starts.pop_due(time.monotonic()))
                    if not self._gathered and self._is_upload_next():
                        self._gathered.append(self._next_upload())
                    elif not self._gathered:
                        self._gather(process)
                while len(sent) < _AHEAD and self._gathered:
                    if not isinstance(call := self._gathered[0], Call):
                        break
                    self._gathered.popleft()
                    sent.append(call)
                    connection.send(call)
                if sent:
                    self._take(sent.popleft(), self._answer(connection))
                    continue
                # The next entry ends a wait or the process. Before it, log the files of all trials
                # whose ends were written.
                if self._uploads:
                    self._gathered.appendleft(self._next_upload())
                    continue
                match self._gathered.popleft():
                    case None:
                        return
                    case threading.Event() as reached:
                        reached.set()
        finally:
            # The call during which the process has died is not in `sent`, so it is not made again.
            self._gathered.extendleft(reversed(sent))

    def _is_upload_next(self) -> bool:
        """Return whether to log the files of a trial before more calls are taken from the queue.

        True if files are waiting and no calls are queued. Queued calls have priority until the
        files have waited for `_FILES_WAIT_S` seconds. From then on, True if calls were taken from
        the queue since the last files were logged.
        """
        if not self._uploads or self._calls.empty():
            return bool(self._uploads)
        since_s, _ = next(iter(self._uploads.values()))
        return not self._has_just_uploaded and time.monotonic() - since_s >= _FILES_WAIT_S

    def _next_upload(self) -> Call:
        self._has_just_uploaded = True
        _, call = self._uploads.pop(next(iter(self._uploads)))
        return call

    def _gather(self, process: subprocess.Popen[bytes]) -> None:
        """Wait for a call, and for further calls that are made soon after it.

        The calls are put into `_gathered`, after the refused starts that are due again. The wait
        also ends as soon as a refused start is due. Starts and reports of trials whose end follows
        are removed, and the points of the trials are added to the calls.

        Raises:
            EOFError: The process has ended before a call was made.
        """
        self._has_just_uploaded = False
        while not self._gathered:
            if process.poll() is not None:
                raise EOFError
            with suppress(queue.Empty):
                self._gathered.append(self._calls.get(timeout=_LOOK_S))
                self._ending.wait(_GATHER_S)
                while True:
                    self._gathered.append(self._calls.get_nowait())
            self._gathered.extendleft(self._refused_starts.pop_due(time.monotonic()))
        self._gathered = deque(map(self._with_points, _merged(self._gathered)))

    def _with_points(self, call: _Entry) -> _Entry:
        """Return a call with the points of its trial that no earlier call has sent.

        Only the calls `log` and `end` send points. Other calls are returned as they are.
        """
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
        if self.problem is not None:
            _log.info("the MLflow store is available again")
        try:
            self._on_open()
        except Exception as error:  # noqa: BLE001  a callback's error must not end this thread
            _log.warning(
                "MLflow is open, but the study cannot store the experiment's id: %s",
                first_line(error),
            )
        self._has_tried.set()

    def _take(self, call: Call, reply: Reply) -> None:
        self._heard_s = time.monotonic()
        if call.method in ("start", "end"):
            # Drop the files of an earlier attempt that are not logged yet, and count that attempt
            # as written: the files are logged after the end of this attempt. A call for the end of
            # a trial also writes its start, so a refused start is not sent again.
            self._n_written += self._uploads.pop(call.about, None) is not None
            if call.method == "end" or reply.error is None:
                self._refused_starts.forget(call.about)
        is_last = call.method == "files" or (call.method == "end" and reply.error is not None)
        self._n_written += is_last
        if reply.error is not None:
            if call.method == "start":
                self._refused_starts.add(call, time.monotonic())
            # While a server is unavailable, all calls fail for the same reason, so warn only once.
            self.problem = reply.error
            written = f"{_WHAT[call.method]} {call.about}"
            self._warn_once(reply.error, f"MLflow did not accept {written}: {reply.error}")
        elif call.method in ("start", "end"):
            self.mlflow_run_ids[call.about] = reply.value
            if call.method == "end":
                files = Call("files", call.about, call.arguments[:1])
                self._uploads[call.about] = (time.monotonic(), files)
        elif call.method == "files":
            self._attempts[call.about] = str(call.arguments[0].attempt)

    def _warn_once(self, reason: str, message: str) -> None:
        """Log a message as a warning if its reason is new, else as information."""
        _log.log(logging.INFO if reason in self._warned else logging.WARNING, "%s", message)
        self._warned.add(reason)


def _merged(calls: deque[_Entry]) -> deque[_Entry]:
    """Return the calls without the starts and reports of trials whose end follows.

    The call for the end of a trial also writes its start and its reports.
    """
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
