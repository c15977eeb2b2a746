"""Whether a study's budget lasts for the trials that are left, by what trials have cost so far."""

from __future__ import annotations

import math
from dataclasses import dataclass

#: After how many trials their cost says something about the others.
_LEAST_ENDED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetForecast:
    """A budget that does not last for all trials.

    Attributes:
        trials: for how many more it lasts.
        left: how many are left, those that run included.
    """

    budget: float
    trials: int
    left: int

    def __str__(self) -> str:
        return (
            f"the budget of {self.budget:g} lasts for about {self.trials} of the {self.left} "
            f"{'trial' if self.left == 1 else 'trials'} left"
        )


def forecast_budget(
    budget: float, *, cost: float, ended: int, running: int, planned: int
) -> BudgetForecast | None:
    """For how many trials a budget lasts; None where it lasts for all, or nobody knows yet.

    All time of the sweeps counts, also that in which trials waited for a GPU, divided by the
    trials that were run in it.

    Args:
        cost: of the study so far.
        planned: how many trials the study should have.
    """
    left = planned - ended
    if cost <= 0 or left <= 0 or ended < max(_LEAST_ENDED, running):
        return None
    # Those that run are half done, as far as anybody knows.
    half = running / 2
    each = cost / (ended + half)
    affordable = max(0.0, budget - cost) / each
    if affordable >= left - half:
        return None
    lasts_for = math.floor(affordable + min(affordable, half))
    return BudgetForecast(budget=budget, trials=lasts_for, left=left)
