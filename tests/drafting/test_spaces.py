"""Test the ranges that are drafted around a value."""

from __future__ import annotations

from sweeper.drafting.space.spaces import Receiver, row_for


def test_a_whole_number_that_the_notebook_writes_as_a_float_has_the_range_for_its_name() -> None:
    row = row_for([Receiver(parameter="min_child_weight")])
    assert row is not None
    assert row.space_around(1.0) == {"low": 1.0, "high": 128.0, "log": True}
