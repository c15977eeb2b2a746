"""Compute how long the sweeps of a study have run, and what that costs."""

from __future__ import annotations

import time

from ..settings.sections import Cost
from ..study.study import Study


class Spending:
    """The wall-clock time of all sweeps of a study, including this sweep, and its cost.

    Args:
        study: The study, open.
        cost: Section `cost` of the parameters file. None if no price is known.
        since: Time at which this sweep began, on the monotonic clock, in seconds.
    """

    def __init__(self, study: Study, cost: Cost | None, *, since: float) -> None:
        self._study = study
        self._cost = cost
        self._since = since
        self._before_s = study.facts.spent_s

    @property
    def spent_s(self) -> float:
        """Wall-clock time of all sweeps of the study until now, in seconds."""
        return self._before_s + time.monotonic() - self._since

    @property
    def cost(self) -> float | None:
        """Cost of the time spent, in the currency of the parameters file. None without a price."""
        return None if self._cost is None else self._cost.price_of(self.spent_s)

    @property
    def left_s(self) -> float | None:
        """Seconds until the budget is spent. None if there is no budget."""
        if self._cost is None or self._cost.budget is None:
            return None
        return max(0.0, self._cost.budget / self._cost.price_per_hour * 3600 - self.spent_s)

    def write(self) -> None:
        """Store in the study how long its sweeps have run, so that it counts even after a kill."""
        # The sum is stored, not an increment, so that a repeated write counts no time twice.
        self._study.note_facts(spent_s=self.spent_s)
