"""Judge running trials with the study's pruner, on a thread of its own: no message waits for it."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import ThreadPoolExecutor

from ...errors import SweepError, first_line
from ...notebook_api.messages import Point, StopReason
from ...settings import Settings
from ...study import Study, make_pruner
from ...trials import RunningTrial, run_id_of

_log = logging.getLogger(__name__)


class PruningThread:
    """Stops running trials that the study's pruner gives up.

    A pruner that fails is logged once, and the trial goes on.
    """

    def __init__(self, study: Study, settings: Settings) -> None:
        self._study = study
        self._pruner = make_pruner(settings)
        self._objective = next(iter(settings.objective))
        self._lock = threading.Lock()
        self._running: set[int] = set()
        self._has_failed = False
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="pruning")

    def consider(self, number: int, point: Point, running: RunningTrial) -> None:
        """Judge a trial soon by a point that it has reported; returns at once."""
        value = point.metrics.get(self._objective)
        if value is not None and point.step is not None and point.step >= 0:
            self._running.add(number)
            self._thread.submit(self._consider, number, point.step, value, running)

    def forget(self, number: int) -> None:
        """Judge a trial no more, which has ended; its last reports may still be waiting."""
        with self._lock:
            self._running.discard(number)

    def close(self) -> None:
        """End the thread; no trial runs any longer."""
        self._thread.shutdown(cancel_futures=True)

    def _consider(self, number: int, step: int, value: float, running: RunningTrial) -> None:
        # Until the study has the report, `forget` waits: the trial must not end in between.
        with self._lock:
            reason = self._judge(number, step, value) if number in self._running else None
        if reason is not None:
            running.stop(StopReason.PRUNED, reason)

    def _judge(self, number: int, step: int, value: float) -> str | None:
        """Why a trial should be pruned; None when it should go on."""
        try:
            return self._study.report(number, step, value, self._pruner)
        except SweepError as error:  # the storage: recording the trial's end meets it as well
            _log.info("pruner, trial %d, step %d: %s", number, step, error)
        except Exception as error:  # noqa: BLE001  it must not end the trial
            # One warning is enough: each report to a broken pruner fails.
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
        return None
