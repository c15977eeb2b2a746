"""Test the ranges that are drafted around a value."""

from __future__ import annotations

from sweeper.drafting.space.spaces import Receiver, row_for


def test_the_range_for_min_child_weight_is_used_even_if_the_notebook_writes_it_as_1_0() -> None:
    row = row_for([Receiver(parameter="min_child_weight")])
    assert row is not None
    assert row.space_around(1.0) == {"low": 1.0, "high": 128.0, "log": True}
