"""A study's storage is unavailable for a while, or lost. Locks keep other sweeps out of a study."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar

import pytest
from commands import Command, project
from opened_studies import Opened, completed, counts_of
from postgres_servers import PostgresServer
from studies import small_settings, until

from sweeper.errors import StorageAwayError, StudyError
from sweeper.notebooks.metadata import BLANK, read_metadata
from sweeper.settings.addresses import Address
from sweeper.study.access import LostFileError, open_storage
from sweeper.study.study import Study
from sweeper.trials import Reason, TrialRecord, TrialState

SETTINGS = small_settings(
    "kept", objective={"acc": "maximize"}, start=[{"x": 0.5}] * 2, study={"trials": 8}
)


def write_end(opened: Opened, record: TrialRecord, **changes: Any) -> None:
    """Write a trial's notebook with the metadata of a completed trial, updated by `changes`."""
    metadata = {
        "study_id": opened.study.study_id,
        "attempt": record.attempt,
        "state": "completed",
        "scores": {"acc": 0.25},
        "duration_s": 2.0,
        **changes,
    }
    record.notebook.parent.mkdir(exist_ok=True)
    record.notebook.write_text(json.dumps({"metadata": {"sweeper": metadata}, "cells": []}))


Begin = Callable[..., Opened]


@pytest.fixture
def begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Begin:
    """Return a function that opens the study in the test's folder, as a new process does."""
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "study.db"

    def begin(**options: Any) -> Opened:
        storage = open_storage(f"sqlite:///{file}", is_known=file.exists(), **options)
        opened = Opened(storage, SETTINGS)
        if not opened.study.records():
            opened.study.queue_first(SETTINGS)
        return opened

    return begin


#: Names of folders with characters that are special in a URL, a template or a shell.
NASTY = ["a?b", "%41 100%", "{SCHEMA_VERSION}", "josé@corp #1 (2)&'s", "2026-11-26T13:10", "日本\n"]


def test_a_storage_in_a_path_with_special_characters_uses_exactly_that_file(tmp_path: Path) -> None:
    for name in NASTY:
        file = tmp_path / name / "study.db"
        file.parent.mkdir()
        study = Study.open(Address.of_file(file), SETTINGS)
        assert [known.name for known in Study.all_in(Address.of_file(file))] == [study.name]
    found = {path for path in tmp_path.rglob("*") if path.is_file()}
    assert {path.parent for path in found} == {tmp_path / name for name in NASTY}


# --- a storage that is unavailable for a while ------------------------------------------------


class LosesAnswers(sqlite3.Connection):
    """A connection that loses the answer to every third change, after the change was made."""

    commits: ClassVar[int] = 0

    def commit(self) -> None:
        is_change = self.in_transaction
        super().commit()
        LosesAnswers.commits += is_change
        if is_change and LosesAnswers.commits % 3 == 0:
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorname = "SQLITE_IOERR"
            raise error


@pytest.mark.slow
def test_a_storage_change_that_was_made_but_not_acknowledged_is_not_made_twice(
    begin: Begin, tmp_path: Path
) -> None:
    begin().study.close()
    LosesAnswers.commits = 0
    shaky = begin(connect_args={"factory": LosesAnswers})
    shaky.study.be_patient(lambda: 30.0)
    while (record := shaky.next()) is not None:
        shaky.study.note_facts(trials=record.number)
        shaky.study.tell(record.number, completed())
    assert LosesAnswers.commits > 20
    shaky.study.close()
    again = begin().study
    assert [r.number for r in again.records()] == list(range(8))
    assert [r.params["x"] for r in again.records()[:2]] == [0.5, 0.5]
    assert counts_of(again) == {TrialState.COMPLETED: 8}
    assert again.facts.trials == 7
    with closing(sqlite3.connect(tmp_path / "study.db")) as file:
        assert file.execute("SELECT count(*) FROM trials").fetchone() == (8,)


@pytest.mark.slow
def test_a_write_to_a_locked_storage_is_repeated_until_the_lock_is_released(
    begin: Begin, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trials = begin(connect_args={"timeout": 0.01})
    trials.study.be_patient(lambda: 30.0)
    number = trials.ask().number
    with closing(sqlite3.connect(tmp_path / "study.db", check_same_thread=False)) as other:
        other.execute("BEGIN IMMEDIATE")
        free = threading.Timer(0.5, other.rollback)
        free.start()
        trials.study.tell(number, completed())
        free.join()
    assert trials.study.records()[0].state is TrialState.COMPLETED
    away, back = (record.getMessage() for record in caplog.records)
    assert "study.db: database is locked; trials continue" in away
    assert "can be used again" in back
    assert begin().study.records()[0].state is TrialState.COMPLETED


def test_a_storage_that_stays_unavailable_raises_and_the_ended_trial_is_not_run_again(
    begin: Begin,
    tmp_path: Path,
) -> None:
    trials = begin(connect_args={"timeout": 0.01})
    ended, unfinished = trials.ask(), trials.ask()
    trials.study.be_patient(lambda: 0.3)
    write_end(trials, ended)
    write_end(trials, unfinished, state="running")
    with closing(sqlite3.connect(tmp_path / "study.db")) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StorageAwayError, match=r"study\.db: database is locked"):
            trials.study.tell(ended.number, completed())
    trials.study.close()
    again = begin()
    assert again.study.records()[0].state is TrialState.COMPLETED
    assert again.study.records()[0].scores == {"acc": 0.25}
    assert again.study.best()[0].number == ended.number
    assert again.ask().number == unfinished.number
    assert again.ask().number == 2


@pytest.mark.parametrize(
    "changes",
    [
        {"study_id": "another"},
        {"attempt": 2},
        {"state": "stopped", "reason": "interrupted"},
        {"scores": "none"},
        {"state": "unheard of"},
    ],
)
def test_a_notebook_of_another_attempt_or_study_or_without_a_final_end_does_not_end_the_trial(
    begin: Begin, changes: dict[str, Any]
) -> None:
    trials = begin()
    record = trials.ask()
    write_end(trials, record, **changes)
    trials.study.close()
    assert begin().ask().number == record.number


def test_a_trial_that_has_ended_is_not_marked_as_stopped(begin: Begin, tmp_path: Path) -> None:
    trials = begin()
    ended, running = trials.ask(), trials.ask()
    write_end(trials, ended, state="failed", reason="cell_error", message="1/0")
    trials.study.close()
    loaded = Study.load(f"sqlite:///{tmp_path / 'study.db'}", "kept")
    first, second = loaded.mark_interrupted()
    assert (first.number, first.state, first.message) == (ended.number, TrialState.FAILED, "1/0")
    assert (second.number, second.state) == (running.number, TrialState.STOPPED)
    assert second.reason is Reason.INTERRUPTED


def test_an_unavailable_storage_raises_at_once_before_the_first_trial(
    begin: Begin, tmp_path: Path
) -> None:
    begin().study.close()
    with closing(sqlite3.connect(tmp_path / "study.db")) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(StudyError, match="locked"):
            begin(connect_args={"timeout": 0.01}).study.note_facts(trials=1)


# --- a storage that is lost -------------------------------------------------------------------


def test_a_storage_file_removed_during_a_sweep_is_not_created_again(
    begin: Begin, tmp_path: Path
) -> None:
    trials = begin()
    trials.study.be_patient(lambda: 30.0)
    record = trials.ask()
    (tmp_path / "study.db").unlink()
    with pytest.raises(LostFileError, match=r"study\.db is damaged \(it was removed"):
        trials.study.tell(record.number, completed())
    with pytest.raises(LostFileError):
        trials.ask()
    assert not (tmp_path / "study.db").exists()
    sqlite3.connect(tmp_path / "study.db").close()
    with pytest.raises(LostFileError, match=r"study\.db is damaged \(it was removed"):
        trials.study.note_facts(trials=1)


def halved(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def without_its_header(file: Path) -> None:
    file.write_bytes(bytes(100) + file.read_bytes()[100:])


def of_another_study(file: Path) -> None:
    other = file.with_name("other.db")
    Study.open(Address.of_file(other), SETTINGS).close()
    file.write_bytes(other.read_bytes())


@pytest.mark.parametrize("damage", [halved, without_its_header, of_another_study])
def test_a_damaged_storage_file_is_noticed_at_the_next_write_and_at_opening(
    begin: Begin, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    begin().study.close()  # after this, all data is in the file and none in SQLite's log
    trials = begin()
    record = trials.ask()
    damage(tmp_path / "study.db")
    with pytest.raises(LostFileError, match=r"study\.db is damaged \("):
        trials.study.tell(record.number, completed())
    trials.study.close()
    if damage is not of_another_study:
        with pytest.raises(LostFileError, match=r"study\.db is damaged \("):
            Study.open(f"sqlite:///{tmp_path}/study.db", SETTINGS)


# --- a storage on a server --------------------------------------------------------------------


@pytest.mark.slow
def test_a_study_on_a_server_belongs_to_one_sweep_at_a_time(
    postgres: PostgresServer,
) -> None:
    first = Opened(open_storage(postgres.url), SETTINGS)
    first.study.be_patient(lambda: 30.0)
    with pytest.raises(
        StudyError, match=r"'kept' in postgresql.* is being swept by process \d+ on"
    ):
        Study.open(postgres.url, SETTINGS)
    elsewhere = Study.open(postgres.url, SETTINGS.with_overrides(study="another"))
    elsewhere.close()
    # The connection breaks. A new one acquires the lock before anything is written.
    postgres.stop(clean=False)
    postgres.start()
    record = first.ask()
    with pytest.raises(StudyError, match="is being swept by"):
        Study.open(postgres.url, SETTINGS)
    # The connection breaks, and another sweep acquires the lock first.
    postgres.stop(clean=False)
    postgres.start()
    second = Opened(open_storage(postgres.url), SETTINGS)
    taken = r"process \d+ on .* has begun to sweep the study 'kept' while this sweep had no"
    with pytest.raises(StudyError, match=taken):
        first.study.tell(record.number, completed())
    first.study.close()
    assert second.ask().number == record.number  # the first sweep left it running
    second.study.close()
    Study.open(postgres.url, SETTINGS).close()


@pytest.mark.slow
def test_a_dead_database_session_of_a_sweep_does_not_lock_that_sweep_out_of_its_study(
    postgres: PostgresServer,
) -> None:
    trials = Opened(open_storage(postgres.url), SETTINGS.with_overrides(study="cut off"))
    trials.study.be_patient(lambda: 30.0)
    engine = trials.study._mirror._stored.engine
    cut = engine.pool.connect()  # the network is cut, and the server does not notice
    cut.detach()
    trials.study.note_facts(trials=1)
    assert trials.study.facts.trials == 1
    trials.study.close()
    cut.close()


@pytest.mark.kernel
def test_a_sweep_whose_study_is_removed_lets_its_trial_end_and_exits_with_1(
    tmp_path: Path,
) -> None:
    files = project("val = x", "import time\ntime.sleep(5)", settings="", folder=tmp_path)
    sweep = Command(*files, "--json", cwd=tmp_path)
    notebook = tmp_path / "out" / "0000.ipynb"
    until(notebook.exists)
    # The sweep may be writing into the folder, so it disappears at once and is then emptied.
    shutil.rmtree((tmp_path / "out" / "p").rename(tmp_path / "removed"))
    stdout, stderr = sweep.communicate(timeout=120)
    assert (sweep.returncode, stdout) == (1, "")
    assert "out/p/study.db is damaged (it was removed or replaced while" in stderr.splitlines()[-1]
    assert "Traceback" not in stderr
    assert (read_metadata(notebook) or BLANK).state is TrialState.COMPLETED
