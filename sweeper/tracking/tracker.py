"""What a sweep writes to MLflow, and what it knows of it; no trial waits for MLflow.

What MLflow does not take is written by the next sweep of the study, which finds everything in the
executed notebooks.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from functools import partial

from ..notebook_api.messages import Point
from ..trials import TrialRecord
from .delivery import Delivery
from .messages import (
    Confirmed,
    Described,
    Ended,
    Logged,
    Message,
    Opened,
    Reply,
    Reported,
    RunEnd,
    Series,
    Started,
    StopTagged,
    Store,
    end_of,
)
from .opening import comparison, free_port
from .values import now_ms

#: The port of `mlflow ui`, if nothing else has it.
USUAL_PORT = 5000

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

    Raises:
        TrackingError: the process cannot be started.
    """

    def __init__(self, store: Store, *, tries_again: bool = False) -> None:
        self.uri = str(store.address)
        self.mlflow_run_ids: dict[str, str] = {}
        self._address = store.address
        self._ui_port: int | None = None
        self._experiment_id = ""
        self._has_view = False
        self._ends: dict[str, RunEnd] = {}
        self._on_stop: Callable[[str], None] | None = None
        #: How many messages about a trial MLflow did not take; reset once it takes the trial's end.
        self._untaken: Counter[str] = Counter()
        self._reasons: set[str] = set()
        self._on_open: Callable[[], object] = lambda: None
        self._on_refusal: Callable[[], object] = lambda: None
        self._delivery = Delivery(
            store,
            tries_again=tries_again,
            on_reply=self._take,
            on_receipt=self._take_receipt,
            on_refusal=lambda: self._call(self._on_refusal),
        )

    def wait_until_open(self) -> None:
        """Wait until MLflow has opened the store.

        Raises:
            TrackingError: it cannot.
        """
        self._delivery.wait_until_open()

    @property
    def refusal(self) -> str | None:
        """Why MLflow cannot open the store; None before it has tried, and where it can."""
        return self._delivery.refusal

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

    # --- messages of the scheduler -----------------------------------------------------------

    def started(self, record: TrialRecord, described: Mapping[str, str]) -> None:
        """Write that a trial has begun.

        Args:
            described: the trial's params as text, with `n/a` for those outside its branch.
        """
        self._delivery.put(Started(record=record, described=described))

    def reported(self, run_id: str, point: Point) -> None:
        """Write a point; points that arrive soon after one another are written together."""
        if point.step is None:  # a final value, which is written with the trial's end
            return
        at_ms, step = now_ms(), point.step
        points = [(name, step, value, at_ms) for name, value in point.metrics.items()]
        self._delivery.put(Reported(run_id=run_id, points=points))

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
        self._delivery.put(Ended(record=record, series=series, tags=tags, at_ms=now_ms()))

    def confirmed(self, run_id: str, metrics: Mapping[str, float], tags: Mapping[str, str]) -> None:
        """Write what runs on fresh seeds have come to for a trial; all of it replaces what was."""
        self._delivery.put(Confirmed(run_id=run_id, metrics=metrics, tags=tags))

    def described(self, note: str, best: Mapping[str, str]) -> None:
        """Write the text that MLflow's UI displays above the runs.

        Args:
            note: what the study is, in Markdown.
            best: the run ids of the best trials, each with its scores and params in words.
        """
        self._delivery.put(Described(note=note, best=best))

    def close(self, *, patience_s: float | None = None) -> int:
        """Wait until all messages are written, and end the process.

        Args:
            patience_s: how long to wait at most; None waits as long as the store takes a message
                at least every minute.

        Returns:
            how many messages MLflow did not take. Messages about a trial whose end it took do not
            count, because the end repeats everything.
        """
        n_waiting = self._delivery.close(patience_s=patience_s)
        return n_waiting + self._untaken.total()

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

    def compare_url(self, *, without: Collection[str] = ()) -> str | None:
        """The page of MLflow's UI that draws parallel coordinates over all runs; None if none.

        Args:
            without: run ids of trials that are left out, as far as MLflow's UI can do so.
        """
        names = sorted(self.mlflow_run_ids.keys() - without)
        if not names:
            return None
        runs = [self.mlflow_run_ids[name] for name in names]
        if self._ui_port is None:
            self._ui_port = free_port(USUAL_PORT)
        return comparison(
            self._address,
            self.experiment_id,
            runs,
            has_view=self._has_view,
            port=self._ui_port,
        )

    # --- replies, on a thread of their own -------------------------------------------------------

    def _take(self, reply: Reply) -> None:
        match reply:
            case Opened():
                self._experiment_id, self._has_view = reply.experiment_id, reply.has_view
                self.mlflow_run_ids.update(reply.runs)
                self._ends.update(reply.ends)
                self._call(self._on_open)
            case StopTagged() if self._on_stop is not None and not self._delivery.is_closing:
                self._call(partial(self._on_stop, reply.run_id))
            case Logged():
                _log.log(reply.level, "%s", reply.text)

    def _take_receipt(self, message: Message, mlflow_id: str | None, error: str | None) -> None:
        run_id = message.run_id
        if mlflow_id is not None:
            self.mlflow_run_ids[run_id] = mlflow_id
        if error is not None:
            self._warn(message, error)
        elif isinstance(message, Ended):
            self._ends[run_id] = end_of(message.record)
            del self._untaken[run_id]
        elif isinstance(message, Started):
            self._ends.pop(run_id, None)

    def _call(self, call: Callable[[], object]) -> None:
        try:
            call()
        except Exception as error:  # noqa: BLE001  what others do must not end this thread
            _log.info("%s", error)

    def _warn(self, message: Message, reason: str) -> None:
        self._untaken[message.run_id] += 1
        is_new = reason not in self._reasons  # a server that is away fails each message alike
        self._reasons.add(reason)
        _log.log(
            logging.WARNING if is_new else logging.INFO,
            "MLflow did not take %s %s: %s",
            message.what,
            message.run_id,
            reason,
        )
