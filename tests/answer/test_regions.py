"""The best ranges of params are read from the trials and the present search space."""

from __future__ import annotations

from sweeper.answer.regions import reaches_end
from sweeper.settings.space import FloatDimension
from sweeper.trials import NumberRange


def test_a_range_that_was_narrowed_to_one_value_has_an_end() -> None:
    part = NumberRange(param="x", low=1.0, high=1.0, tried_low=0.0, tried_high=2.0, open_end="low")
    assert reaches_end(part, FloatDimension(low=1.0, high=1.0), 1.0)
