"""Writes trials to MLflow: one experiment per study, one flat run per trial.

One thread makes all calls to MLflow and takes its messages from a queue, so no trial waits for the
store. A message that MLflow does not take is written by the next sweep of the study, which finds
everything in the executed notebooks.
"""

from __future__ import annotations

import getpass
import logging
import math
import os
import queue
import threading
import time
import urllib.parse
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import first_line
from ..notebook_api.messages import Point
from ..settings.addresses import Address
from ..trials import TrialRecord, TrialState
from .artifacts import Artifacts
from .files import log_ahead, sqlite_file
from .metrics import as_tags, legal, metric, now_ms
from .opening import comparison, completed, open_experiment, usable
from .points import LoggedPoints

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Metric, Run

Series = Mapping[str, Sequence[tuple[int, float]]]

_log = logging.getLogger(__name__)

_STATUS = {
    TrialState.COMPLETED: "FINISHED",
    TrialState.PRUNED: "FINISHED",
    TrialState.FAILED: "FAILED",
    TrialState.STOPPED: "KILLED",
}
_STUDY_ID, _ATTEMPT = "sweeper.study_id", "sweeper.attempt"
#: A user sets this tag on a run in MLflow's UI to stop the trial.
_STOP_TAG = "sweeper.stop"
#: How often to look for that tag.
_POLL_INTERVAL_S = 2.0
#: How long the end of a sweep waits for a store that takes no further message.
_PATIENCE_S = 60
#: How long a message waits in the queue. Meanwhile its slot starts the next trial, which would
#: otherwise compete with MLflow for this interpreter.
_DELAY_S = 0.1


class Tracker:
    """Writes the trials of one study to MLflow, on a thread of its own."""

    def __init__(
        self, client: MlflowClient, *, address: Address, experiment_id: str, study_id: str
    ) -> None:
        self._address = address
        self.uri = str(address)
        self.experiment_id = experiment_id
        self._study_id = study_id
        self._client = client
        self._runs: dict[str, str] = {}
        #: Status and attempt of each run that has ended in MLflow.
        self._ended: dict[str, tuple[str, str]] = {}
        self._points = LoggedPoints(client)
        self._artifacts = Artifacts(client, experiment_id)
        #: Trials whose start MLflow has not taken yet.
        self._to_start: dict[str, tuple[TrialRecord, Mapping[str, str]]] = {}
        self._lock = threading.Lock()
        #: Points that wait for the next message about their trial, with their time in ms.
        self._pending: dict[str, list[tuple[Point, int]]] = {}
        self._queue: queue.SimpleQueue[_Message | None] = queue.SimpleQueue()
        self._closing = threading.Event()
        self._on_stop: Callable[[str], None] | None = None
        self._looked_s = 0.0
        #: How many messages about a trial MLflow did not take; reset once it takes the trial's end.
        self._undelivered: Counter[str] = Counter()
        self._reasons: set[str] = set()
        self._thread = threading.Thread(target=self._work, name="tracker", daemon=True)
        for run in self._search():
            if run.data.tags.get(_STUDY_ID) != study_id:
                continue  # a run of an earlier study of this name, whose storage is gone
            self._runs[run.info.run_name] = run.info.run_id
            if run.info.status != "RUNNING":
                attempt = run.data.tags.get(_ATTEMPT, "")
                self._ended[run.info.run_name] = run.info.status, attempt
        self._thread.start()

    @classmethod
    def open(
        cls,
        uri: str | Address | None,
        *,
        study: str,
        study_id: str,
        embedded: Path,
        artifacts: Path,
        note: str | None = None,
    ) -> Tracker:
        """Open the experiment of a study; create it if it does not exist.

        Args:
            uri: the MLflow store or server; None for an embedded store.
            study: the name of the study and of its experiment.
            study_id: runs of earlier studies of the same name have other ids and are left alone.
            embedded: the SQLite file of the embedded store.
            artifacts: the folder of the embedded store's artifacts.
            note: Markdown that MLflow's UI displays above the runs; None leaves it unchanged.

        Raises:
            TrackingError: the server does not answer, or the store cannot be opened.
        """
        address = completed(Address.of(uri or f"sqlite:///{embedded}"))
        location = artifacts.as_uri() + f"/{urllib.parse.quote(study)}"
        with usable(address):
            client, experiment_id = open_experiment(address, study, location=location, note=note)
            if sqlite_file(str(address)) == embedded:
                log_ahead(embedded)
            return cls(client, address=address, experiment_id=experiment_id, study_id=study_id)

    # --- messages of the scheduler -----------------------------------------------------------

    def started(self, record: TrialRecord, described: Mapping[str, str]) -> None:
        """Write that a trial has begun.

        Args:
            described: the trial's params as text, with `n/a` for those outside its branch.
        """
        self._put(record.run_id, "the start", lambda: self._start(record, described))

    def reported(self, run_id: str, point: Point) -> None:
        """Write a point; points that arrive soon after one another are written together."""
        if point.step is None:  # a final value, which is written with the trial's end
            return
        with self._lock:
            pending = self._pending.setdefault(run_id, [])
            pending.append((point, now_ms()))
        if len(pending) == 1:
            self._put(run_id, "a report", lambda: self._log_points(run_id))

    def ended(self, record: TrialRecord, series: Series, tags: Mapping[str, str]) -> None:
        """Write that a trial has ended; its executed notebook is complete.

        Args:
            series: all points of the trial; those that MLflow does not have yet are written.
        """
        at_ms = now_ms()
        self._put(record.run_id, "the end", lambda: self._end(record, series, tags, at_ms))

    def close(self, *, patience_s: float | None = None) -> int:
        """Wait until all messages are written.

        Args:
            patience_s: how long to wait at most; None waits as long as the store takes a message
                at least every minute.

        Returns:
            how many messages MLflow did not take. Messages about a trial whose end it took do not
            count, because the end repeats everything.
        """
        self._closing.set()
        self._queue.put(None)
        if patience_s is not None:
            self._thread.join(patience_s)
            return self._undelivered.total() + self._queue.qsize()
        n_waiting = -1
        while self._thread.is_alive() and n_waiting != self._queue.qsize():
            n_waiting = self._queue.qsize()
            self._thread.join(_PATIENCE_S)
        return self._undelivered.total() + self._queue.qsize()

    # --- what MLflow has ----------------------------------------------------------------------

    def watch(self, on_stop: Callable[[str], None]) -> None:
        """From now on look for the tag that stops a trial.

        Args:
            on_stop: called with the run id of each running trial that has the tag.
        """
        self._on_stop = on_stop

    @property
    def mlflow_run_ids(self) -> dict[str, str]:
        """MLflow's ids of the runs, by the trials' run ids."""
        return dict(self._runs)

    def has_end_of(self, record: TrialRecord) -> bool:
        """Whether MLflow has the end of this attempt at a trial."""
        return self._ended.get(record.run_id) == _end_of(record)

    def compare_url(self) -> str | None:
        """The page of MLflow's UI that draws parallel coordinates over all runs; None if none."""
        if not self._runs:
            return None
        runs = [self._runs[name] for name in sorted(self._runs)]
        return comparison(self._address, self.experiment_id, runs)

    # --- the thread ---------------------------------------------------------------------------

    def _put(self, run_id: str, what: str, call: Callable[[], None]) -> None:
        due_s = time.monotonic() + _DELAY_S
        self._queue.put(_Message(run_id=run_id, what=what, due_s=due_s, call=call))

    def _work(self) -> None:
        while True:
            try:
                message = self._queue.get(timeout=_POLL_INTERVAL_S)
            except queue.Empty:
                self._look()
                continue
            if message is None:
                return
            self._closing.wait(max(0.0, message.due_s - time.monotonic()))
            try:
                message.call()
            except Exception as error:  # noqa: BLE001  an error of the store must not cost a trial
                self._fail(message, self._address.scrubbed(first_line(error)))
            if time.monotonic() - self._looked_s >= _POLL_INTERVAL_S:
                self._look()

    def _fail(self, message: _Message, reason: str) -> None:
        self._undelivered[message.run_id] += 1
        is_new = reason not in self._reasons  # a server that is away fails each message alike
        self._reasons.add(reason)
        _log.log(
            logging.WARNING if is_new else logging.INFO,
            "MLflow did not take %s of trial %s: %s",
            message.what,
            message.run_id,
            reason,
        )

    def _look(self) -> None:
        """Stop the trials whose runs have the stop tag."""
        self._looked_s = time.monotonic()
        if self._on_stop is None or not self._points or self._closing.is_set():
            return
        try:
            tagged = self._client.search_runs(
                [self.experiment_id],
                f"attributes.status = 'RUNNING' and tags.`{_STOP_TAG}` ILIKE '%'",
            )
            for run in tagged:
                if run.data.tags[_STOP_TAG].lower() not in ("false", "no", "0"):
                    self._on_stop(run.info.run_name)
                # Or the tag would stop the next attempt at the trial as well.
                self._client.delete_tag(run.info.run_id, _STOP_TAG)
        except Exception as error:  # noqa: BLE001  an error of the store must not cost a trial
            _log.info("MLflow: %s", self._address.scrubbed(first_line(error)))

    def _search(self) -> list[Run]:
        runs: list[Run] = []
        token = None
        while True:
            page = self._client.search_runs(
                [self.experiment_id], max_results=1000, page_token=token
            )
            runs += page
            token = page.token
            if not token:
                return runs

    def _start(self, record: TrialRecord, described: Mapping[str, str]) -> None:
        self._to_start[record.run_id] = record, described
        mlflow_id = self._runs.get(record.run_id)
        is_new = mlflow_id is None
        if mlflow_id is None:
            mlflow_id = self._create_run(record)
        else:
            self._client.update_run(mlflow_id, status="RUNNING")
            self._client.set_tag(mlflow_id, "sweeper.state", str(record.state))
            self._ended.pop(record.run_id, None)
        from mlflow.entities import Param

        params = [Param(name, value) for name, value in described.items()]
        self._client.log_batch(mlflow_id, params=params)
        if record.state is TrialState.RUNNING:
            self._points.begin(mlflow_id, is_new=is_new)
        del self._to_start[record.run_id]

    def _create_run(self, record: TrialRecord) -> str:
        run = self._client.create_run(
            self.experiment_id,
            start_time=int(record.started_at_s * 1000),
            run_name=record.run_id,
            tags={
                "sweeper.run_id": record.run_id,
                "sweeper.state": str(record.state),
                _STUDY_ID: self._study_id,
                "mlflow.user": _user(),
                "mlflow.source.type": "NOTEBOOK",
                "mlflow.source.name": record.notebook.name,
            },
        )
        mlflow_id = self._runs[record.run_id] = str(run.info.run_id)
        return mlflow_id

    def _begun(self, run_id: str) -> str:
        """The id of a trial's run; writes the trial's start first if MLflow does not have it."""
        if run_id in self._to_start:
            self._start(*self._to_start[run_id])
        return self._runs[run_id]

    def _log_points(self, run_id: str) -> None:
        with self._lock:
            pending = self._pending.pop(run_id)
        points = [
            (name, point.step or 0, value, at_ms)
            for point, at_ms in pending
            for name, value in point.metrics.items()
        ]
        self._points.log(self._begun(run_id), points)

    def _log_missing(self, mlflow_id: str, series: Series, at_ms: int) -> None:
        """Log points that were not reported but scraped from the executed notebook."""
        points = [(n, step, value, at_ms) for n, ps in series.items() for step, value in ps]
        self._points.log(mlflow_id, points)

    def _end(
        self, record: TrialRecord, series: Series, tags: Mapping[str, str], at_ms: int
    ) -> None:
        if record.run_id in self._runs or record.run_id in self._to_start:
            mlflow_id = self._begun(record.run_id)
        else:  # the sweep was killed before it wrote the start
            mlflow_id = self._create_run(record)
        self._log_missing(mlflow_id, series, at_ms)
        # A trial that will be run again has no final values yet.
        metrics = self._final_metrics(mlflow_id, record, at_ms) if record.is_final else []
        self._points.end(mlflow_id)
        infinite = {
            f"sweeper.infinite.{legal(name)}": str(value)
            for name, value in record.scores.items()
            if math.isinf(value)
        }
        all_tags = {
            **tags,
            **infinite,
            "sweeper.state": str(record.state),
            "sweeper.seed": str(record.seed),
            "sweeper.duration_s": f"{record.duration_s:.3f}",
        }
        if record.reason is not None:
            all_tags["sweeper.reason"] = str(record.reason)
            all_tags["sweeper.message"] = record.message
        self._client.log_batch(mlflow_id, metrics=metrics, tags=as_tags(all_tags))
        status, attempt = end = _end_of(record)
        self._client.set_terminated(mlflow_id, status=status, end_time=at_ms)
        # The files come last, then the tag that says that the run is complete. Where a store takes
        # no files, the run has its values and status, and the next sweep tries again.
        link = self._artifacts.log(mlflow_id, record)
        last = {_ATTEMPT: attempt, "mlflow.note.content": link}
        self._client.log_batch(mlflow_id, tags=as_tags(last))
        self._ended[record.run_id] = end
        del self._undelivered[record.run_id]

    def _final_metrics(self, mlflow_id: str, record: TrialRecord, at_ms: int) -> list[Metric]:
        """The metrics of final values that differ from the last point of their series."""
        metrics = []
        for name, value in record.scores.items():
            step, is_last = self._points.last(mlflow_id, name, value)
            if is_last:
                continue
            # At the last step, but later: MLflow's table has the newest value of the last step.
            history = (
                self._client.get_metric_history(mlflow_id, legal(name)) if step is not None else []
            )
            latest_ms = max((m.timestamp for m in history), default=0)
            metrics.append(metric(name, value, step or 0, max(at_ms, latest_ms + 1)))
        return [metric for metric in metrics if metric is not None]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Message:
    """One call to MLflow about a trial, to be made at `due_s` on the monotonic clock or later."""

    run_id: str
    what: str
    due_s: float
    call: Callable[[], None]


def _user() -> str:
    """The name of the user, or the number where a container has no name for it."""
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):  # which one depends on Python's version and the system
        return str(os.getuid())


def _end_of(record: TrialRecord) -> tuple[str, str]:
    return _STATUS[record.state], str(record.attempt)
