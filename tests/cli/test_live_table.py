"""Test the live table, and lines that are printed while it is displayed."""

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


def test_a_stream_that_is_not_a_terminal_gets_no_live_table() -> None:
    assert not can_redraw(io.StringIO())


def test_a_command_that_a_cell_of_a_notebook_runs_draws_no_live_table(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # IPython's `!` gives the command a terminal, and the cell would keep every frame.
    monkeypatch.setenv("TERM", "xterm-color")
    stream = io.StringIO()
    stream.isatty = lambda: True  # type: ignore[method-assign]
    for kernel, is_drawn in ((None, True), ("1", False)):
        monkeypatch.delenv("JPY_PARENT_PID", raising=False)
        if kernel is not None:
            monkeypatch.setenv("JPY_PARENT_PID", kernel)
        assert can_redraw(stream) is is_drawn


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    stream = io.StringIO()
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    yield stream


def test_the_live_table_is_erased_at_the_end(terminal: io.StringIO) -> None:
    with live_table(lambda: snapshot(progress()), terminal):
        pass
    assert "0007" in terminal.getvalue()
    # The escape code that clears the screen below the cursor.
    assert terminal.getvalue().endswith("\x1b[J\x1b[?25h")


def test_the_live_table_shows_the_preparation_of_a_sweep_before_the_first_trial(
    terminal: io.StringIO,
) -> None:
    for look in (None, snapshot(counts={})):
        with live_table(partial({"look": look}.get, "look"), terminal):
            pass
    shown = terminal.getvalue()
    assert shown.count("preparing the study") == 2


@pytest.mark.tables_may_fail
def test_a_live_table_that_fails_several_times_logs_one_line_and_is_drawn_again(
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


def test_the_live_table_counts_trials_that_do_not_fit_and_still_shows_the_best_trial(
    terminal: io.StringIO,
) -> None:
    rows = [progress(f"{i:04d}", waits_for=f"memory {i}") for i in range(30)]
    with live_table(lambda: snapshot(*rows, best=[completed(3)]), terminal):
        pass
    drawn = terminal.getvalue().split("digits")[-1]
    assert "best: 0003" in drawn
    assert "… and 22 more" in drawn
    assert drawn.count("waits for") == 3
