"""Test `--events`: one JSON object for each event, for programs that follow a sweep."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from studies import trial_record

from sweeper.cli import event_log
from sweeper.cli.event_log import EventLog
from sweeper.errors import SettingsError
from sweeper.trials import Event


def test_each_event_is_one_json_line_with_a_format_version_and_its_trial(tmp_path: Path) -> None:
    file = tmp_path / "events.jsonl"
    file.write_text('{"event": "of an earlier sweep"}\n')
    log = EventLog(str(file))
    log.observe(Event.SWEEP_STARTED, None)
    log.observe(Event.TRIAL_ENDED, trial_record(3, scores={"val": float("nan")}))
    log.close()
    _, started, ended = map(json.loads, file.read_text().splitlines())
    assert (started["version"], started["event"]) == (1, "sweep_started")
    trial = ended["trial"]
    assert (trial["run_id"], trial["state"], trial["scores"]) == (
        "0003",
        "completed",
        {"val": "nan"},
    )


def test_a_reader_that_closes_the_event_pipe_does_not_end_the_sweep() -> None:
    reading, writing = os.pipe()
    log = EventLog(f"/dev/fd/{writing}")
    os.close(reading)
    log.observe(Event.SWEEP_STARTED, None)
    log.observe(Event.STOPPING, None)
    log.close()
    os.close(writing)


def test_a_reader_of_the_event_pipe_that_does_not_read_does_not_delay_the_sweep(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(event_log, "_LIMIT_S", 0.1)
    reading, writing = os.pipe()
    log = EventLog(f"/dev/fd/{writing}")
    for _ in range(3):  # more than the buffer of a pipe holds
        log.write("trial_ended", message="x" * 100_000)
    log.close()
    os.close(writing)
    with open(reading, encoding="utf-8") as reader:  # each line that was written is complete
        lines = [json.loads(next(reader)) for _ in range(3)]
    assert [len(line["message"]) for line in lines] == [100_000] * 3


def test_an_event_file_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"--events .*name a file in a folder that exists"):
        EventLog(str(tmp_path / "missing" / "events.jsonl"))
