"""Test the repetition of a drawing."""

from __future__ import annotations

import threading

import pytest

from sweeper.display import repeating


def test_a_drawing_that_hangs_is_left_behind_and_known(monkeypatch: pytest.MonkeyPatch) -> None:
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
