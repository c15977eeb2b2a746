"""Test which end of a param's range in the search space the best trials reach."""

from __future__ import annotations

from sweeper.answer.regions import end_reached
from sweeper.settings.space import FloatDimension
from sweeper.trials import NumberRange


def test_a_range_of_the_best_trials_reaches_the_end_of_a_space_narrowed_to_one_value() -> None:
    part = NumberRange(param="x", low=1.0, high=1.0, tried_low=0.0, tried_high=2.0, open_end="low")
    assert end_reached(part, FloatDimension(low=1.0, high=1.0), 1.0) == "low"
