"""The rules that prune running trials by what they report, on a thread of their own."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from ...errors import SweepError, first_line
from ...notebook_api.messages import Point, StopReason
from ...search.pruners import make_pruner
from ...settings import Settings
from ...study.study import Study
from ...trials import RunningTrial, run_id_of
from .freezing import Freezer

_log = logging.getLogger(__name__)


class StopRule(Protocol):
    """A rule that prunes trials."""

    def consider(self, number: int, point: Point) -> str | None:
        """Why a trial that has reported a point is to be pruned; None if it goes on."""


class Pruned:
    """The study's pruner gives the trial up."""

    def __init__(self, study: Study, settings: Settings) -> None:
        self._study = study
        self._pruner = make_pruner(settings)
        self._objective = next(iter(settings.objective))

    def consider(self, number: int, point: Point) -> str | None:
        """As `StopRule` has it; the study gets the report."""
        value = point.metrics.get(self._objective)
        if value is None or point.step is None or point.step < 0:
            return None
        return self._study.report(number, point.step, value, self._pruner)


class StopRules:
    """Prunes running trials by the rules of the study: no message waits for it.

    A rule that fails is logged once, and the trial goes on.

    Args:
        freezer: judges in place of the study's pruner; None where no trial can be frozen.
    """

    def __init__(self, study: Study, settings: Settings, freezer: Freezer | None = None) -> None:
        self._rules: list[StopRule] = []
        if settings.study.pruner.name != "none":
            self._rules.append(freezer or Pruned(study, settings))
        self._lock = threading.Lock()
        self._running: set[int] = set()
        self._has_failed = False
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="stop rules")

    def consider(self, number: int, point: Point, running: RunningTrial) -> None:
        """Judge a trial soon by a point that it has reported; returns at once."""
        if self._rules:
            self._running.add(number)
            self._thread.submit(self._consider, number, point, running)

    def forget(self, number: int) -> None:
        """Judge a trial no more, which has ended; its last reports may still be waiting."""
        with self._lock:
            self._running.discard(number)

    def close(self) -> None:
        """End the thread; no trial runs any longer."""
        self._thread.shutdown(cancel_futures=True)

    def _consider(self, number: int, point: Point, running: RunningTrial) -> None:
        # Until the study has the report, `forget` waits: the trial must not end in between.
        with self._lock:
            if number not in self._running:
                return
            for rule in self._rules:
                try:
                    message = rule.consider(number, point)
                except Exception as error:  # noqa: BLE001  it must not end the trial
                    self._log_failure(number, point, error)
                else:
                    if message is not None:
                        running.stop(StopReason.PRUNED, message)

    def _log_failure(self, number: int, point: Point, error: Exception) -> None:
        # One warning is enough, as each report fails alike. Of a storage that is away the end of
        # the trial tells.
        is_known = self._has_failed or isinstance(error, SweepError)
        self._has_failed = self._has_failed or not is_known
        _log.log(
            logging.INFO if is_known else logging.WARNING,
            "trial %s could not be judged at step %s (%s: %s); it goes on",
            run_id_of(number),
            point.step,
            type(error).__name__,
            first_line(error),
            exc_info=is_known,
        )
