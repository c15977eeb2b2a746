"""What is thought about while trials run, on threads of its own: no slot waits for it."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable

from ..errors import SweepError, first_line
from ..notebook_api.messages import Point, StopReason
from ..settings import Settings
from ..study import Study, make_pruner
from ..trials import RunningTrial, run_id_of

_log = logging.getLogger(__name__)


class PruningThread:
    """Has the pruner judge running trials: no message waits for it."""

    def __init__(self, study: Study, settings: Settings) -> None:
        self._study = study
        self._pruner = make_pruner(settings)
        self._objective = next(iter(settings.objective))
        self._lock = threading.Lock()
        self._running: set[int] = set()
        self._heard: queue.SimpleQueue[tuple[int, int, float, RunningTrial] | None] = (
            queue.SimpleQueue()
        )
        self._is_closing = self._has_failed = False
        self._thread = threading.Thread(target=self._work, name="judge", daemon=True)
        self._thread.start()

    def hear(self, number: int, point: Point, channel: RunningTrial) -> None:
        """A running trial has reported."""
        value = point.metrics.get(self._objective)
        if value is not None and point.step is not None and point.step >= 0:
            self._running.add(number)
            self._heard.put((number, point.step, value, channel))

    def forget(self, number: int) -> None:
        """A trial has ended: what it reported last is not judged any more."""
        with self._lock:
            self._running.discard(number)

    def close(self) -> None:
        """Judge no more; no trial runs any longer."""
        self._is_closing = True
        self._heard.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (heard := self._heard.get()) is not None and not self._is_closing:
            number, step, value, channel = heard
            with self._lock:
                if number not in self._running:
                    continue
                try:
                    said = self._study.report(number, step, value, self._pruner)
                except SweepError as error:  # whoever tells the storage of an end fails likewise
                    _log.info("pruner, trial %d, step %d: %s", number, step, error)
                    continue
                except Exception as error:  # noqa: BLE001  it must not end the trial
                    self._fail(number, step, error)
                    continue
            if said is not None:
                channel.stop(StopReason.PRUNED, said)

    def _fail(self, number: int, step: int, error: Exception) -> None:
        """Tell of the first failure: where there is one, each report has one."""
        level = logging.INFO if self._has_failed else logging.WARNING
        self._has_failed = True
        _log.log(
            level,
            "the pruner could not judge trial %s at step %d (%s: %s); the trial goes on",
            run_id_of(number),
            step,
            type(error).__name__,
            first_line(error),
            exc_info=level == logging.INFO,
        )


class ProposalPrefetcher:
    """Has a proposal made while trials run: no slot waits for a sampler."""

    def __init__(self, prepare: Callable[[], None]) -> None:
        self._prepare = prepare
        # A queue: a wish that comes while another is taken is not lost, as that of an event is.
        self._wanted: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._is_closing = False
        self._thread = threading.Thread(target=self._work, name="ahead", daemon=True)
        self._thread.start()

    def want(self) -> None:
        """The last proposal was taken."""
        self._wanted.put(True)

    def close(self) -> None:
        """Make no more."""
        self._is_closing = True
        self._wanted.put(False)
        self._thread.join()

    def _work(self) -> None:
        while self._wanted.get() and not self._is_closing:
            try:
                self._prepare()
            except Exception:  # noqa: BLE001  who asks next fails likewise, and is heard
                _log.info("no proposal ahead", exc_info=True)
