"""What a sweep writes to MLflow, and what it knows of it; no trial waits for MLflow.

A process of its own writes. If it dies, another one goes on; the ends of trials that it took with
it are written at the sweep's end, from the executed notebooks, or by the next command.
"""

from __future__ import annotations

import itertools
import logging
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial

from ..errors import TrackingError
from ..notebook_api.messages import Point
from ..trials import TrialRecord
from . import writer
from .messages import (
    END,
    Call,
    Done,
    Logged,
    Mark,
    Opened,
    Reached,
    Refused,
    Reply,
    RunEnd,
    Series,
    StopTagged,
    Store,
    end_of,
)
from .opening import free_port
from .values import now_ms
from .views import view_url

#: The port of `mlflow ui`, if nothing else has it.
USUAL_PORT = 5000
#: The end of a sweep waits so long for a store that takes no further call, and for one that opens.
_PATIENCE_S, _OPENING_S = 60, 300
#: A call waits so long for others, with which it is sent; its slot starts the next trial meanwhile.
_DELAY_S = 0.1
#: A process that has ended is followed by another one after a pause, which doubles each time.
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 2, 60
#: A store whose process dies so often before it is open is refused.
_MOST_DEATHS = 3
#: The process may take so long to close the store.
_END_S = 10
_WHAT = {
    "start": "the start of trial",
    "log": "a report of trial",
    "end": "the end of trial",
    "describe": "the description of",
}

_log = logging.getLogger(__name__)


class Tracker:
    """Writes the trials of one study to MLflow, through a process of its own.

    It begins to open the experiment, which is created if it does not exist.

    Args:
        tries_again: whether a store that cannot be opened for a while, such as on a full disk, is
            opened later; otherwise it is refused.

    Attributes:
        uri: the MLflow store or server, without its password.
        mlflow_run_ids: MLflow's ids of the runs, by the trials' run ids.
        refusal: why MLflow cannot open the store; None before it has tried, and where it can.
        n_deaths: how often the process has ended before it should.

    Raises:
        TrackingError: the process cannot be started.
    """

    def __init__(self, store: Store, *, tries_again: bool = False) -> None:
        self.uri = str(store.address)
        self.mlflow_run_ids: dict[str, str] = {}
        self.refusal: str | None = None
        self.n_deaths = 0
        self._store = store
        self._tries_again = tries_again
        self._ui_port: int | None = None
        self._experiment_id = ""
        self._ends: dict[str, RunEnd] = {}
        #: The starts of trials whose ends MLflow does not have; a new process gets them first.
        self._unended: dict[str, Call] = {}
        self._reasons: set[str] = set()
        self._on_open: Callable[[], object] = lambda: None
        self._on_refusal: Callable[[], object] = lambda: None
        self._on_stop: Callable[[str], None] | None = None
        self._calls: queue.SimpleQueue[Call | Mark] = queue.SimpleQueue()
        self._marks = itertools.count()
        #: Held while something is sent, so that all arrives in order.
        self._sending = threading.Lock()
        #: Notified of each answer, and of each death.
        self._changed = threading.Condition()
        self._reached, self._heard_s = -1, time.monotonic()
        #: Set while a process takes calls, and when none will any more.
        self._is_up = threading.Event()
        #: Set when the sweep's end waits for the last calls; when nothing is written any more.
        self._ending, self._over = threading.Event(), threading.Event()
        self._pause_s, self._is_away = 0.0, False
        try:
            self._launch()
        except OSError as error:
            raise TrackingError(
                f"the process that writes to MLflow cannot be started: {error}"
            ) from error
        self._threads = [
            threading.Thread(target=self._send, name="tracker", daemon=True),
            threading.Thread(target=self._receive, name="tracker replies", daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def wait_until_open(self) -> None:
        """Wait until MLflow has opened the store.

        Raises:
            TrackingError: it cannot.
        """
        self._is_up.wait()
        if self.refusal is not None:
            raise TrackingError(self.refusal)

    def when_open(self, call: Callable[[], object]) -> None:
        """Call a function, perhaps from another thread, once MLflow has opened the store."""
        self._on_open = call
        if self._experiment_id:  # perhaps for the second time
            call()

    def when_refused(self, call: Callable[[], object]) -> None:
        """Call a function, perhaps from another thread, if MLflow cannot open the store."""
        self._on_refusal = call
        if self.refusal is not None:  # perhaps for the second time
            call()

    # --- calls of the scheduler ------------------------------------------------------------------

    def started(self, record: TrialRecord, described: Mapping[str, str]) -> None:
        """Write that a trial has begun.

        Args:
            described: the trial's params as text, with `n/a` for those outside its branch.
        """
        call = Call("start", record.run_id, (record, described))
        self._unended[record.run_id] = call
        self._ends.pop(record.run_id, None)
        self._calls.put(call)

    def reported(self, run_id: str, point: Point) -> None:
        """Write a point; points that arrive soon after one another are written together."""
        if point.step is None:  # a final value, which is written with the trial's end
            return
        at_ms, step = now_ms(), point.step
        points = [(name, step, value, at_ms) for name, value in point.metrics.items()]
        self._calls.put(Call("log", run_id, (run_id, points)))

    def ended(
        self,
        record: TrialRecord,
        series: Series,
        tags: Mapping[str, str],
    ) -> None:
        """Write that a trial has ended; its executed notebook is complete.

        Args:
            series: all points of the trial; those that MLflow does not have yet are written.
        """
        self._calls.put(Call("end", record.run_id, (record, series, tags, now_ms())))

    def described(self, note: str, best: Mapping[str, str]) -> None:
        """Write the text that MLflow's UI displays above the runs.

        Args:
            note: what the study is, in Markdown.
            best: the run ids of the best trials, each with its scores and params in words.
        """
        self._calls.put(Call("describe", "the study", (note, best)))

    # --- the sweep's end -------------------------------------------------------------------------

    def wait(self, *, patience_s: float | None = None) -> bool:
        """Wait until all calls have been carried out, or the process has died over one.

        Args:
            patience_s: how long to wait at most; None waits until a store that is open has carried
                out nothing for a minute.

        Returns:
            False where the time is over, or MLflow takes nothing any more.
        """
        self._ending.set()
        began_s, n_deaths, number = time.monotonic(), self.n_deaths, next(self._marks)
        self._calls.put(Mark(number))
        with self._changed:
            while self._reached < number and self.n_deaths == n_deaths:
                usual_s = _PATIENCE_S if self._is_up.is_set() else _OPENING_S
                since_s = began_s if patience_s is not None else max(began_s, self._heard_s)
                left_s = since_s + (usual_s if patience_s is None else patience_s)
                left_s -= time.monotonic()
                if left_s <= 0 or self._over.is_set():
                    return False
                self._changed.wait(left_s)
        return True

    def close(self, *, patience_s: float | None = None) -> int:
        """Wait as `wait` does, and end the process.

        Returns:
            how many trials have begun whose ends MLflow does not have.
        """
        is_done = not self._over.is_set() and self.wait(patience_s=patience_s)
        self._over.set()
        self._calls.put(END)
        if is_done:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_END_S)
        self._process.kill()
        self._process.wait()
        self._is_up.set()
        for thread in self._threads:
            thread.join(_END_S)
        return len(self._unended)

    # --- what MLflow has ----------------------------------------------------------------------

    def watch(self, on_stop: Callable[[str], None]) -> None:
        """From now on look for the tag that stops a trial.

        Args:
            on_stop: called with the run id of each running trial that has the tag.
        """
        self._on_stop = on_stop

    @property
    def experiment_id(self) -> str:
        """MLflow's id of the study's experiment; empty before the store is open."""
        return self._experiment_id

    def has_end_of(self, record: TrialRecord) -> bool:
        """Whether MLflow has the end of this attempt at a trial, once the store is open."""
        return self._ends.get(record.run_id) == end_of(record)

    def compare_url(self) -> str | None:
        """The page of MLflow's UI that draws parallel coordinates over all runs; None if none."""
        if not self.mlflow_run_ids:
            return None
        if self._ui_port is None:
            self._ui_port = free_port(USUAL_PORT)
        ui = f"http://127.0.0.1:{self._ui_port}"
        return view_url(self._store.address, self.experiment_id, ui=ui)

    # --- the thread that sends -------------------------------------------------------------------

    def _send(self) -> None:
        while True:
            calls = [self._calls.get()]
            self._ending.wait(_DELAY_S)
            while not self._calls.empty():
                calls.append(self._calls.get())
            is_sent = False
            while not is_sent:
                self._is_up.wait()
                with self._sending, suppress(OSError):  # it has died, and another one goes on
                    if is_sent := self._is_up.is_set():
                        self._connection.send(calls)
            if END in calls:
                return

    # --- the thread that receives ----------------------------------------------------------------

    def _receive(self) -> None:
        while True:
            try:
                reply: Reply = self._connection.recv()
            except (EOFError, OSError):
                if not self._goes_on():
                    return
            else:
                self._take(reply)

    def _take(self, reply: Reply) -> None:
        match reply:
            case Opened():
                self._take_opened(reply)
            case Refused():
                self._take_refusal(reply)
            case Done():
                self._take_done(reply)
            case Reached(number):
                self._reached = number
            case StopTagged(run_id) if self._on_stop is not None and not self._ending.is_set():
                self._tell(partial(self._on_stop, run_id))
            case Logged(level, text):
                _log.log(level, "%s", text)
        if isinstance(reply, Done | Reached):
            with self._changed:
                self._pause_s, self._heard_s = 0.0, time.monotonic()
                self._changed.notify_all()

    def _take_opened(self, opened: Opened) -> None:
        self._experiment_id = opened.experiment_id
        self.mlflow_run_ids.update(opened.runs)
        self._ends = dict(opened.ends)
        if self._is_away:
            _log.warning("the MLflow store can be used again")
            self._is_away = False
        if self.n_deaths:
            with self._sending, suppress(OSError):
                self._connection.send(list(self._unended.values()))
        self._tell(self._on_open)
        self._is_up.set()

    def _take_done(self, done: Done) -> None:
        if done.mlflow_id is not None:
            self.mlflow_run_ids[done.about] = done.mlflow_id
        if done.error is not None:
            is_new = done.error not in self._reasons  # a server that is away fails each call alike
            self._reasons.add(done.error)
            _log.log(
                logging.WARNING if is_new else logging.INFO,
                "MLflow did not take %s %s: %s",
                _WHAT[done.method],
                done.about,
                done.error,
            )
        elif done.method == "end" and done.end is not None:
            self._ends[done.about] = done.end
            begun = self._unended.get(done.about)
            if begun is not None and str(begun.arguments[0].attempt) == done.end.attempt:
                del self._unended[done.about]

    def _take_refusal(self, refused: Refused) -> None:
        if self._experiment_id or (refused.is_temporary and self._tries_again):
            self._put_off(refused.message)
        else:
            self._refuse(refused.message)

    def _put_off(self, message: str) -> None:
        """Try again later, with another process; at the sweep's end no more."""
        if self._ending.is_set():
            _log.warning("%s; what MLflow lacks is written by the next sweep", message)
            self._finish()
        elif not self._is_away:
            _log.warning("%s; trials go on, and it is tried again", message)
            self._is_away = True

    def _refuse(self, message: str) -> None:
        self.refusal = message
        self._finish()
        self._tell(self._on_refusal)

    def _finish(self) -> None:
        """Nothing is written any more."""
        self._over.set()
        self._is_up.set()
        with self._changed:
            self._changed.notify_all()

    def _tell(self, call: Callable[[], object]) -> None:
        try:
            call()
        except Exception as error:  # noqa: BLE001  what others do must not end this thread
            _log.info("%s", error)

    # --- the process -----------------------------------------------------------------------------

    def _launch(self) -> None:
        self._process, self._connection = writer.launch()
        self._connection.send(self._store)

    def _goes_on(self) -> bool:
        """After the end of the process start another one; False if there is to be none."""
        code = self._process.wait()
        if self._over.is_set():
            return False
        with self._sending:
            self._is_up.clear()
        with self._changed:
            self.n_deaths += 1
            self._changed.notify_all()
        if code:
            how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
            message = f"the process that writes to MLflow has died ({how})"
            if not self._experiment_id and self.n_deaths >= _MOST_DEATHS:
                self._refuse(message)
                return False
            _log.info("%s; another goes on", message)
        self._pause_s = min(2 * self._pause_s or _FIRST_PAUSE_S, _LONGEST_PAUSE_S)
        self._ending.wait(self._pause_s)
        with self._sending:
            self._connection.close()
            if self._over.is_set():
                return False
            try:
                self._launch()
            except OSError as error:
                _log.warning("%s; what MLflow lacks is written by the next sweep", error)
                self._finish()
                return False
        return True
