"""How long the sweeps of a study have run, and what that costs."""

from __future__ import annotations

import time

from ..settings.sections import Cost
from ..study.study import Study


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
        self._before_s = study.facts.spent_s

    @property
    def spent_s(self) -> float:
        """In seconds, until now."""
        return self._before_s + time.monotonic() - self._since

    @property
    def cost(self) -> float | None:
        """The price of that, in the currency of the parameters file; None when it is not known."""
        return None if self._cost is None else self._cost.price_of(self.spent_s)

    @property
    def left_s(self) -> float | None:
        """For how many seconds the budget lasts; None without one."""
        if self._cost is None or self._cost.budget is None:
            return None
        return max(0.0, self._cost.budget / self._cost.price_per_hour * 3600 - self.spent_s)

    def write(self) -> None:
        """Write the time down in the study, so that a budget survives any kill."""
        # The sum and not what came on top: writing it twice counts nothing twice.
        self._study.note_facts(spent_s=self.spent_s)
