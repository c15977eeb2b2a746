"""Test the guard of a budget: it counts hours, and stops a sweep when they are spent."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import budget_guard
import pytest
from budget_guard import DamagedLedger, Ledger
from studies import until

pytestmark = pytest.mark.slow  # because processes are started

#: A program in place of a sweep: it saves a file on SIGTERM and then ends.
SWEEP = """
import signal, sys, time
from pathlib import Path

def end(*_):
    Path(sys.argv[1], "saved").touch()
    sys.exit(143)

signal.signal(signal.SIGTERM, end)
Path(sys.argv[1], "began").touch()
time.sleep(60)
"""


def guarded(folder: Path, *options: str, hours: float, sweep: str = SWEEP) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [
            *(sys.executable, budget_guard.__file__, "--hours", repr(hours), "--every", "0.1"),
            *("--ledger", str(folder / "ledger.json"), *options, "--"),
            *(sys.executable, "-c", sweep, str(folder)),
        ],
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_sweep_is_stopped_when_its_budget_of_hours_is_spent_and_not_started_again(
    tmp_path: Path,
) -> None:
    limit = 1.5 / 3600
    guard = guarded(tmp_path, hours=limit)
    lines = guard.communicate(timeout=60)[1]
    assert guard.returncode == 0
    assert (tmp_path / "saved").exists()
    assert "hours are spent: the sweep is stopped" in lines
    again = guarded(tmp_path, hours=limit)
    assert "the sweep is not started" in again.communicate(timeout=60)[1]
    assert again.returncode == 0


def test_hours_between_boot_and_the_guards_start_count_only_with_the_option_since_boot(
    tmp_path: Path,
) -> None:
    limit = budget_guard.uptime_hours() / 2
    own = guarded(tmp_path, hours=limit, sweep="import sys; sys.exit(7)")
    own.communicate(timeout=60)
    assert own.returncode == 7
    rented = guarded(tmp_path, "--since", "boot", hours=limit)
    assert "the sweep is not started" in rented.communicate(timeout=60)[1]


def test_the_budget_guard_passes_sigterm_to_the_sweep_and_returns_its_exit_code(
    tmp_path: Path,
) -> None:
    guard = guarded(tmp_path, hours=1e9)
    until((tmp_path / "began").exists)
    guard.send_signal(signal.SIGTERM)
    guard.communicate(timeout=60)
    assert guard.returncode == 143
    assert (tmp_path / "saved").exists()
    ended = guarded(tmp_path, hours=1e9, sweep="import sys; sys.exit(1)")
    ended.communicate(timeout=60)
    assert ended.returncode == 1


@pytest.mark.parametrize("store", ["folder", "s3"])
def test_the_hours_of_a_preempted_machine_count_on_the_machine_that_replaces_it(
    store: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    root = str(tmp_path) if store == "folder" else request.getfixturevalue("s3")
    place = f"{root}/ledgers/digits.json"
    assert Ledger(place, "first").spent_hours(3.0) == 3.0
    second = Ledger(place, "second")
    assert second.spent_hours(1.0) == 4.0
    assert second.spent_hours(1.5) == 4.5


def test_a_damaged_ledger_of_spent_hours_is_refused_and_not_replaced(tmp_path: Path) -> None:
    place = tmp_path / "ledger.json"
    place.write_text('{"hours": 3}')
    with pytest.raises(DamagedLedger, match="is damaged; it should read"):
        Ledger(str(place), "this").spent_hours(1.0)
    guard = guarded(tmp_path, hours=1.0)
    assert "is damaged" in guard.communicate(timeout=60)[1]
    assert guard.returncode == 2
    assert place.read_text() == '{"hours": 3}'


def test_the_guard_counts_the_hours_of_its_machine_while_the_ledger_in_the_store_is_unavailable(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger = Ledger(str(tmp_path), "this")  # a folder in place of the ledger's file cannot be read
    assert ledger.spent_hours(2.0) == 2.0
    assert "cannot be read or written" in capsys.readouterr().err
