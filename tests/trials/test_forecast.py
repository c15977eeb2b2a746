"""For how many trials a budget lasts, by what trials have cost so far."""

from __future__ import annotations

import pytest

from sweeper.trials import BudgetForecast, forecast_budget


@pytest.mark.parametrize(
    ("cost", "ended", "running", "planned", "lasts_for"),
    [
        (2.0, 10, 0, 50, 15),  # 0.2 each, and 3 are left of 5
        (2.0, 10, 0, 25, None),  # just enough
        (2.0, 10, 0, 26, 15),
        (2.0, 8, 4, 50, 17),  # those that run are half done: 0.2 each, 40 of 42 to pay
        (4.8, 22, 4, 50, 2),  # one trial is left of it, which half of those that run need
        (6.0, 10, 0, 50, 0),
        (6.0, 50, 0, 50, None),
        (6.0, 55, 0, 50, None),
        (4.9, 2, 0, 50, None),  # too early to say
        (4.9, 4, 8, 50, None),  # likewise, as not one slot has had two trials
    ],
)
def test_a_budget_of_5_lasts_for_as_many_trials_as_it_pays_for(
    cost: float, ended: int, running: int, planned: int, lasts_for: int | None
) -> None:
    found = forecast_budget(5.0, cost=cost, ended=ended, running=running, planned=planned)
    assert (found and found.trials) == lasts_for
    if found is not None:
        assert found.left == planned - ended


def test_a_forecast_is_a_sentence() -> None:
    text = str(BudgetForecast(budget=5.0, trials=31, left=40))
    assert text == "the budget of 5 lasts for about 31 of the 40 trials left"
    assert str(BudgetForecast(budget=0.5, trials=0, left=1)).endswith("0 of the 1 trial left")
