"""Test which output goes to stdout and which to stderr."""

from __future__ import annotations

import itertools
import json
import time
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from studies import sweep_result, trial_record, until

from sweeper import Sweep
from sweeper.cli import console_output
from sweeper.cli.console_output import ConsoleOutput
from sweeper.trials import (
    Chore,
    ChoreKind,
    Event,
    Notice,
    Reason,
    Snapshot,
    StopCause,
    SweepResult,
    TrialRecord,
    TrialState,
    count_by_state,
)


def console(**flags: bool) -> ConsoleOutput:
    usual = {"quiet": False, "verbose": False, "json": False}
    return ConsoleOutput(**{**usual, **flags})


FAILED = trial_record(state=TrialState.FAILED, reason=Reason.CELL_ERROR, message="1/0")


def state_of(*records: TrialRecord) -> tuple[SweepResult, Snapshot]:
    best = [r for r in records if r.state is TrialState.COMPLETED][:1]
    common: dict[str, Any] = {"study": "digits", "objectives": ["val"], "best": best}
    result = sweep_result(records=list(records), **common)
    return result, Snapshot(**common, trials=40, counts=count_by_state(records), running=[])


def test_a_result_for_people_goes_to_stdout_or_with_the_option_json_to_stderr(
    capsys: pytest.CaptureFixture[str],
) -> None:
    result, _ = state_of(trial_record())
    console().summary(result)
    printed = capsys.readouterr()
    assert "best: 0000" in printed.out
    assert printed.err == ""
    with_json = console(json=True)
    with_json.summary(result)
    with_json.json(result.to_json())
    printed = capsys.readouterr()
    assert json.loads(printed.out)["best"]["run_id"] == "0000"
    assert "best: 0000" in printed.err


def test_a_quiet_command_prints_a_summary_only_if_no_trial_has_completed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    quiet = console(quiet=True)
    quiet.summary(state_of(trial_record())[0])
    quiet.line("queued 0001")
    quiet.progress("preparing")
    assert capsys.readouterr() == ("", "")
    quiet.summary(state_of(FAILED)[0])
    assert "1 failed" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("ended", "fact"),
    [
        ({"stopped_by": "equal trials: 0000", "stop_cause": StopCause.WORTHLESS}, "equal trials"),
        ({"stopped_by": "a full disk", "stop_cause": StopCause.FAULT}, "a full disk"),
        ({"undelivered": 2, "undelivered_because": "it is down"}, "2 trials did not reach MLflow"),
        ({"sync_lag_s": 90.0}, "remote copy: not complete"),
        ({"stopped_by": "Ctrl-C", "stop_cause": StopCause.ASKED}, None),
    ],
)
def test_a_quiet_sweep_with_completed_trials_prints_what_went_wrong(
    capsys: pytest.CaptureFixture[str], ended: dict[str, Any], fact: str | None
) -> None:
    console(quiet=True).summary(sweep_result(records=[trial_record()], **ended))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == (fact is not None)
    assert fact is None or fact in lines[0]


def test_status_prints_the_last_trials_or_with_the_option_v_all_of_them(
    capsys: pytest.CaptureFixture[str],
) -> None:
    result, snapshot = state_of(*map(trial_record, range(25)))
    console().status(result, snapshot, owner=None)
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == [
        "study digits: 25 completed",
        "no sweep is running",
        "  … 5 earlier trials; -v shows them",
    ]
    assert lines[3].startswith("  0005  completed")
    console(verbose=True).status(result, snapshot, owner="process 1 on here")
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == "swept by process 1 on here"
    assert lines[2].startswith("  0000  completed")


def test_without_a_terminal_a_long_task_is_printed_as_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console_output, "_LOOK_S", 0.01)
    written = itertools.count()
    now_s = time.monotonic()
    long = Chore(kind=ChoreKind.TRACKING, since_s=now_s - 10, progress=(3, 8))
    short = Chore(kind=ChoreKind.PAGE, since_s=now_s + 100)
    sweep: Any = SimpleNamespace(doing=lambda: (long, short) if next(written) >= 0 else ())
    printing = console()
    printing.begin("preparing")
    printing.watch(sweep)
    until(lambda: next(written) > 40)
    printing.close()
    _, said = capsys.readouterr().err.splitlines()
    assert said.endswith("MLflow: 3 of 8")


def test_each_kind_of_notice_about_a_trial_is_printed_only_for_the_first_such_trial(
    capsys: pytest.CaptureFixture[str],
) -> None:
    overwritten = {Notice.OVERWRITTEN_FILES: ("weights.pt",)}
    both = {**overwritten, Notice.NOT_REPLICABLE: ("put_",)}
    goal = SimpleNamespace(settings=SimpleNamespace(objective={}))
    output = console()
    output.watch(Mock(spec=Sweep, plan=goal))
    printed = []
    for notices in (overwritten, both, both):
        output.observe(Event.TRIAL_ENDED, trial_record(notices=notices))
        printed.append(capsys.readouterr().err)
    assert ["weights.pt" in text for text in printed] == [True, False, False]
    assert ["put_" in text for text in printed] == [False, True, False]


@pytest.mark.parametrize(
    ("has_running", "is_stopping_all", "fact"),
    [
        (True, False, "running ones finish"),
        (True, True, "are being stopped"),
        (False, False, "none is running"),
        (False, True, "none is running"),
    ],
)
def test_the_message_about_a_stop_says_what_becomes_of_the_running_trials(
    capsys: pytest.CaptureFixture[str], has_running: bool, is_stopping_all: bool, fact: str
) -> None:
    sweep = Mock(spec=Sweep, has_running=has_running, is_stopping_all=is_stopping_all)
    output = console()
    output.watch(sweep)
    output.observe(Event.STOPPING, None)
    assert fact in capsys.readouterr().err
