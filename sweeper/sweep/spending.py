"""How long the sweeps of a study have run, written down meanwhile: a budget survives any kill."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ..errors import first_line
from ..settings.sections import Cost
from ..study import Study
from ..trials import BudgetForecast, forecast_budget

_log = logging.getLogger(__name__)

#: How much time a kill can hide at most where no trial ends; and where one ends after another.
_SAVE_S, _PAUSE_S = 15.0, 1.0


class Spending:
    """The wall-clock time of all sweeps of a study, this one included.

    Args:
        cost: what an hour costs; None when no price is known.
        since: when this sweep began, on the monotonic clock.
    """

    def __init__(self, study: Study, cost: Cost | None, *, since: float) -> None:
        self._study = study
        self._cost = cost
        self._since = since
        self._before_s = study.spent_s
        self._has_trial_ended = threading.Event()
        self._closing = threading.Event()
        self._has_reported = False

    @property
    def spent_s(self) -> float:
        """In seconds, until now."""
        return self._before_s + time.monotonic() - self._since

    @property
    def cost(self) -> float | None:
        """The price of that, in the currency of the parameters file; None when it is not known."""
        return None if self._cost is None else self._cost.price_per_hour * self.spent_s / 3600

    @property
    def left_s(self) -> float | None:
        """For how many seconds the budget lasts; None without one."""
        if self._cost is None or self._cost.budget is None:
            return None
        return max(0.0, self._cost.budget / self._cost.price_per_hour * 3600 - self.spent_s)

    @property
    def budget(self) -> float | None:
        """What the study may cost; None without a limit."""
        return None if self._cost is None else self._cost.budget

    def forecast(self, *, ended: int, running: int, planned: int) -> BudgetForecast | None:
        """For how many of the trials that are left the budget lasts; None where it lasts for all.

        Args:
            planned: how many trials the study should have.
        """
        if self.cost is None or self.budget is None:
            return None
        return forecast_budget(
            self.budget, cost=self.cost, ended=ended, running=running, planned=planned
        )

    def report(self, forecast: Callable[[], BudgetForecast | None]) -> None:
        """Say once that the budget does not last; called when a trial has ended.

        Args:
            forecast: for how many trials the budget lasts; not called without a budget.
        """
        if self.budget is None or self._has_reported:
            return
        found = forecast()
        if found is not None:
            self._has_reported = True
            _log.warning("cost: %s; raise cost.budget, or lower study.trials", found)

    def trial_ended(self) -> None:
        """Write the time down soon; the caller does not wait for that."""
        self._has_trial_ended.set()

    @contextmanager
    def written_down(self, look: Callable[[], object] = lambda: None) -> Iterator[None]:
        """Write it down while the block runs, and at its end.

        Args:
            look: called each time before, by the same thread.
        """
        thread = threading.Thread(target=self._work, args=[look], name="spending", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._closing.set()
            self._has_trial_ended.set()
            thread.join()

    def _work(self, look: Callable[[], object]) -> None:
        # The sum and not what came on top: writing it twice counts nothing twice.
        while not self._closing.is_set():
            look()
            self._write()
            self._has_trial_ended.wait(_SAVE_S)
            self._closing.wait(_PAUSE_S)
            self._has_trial_ended.clear()
        self._write()

    def _write(self) -> None:
        try:
            self._study.note_spent(self.spent_s)
        except Exception as error:  # noqa: BLE001  it is written again soon
            _log.info("the time spent was not written down: %s", first_line(error))
