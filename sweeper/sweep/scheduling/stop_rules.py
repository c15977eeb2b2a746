"""Decide on a separate thread, by the scores that trials report, which trials stop early."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

from ...errors import SweepError, first_line
from ...notebook_api.messages import Point
from ...search.pruners import Pruner
from ...study.study import Study
from ...trials import run_id_of
from .decisions import Decision, Prune

_log = logging.getLogger(__name__)


class StopRule(Protocol):
    """A rule that decides while trials run which are pruned, frozen, or moved off their GPU."""

    def judge(self, number: int) -> Decision | None:
        """Decide about a trial whose latest report the study has just stored.

        Return None to change nothing.
        """


@dataclass(frozen=True)
class PruneRule:
    """The stop rule of a pruner that prunes trials, but never freezes them.

    Attributes:
        study: The study, open.
        pruner: The study's pruner.
    """

    study: Study
    pruner: Pruner

    def judge(self, number: int) -> Prune | None:
        """Return the decision to prune a trial if the pruner asks for it, else None."""
        message = self.study.why_to_prune(number, self.pruner)
        return None if message is None else Prune(number, message)


class StopRules:
    """Stores the reports of trials, and applies the study's stop rules to them.

    A separate thread does both, so that the messages of kernels are read without delay. If a rule
    raises an error, the trial continues, and only the first error is logged as a warning.

    Args:
        study: The study, open.
        rules: Stop rules. Each one is asked about each report.
        objective: Name of the score by which trials are judged.
        act: Carries out a decision.
        lock: Lock that is held from a decision until it is carried out.
    """

    def __init__(
        self,
        study: Study,
        rules: Sequence[StopRule],
        *,
        objective: str,
        act: Callable[[Decision], object],
        lock: threading.RLock,
    ) -> None:
        self._study, self._rules, self._objective = study, rules, objective
        self._act, self._lock = act, lock
        self._running: set[int] = set()
        self._has_failed = False
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="stop rules")

    def consider(self, number: int, point: Point) -> None:
        """Let the thread judge a trial by the scores that the trial has reported. Return at once.

        Args:
            number: Trial number in the study.
            point: The reported scores and their step. A point without a step, with a negative step
                or without the objective is ignored.
        """
        value = point.metrics.get(self._objective)
        if not self._rules or value is None or point.step is None or point.step < 0:
            return
        self._running.add(number)
        self._thread.submit(self._consider, number, point.step, value)

    def forget(self, number: int) -> None:
        """Stop judging a trial, because it has ended.

        Reports of the trial that are still in the queue are then ignored.
        """
        with self._lock:
            self._running.discard(number)

    def close(self) -> None:
        """End the thread. Called when no trial runs any more."""
        self._thread.shutdown(cancel_futures=True)

    def _consider(self, number: int, step: int, value: float) -> None:
        # The lock makes `forget` wait until the study has the report, so that the trial does not
        # end in between.
        with self._lock:
            if number not in self._running:
                return
            try:
                self._study.note_report(number, step, value)
                for rule in self._rules:
                    decision = rule.judge(number)
                    if decision is not None:
                        self._act(decision)
            except Exception as error:  # noqa: BLE001  an error of a rule must not end the trial
                self._log_failure(number, step, error)

    def _log_failure(self, number: int, step: int, error: Exception) -> None:
        # Only the first error is logged as a warning, because all later reports fail in the same
        # way. Users learn of an unavailable storage when the trial ends.
        is_known = self._has_failed or isinstance(error, SweepError)
        self._has_failed = self._has_failed or not is_known
        _log.log(
            logging.INFO if is_known else logging.WARNING,
            "trial %s could not be judged at step %s (%s: %s); it continues",
            run_id_of(number),
            step,
            type(error).__name__,
            first_line(error),
            exc_info=is_known,
        )
