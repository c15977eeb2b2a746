"""Test a drawing that a thread repeats, such as the live table."""

from __future__ import annotations

import threading

import pytest

from sweeper.display import repeating


def test_a_periodic_call_that_hangs_does_not_block_the_end_of_its_repetition(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(repeating, "_MAX_CALL_S", 0.01)
    begun, may_end = threading.Event(), threading.Event()

    def draw() -> None:
        begun.set()
        may_end.wait()

    with repeating.repeated(draw, 0.001, name="table") as thread:
        begun.wait()
    assert thread.is_alive()
    may_end.set()
    thread.join()
