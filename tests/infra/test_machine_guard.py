"""When the guard of a rented machine ends it, and that it stops a sweep before."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import machine_guard
import pytest
from machine_guard import ALIVE_S, DamagedLedger, Decision, Guard, Ledger, Limits, Look, live_sweeps

from sweeper.study_folder.ownership import held_folder
from sweeper.trials import StudyPaths

SCRIPT = Path(machine_guard.__file__)
MINUTE_S = 60.0
SWEEPS = (Path("out/digits"),)


def guard(*, hours: float = math.inf) -> Guard:
    return Guard(Limits(idle_s=30 * MINUTE_S, hours=hours, grace_s=15 * MINUTE_S))


def look(minute: float, *, spent: float = 0.0, **facts: Any) -> Look:
    return Look(at_s=minute * MINUTE_S, spent_hours=spent, **facts)


def test_a_machine_that_does_nothing_for_the_idle_time_is_ended() -> None:
    one = guard()
    assert one.decide(look(0))[0] is Decision.WAIT
    assert one.decide(look(29))[0] is Decision.WAIT
    assert one.decide(look(30)) == (Decision.SHUT_DOWN, "idle for 30 of 30 minutes")


@pytest.mark.parametrize("facts", [{"is_busy": True}, {"is_kept": True}, {"sweeps": SWEEPS}])
def test_any_work_begins_the_idle_time_anew(facts: dict[str, Any]) -> None:
    one = guard()
    one.decide(look(0))
    assert one.decide(look(29, **facts))[0] is Decision.WAIT
    assert one.decide(look(58))[0] is Decision.WAIT
    assert one.decide(look(87))[0] is Decision.WAIT
    assert one.decide(look(88))[0] is Decision.SHUT_DOWN


def test_a_sweep_is_never_interrupted_for_idleness() -> None:
    one = guard()
    assert all(one.decide(look(m, sweeps=SWEEPS))[0] is Decision.WAIT for m in range(10_000))


def test_a_spent_budget_stops_the_sweep_and_ends_the_machine_when_it_has_ended() -> None:
    one = guard(hours=10)
    assert one.decide(look(0, spent=9.99, sweeps=SWEEPS))[0] is Decision.WAIT
    assert one.decide(look(1, spent=10, sweeps=SWEEPS))[0] is Decision.STOP_SWEEPS
    assert one.decide(look(2, spent=10.02, sweeps=SWEEPS))[0] is Decision.STOP_SWEEPS
    assert one.decide(look(3, spent=10.04)) == (
        Decision.SHUT_DOWN,
        "10.04 of 10.00 hours are spent",
    )


def test_a_sweep_that_does_not_end_gets_the_grace_time_only() -> None:
    one = guard(hours=10)
    one.decide(look(0, spent=10, sweeps=SWEEPS))
    assert one.decide(look(14, spent=10.2, sweeps=SWEEPS))[0] is Decision.STOP_SWEEPS
    decision, why = one.decide(look(15, spent=10.3, sweeps=SWEEPS))
    assert decision is Decision.SHUT_DOWN
    assert "has not ended within 15 minutes" in why


def test_a_sweep_is_seen_by_its_lock_while_it_lives(tmp_path: Path) -> None:
    paths = StudyPaths.parse(str(tmp_path / "digits.{run_id}.ipynb"), study="digits")
    with held_folder(paths) as held:
        held.is_needed = True
        long_ago = time.time() - 10 * ALIVE_S  # as that of a sweep that is suspended
        os.utime(paths.owner, (long_ago, long_ago))
        assert live_sweeps([tmp_path]) == (paths.folder,)
    assert live_sweeps([tmp_path]) == ()


def test_a_sweep_on_another_machine_is_seen_by_its_heartbeat(tmp_path: Path) -> None:
    owner = tmp_path / "digits" / "sweep.json"
    owner.parent.mkdir()
    owner.write_text("{}")
    assert live_sweeps([tmp_path]) == (owner.parent,)
    long_ago = time.time() - 2 * ALIVE_S
    os.utime(owner, (long_ago, long_ago))
    assert live_sweeps([tmp_path]) == ()


def test_the_hours_of_machines_that_were_preempted_count(tmp_path: Path) -> None:
    place = tmp_path / "ledgers" / "digits.json"
    place.parent.mkdir()
    place.write_text(json.dumps({"hours": {"first": 3.0, "second": 4.5}}))
    ledger = Ledger(str(place), "third", machine_guard._boot_clock_s() - 3600)
    ledger.update()
    assert ledger.spent_hours == pytest.approx(8.5, abs=0.01)
    written = json.loads(place.read_text())["hours"]
    assert written == {"first": 3.0, "second": 4.5, "third": pytest.approx(1.0, abs=0.01)}


def test_a_ledger_is_kept_in_an_object_storage_too(s3: str) -> None:
    for number, name in enumerate(("first", "second"), 1):
        ledger = Ledger(f"{s3}/ledgers/a.json", name, machine_guard._boot_clock_s() - 3600)
        ledger.update()
        assert ledger.spent_hours == pytest.approx(number, abs=0.01)


def test_a_damaged_ledger_is_refused_and_not_replaced(tmp_path: Path) -> None:
    place = tmp_path / "digits.json"
    place.write_text('{"hours": 3}')
    with pytest.raises(DamagedLedger, match="is damaged; it should read"):
        Ledger(str(place), "this", 0.0).update()
    assert place.read_text() == '{"hours": 3}'


def test_a_store_that_is_away_costs_no_hour(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger = Ledger(str(tmp_path), "this", 0.0)  # a folder cannot be read as a file
    ledger.update()
    assert ledger.spent_hours > 0
    assert "cannot be read or written" in capsys.readouterr().err


SWEEP = """
import signal, sys, time
from pathlib import Path
from typing import Any
from sweeper.study_folder.ownership import held_folder
from sweeper.trials import StudyPaths

class Ended(BaseException):
    pass

def end(*_):
    raise Ended

signal.signal(signal.SIGTERM, end)
folder = Path(sys.argv[1])
try:
    with held_folder(StudyPaths.parse(str(folder / "a.{run_id}.ipynb"), study="a")) as held:
        held.is_needed = True
        (folder / "began").touch()
        time.sleep(60)
except Ended:
    (folder / "copied").touch()
"""


def test_a_real_sweep_ends_before_the_machine_does(tmp_path: Path) -> None:
    sweep = subprocess.Popen([sys.executable, "-c", SWEEP, str(tmp_path)])
    while not (tmp_path / "began").exists():
        assert sweep.poll() is None
        time.sleep(0.02)
    watching = subprocess.Popen(
        [
            *(sys.executable, str(SCRIPT), "watch", "--out", str(tmp_path), "--every", "0.1s"),
            *("--budget-hours", "1e-9", "--count-from", "start", "--stop", "false"),
            *("--ledger", str(tmp_path / "ledger.json")),
            *("--shutdown", f"test -e {tmp_path}/copied && touch {tmp_path}/off"),
        ],
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert sweep.wait(60) == 0
        while not (tmp_path / "off").exists():
            assert watching.poll() is None
            time.sleep(0.02)
    finally:
        watching.send_signal(signal.SIGTERM)
        lines = watching.communicate()[1]
    assert watching.returncode == 0
    assert "stopping the sweep in" in lines
    assert "sending SIGTERM to the sweep" in lines
    assert "ending this machine" in lines
    (hours,) = json.loads((tmp_path / "ledger.json").read_text())["hours"].values()
    assert hours > 0  # of the first look it would be 0


def test_a_machine_that_stays_is_ended_in_the_next_way(tmp_path: Path) -> None:
    actions = machine_guard.Actions("true", ["false", f"touch {tmp_path}/off"])
    actions.shut_down("idle")  # fails, so that the next one is tried at the next look
    actions.shut_down("idle")
    assert (tmp_path / "off").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--idle", "30"], "'30' is no duration; write it as 90s, 30m, 8h or 2d"),
        (["--budget", "48"], "--budget needs --price-per-hour"),
        (["--budget-hours", "0"], "'0' is no number above 0"),
    ],
)
def test_wrong_options_are_refused(
    options: list[str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = ["machine_guard.py", "watch", "--out", "out", "--shutdown", "true", *options]
    monkeypatch.setattr(sys, "argv", arguments)
    with pytest.raises(SystemExit) as refused:
        machine_guard.main()
    assert refused.value.code == 2
    assert message in capsys.readouterr().err


def test_a_container_is_healthy_without_a_sweep_and_not_with_a_dead_one(tmp_path: Path) -> None:
    call = [sys.executable, str(SCRIPT), "health", "--out", str(tmp_path)]
    assert subprocess.run(call, stdout=subprocess.DEVNULL, check=False).returncode == 0
    owner = tmp_path / "a" / "sweep.json"
    owner.parent.mkdir()
    owner.write_text("{}")
    os.utime(owner, (0, 0))
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (
        1,
        f"no sign of life from the sweep in {tmp_path}/a\n",
    )
