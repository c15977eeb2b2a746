"""The live table, and what is printed while it is drawn."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator
from functools import partial

import pytest
from snapshots import completed, progress, snapshot
from studies import until

from sweeper.cli import live_table as live_module
from sweeper.cli.live_table import live_table
from sweeper.cli.streams import can_redraw
from sweeper.trials import Snapshot


def test_a_stream_that_is_no_terminal_gets_no_live_table() -> None:
    assert not can_redraw(io.StringIO())


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    stream = io.StringIO()
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    yield stream


def test_a_live_table_is_gone_in_the_end(terminal: io.StringIO) -> None:
    with live_table(lambda: snapshot(progress()), terminal):
        pass
    assert "0007" in terminal.getvalue()
    assert terminal.getvalue().endswith("\x1b[J\x1b[?25h")  # all below is cleared


def test_what_takes_long_before_the_first_trial_is_said_and_moves(terminal: io.StringIO) -> None:
    for look in (None, snapshot(counts={})):
        with live_table(partial({"look": look}.get, "look"), terminal):
            pass
    shown = terminal.getvalue()
    assert shown.count("preparing the study") == 2


@pytest.mark.tables_may_fail
def test_a_table_that_cannot_be_drawn_once_costs_a_line_and_no_later_frame(
    terminal: io.StringIO, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(live_module, "_INTERVAL_S", 0.01)
    looks = 0

    def look() -> Snapshot:
        nonlocal looks
        looks += 1
        if 2 < looks < 6:
            raise RuntimeError("a defect")
        return snapshot(progress())

    with live_table(look, terminal):
        until(lambda: looks > 40)
    (record,) = [it for it in caplog.records if it.levelno >= logging.WARNING]
    assert "RuntimeError: a defect" in record.getMessage()
    assert record.exc_info is None
    assert "Traceback" not in terminal.getvalue()
    assert terminal.getvalue().count("0007") > 10


def test_many_trials_leave_lines_for_results(terminal: io.StringIO) -> None:
    rows = [progress(f"{i:04d}", waits_for=f"memory {i}") for i in range(30)]
    with live_table(lambda: snapshot(*rows, best=[completed(3)]), terminal):
        pass
    drawn = terminal.getvalue().split("digits")[-1]
    assert "best: 0003" in drawn
    assert "… and 22 more" in drawn
    assert drawn.count("waits for") == 3
