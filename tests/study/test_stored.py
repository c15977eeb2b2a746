"""A trial as it is stored: as JSON, and read without Optuna as Optuna reads it."""

from __future__ import annotations

import json
import math
import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import optuna
import pytest
from opened_studies import RANGE, Opened, completed, failed, stopped
from optuna.storages import RDBStorage

from sweeper.errors import StorageAwayError
from sweeper.search.trial_codec import RECORD, decode, encode, record_of
from sweeper.settings import Settings
from sweeper.study.stored import StoredStudy
from sweeper.study.study import Study
from sweeper.trials import GpuUse, Reason, TrialOutcome, TrialRecord, TrialState

RECORDED = TrialRecord(
    number=0,
    state=TrialState.FAILED,
    params={"layers": [64, 64.0], "on": True, "n": 1, "lr": 1.0, "name": None, "aug": {"a": "ä"}},
    seed=7,
    attempt=2,
    notebook=Path("out/0000.ipynb"),
    scores={"acc": 0.5, "loss": math.inf},
    reason=Reason.NOT_FINITE,
    message="loss is inf",
    started_at_s=1e9 + 0.5,
    duration_s=2.5,
    retry_of=3,
)
STORED = {
    "state": "failed",
    "params": {
        "layers": [64, 64.0],
        "on": True,
        "n": 1,
        "lr": 1.0,
        "name": None,
        "aug": {"a": "ä"},
    },
    "seed": 7,
    "attempt": 2,
    "notebook": "out/0000.ipynb",
    "scores": {"acc": 0.5, "loss": "inf"},
    "reason": "not_finite",
    "message": "loss is inf",
    "started_at_s": 1000000000.5,
    "duration_s": 2.5,
    "retry_of": 3,
}


def trial(stored: Any) -> optuna.trial.FrozenTrial:
    """Trial 0 of a study, with what the storage returns as our attribute."""
    attributes = {} if stored is None else {RECORD: json.loads(json.dumps(stored))}
    frozen = optuna.trial.create_trial(value=0.0, user_attrs=attributes)
    frozen.number = 0
    return frozen


def test_a_record_is_stored_as_json_without_what_is_not_set() -> None:
    stored, expected = (json.dumps(it, sort_keys=True) for it in (encode(RECORDED), STORED))
    assert stored == expected


def test_what_applies_to_some_trials_is_stored_with_these() -> None:
    gpu = GpuUse(peak_bytes=8_400_000_000)
    record = replace(RECORDED, gpu=gpu, is_infeasible=True, not_replicable=("put_",), host="b")
    assert encode(record) == {
        **STORED,
        "gpu": {"peak_bytes": 8_400_000_000},
        "is_infeasible": True,
        "not_replicable": ["put_"],
        "host": "b",
    }
    assert decode(RECORDED.number, json.loads(json.dumps(encode(record)))) == record


def test_a_stored_record_is_read_with_the_types_of_its_values() -> None:
    record = record_of(trial(STORED))
    assert record == RECORDED
    assert record is not None
    assert repr(record.params) == repr(RECORDED.params)  # 1, 1.0 and True are equal


def test_a_trial_that_was_never_begun_has_no_record() -> None:
    assert record_of(trial(None)) is None


@pytest.mark.parametrize(
    ("changes", "field"),
    [({"state": "unheard of"}, "state"), ({"seed": "x"}, "seed"), ({"scores": 7}, "scores")],
)
def test_a_damaged_record_is_refused_with_the_field(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(ValueError, match=rf"(?s)TrialRecord.*{field}"):
        record_of(trial({**STORED, **changes}))


PRUNED = TrialOutcome(state=TrialState.PRUNED, reason=Reason.PRUNED, scores={"acc": 9.0})


@pytest.fixture
def storage(tmp_path: Path) -> RDBStorage:
    """A file for each test, without studies of several objectives."""
    (tmp_path / "own").mkdir()
    return RDBStorage(f"sqlite:///{tmp_path}/own/study.db")


def stored(opened: Opened) -> StoredStudy:
    studies = StoredStudy.all_in(file_of(opened.storage))
    assert studies is not None
    (study,) = (study for study in studies if study.name == opened.settings.name)
    return study


def file_of(storage: RDBStorage) -> Path:
    return Path(str(storage.engine.url.database))


def assert_same(opened: Opened) -> None:
    ours, optunas = stored(opened), Study.load(opened.storage.url, opened.settings.name)
    assert ours.facts == optunas.facts
    assert ours.study_id == optunas.study_id
    assert ours.records() == optunas.records()
    assert ours.best() == optunas.best()


def test_records_and_facts_are_those_that_optuna_reads(begin: Any) -> None:
    opened = begin(start=[{"x": 0.5}])
    assert_same(opened)
    opened.study.note_facts(template="ä/{run_id}.ipynb", trials=7)
    for outcome in (failed(acc=2.0), stopped(), PRUNED, completed(0.25), completed(0.5)):
        opened.study.tell(opened.ask().number, outcome)
    opened.ask()
    opened.study.enqueue({"x": 0.125})
    assert len(stored(opened).records()) == 6
    assert_same(opened)


@pytest.mark.parametrize("direction", ["maximize", "minimize"])
def test_the_first_of_equally_good_trials_is_best(begin: Any, direction: str) -> None:
    opened = begin(objective={"acc": direction}, trials=20)
    opened.run(0.5, 0.9, 0.1, 0.9, 0.1, 0.5)
    assert_same(opened)


def test_a_file_with_a_study_of_several_objectives_is_left_to_optuna(tmp_path: Path) -> None:
    storage = RDBStorage(f"sqlite:///{tmp_path}/study.db")
    goals: dict[str, Any] = {"acc": "maximize", "loss": "minimize"}
    settings = Settings.from_mapping({"objective": goals, "space": RANGE, "study": {"name": "two"}})
    Study.open(storage, settings).close()
    assert StoredStudy.all_in(tmp_path / "study.db") is None


def test_a_trial_whose_end_optuna_does_not_have_yet_is_not_the_best(begin: Any) -> None:
    opened = begin()
    opened.run(0.25)
    record = opened.ask()
    opened.study._write(opened.study.ended(record.number, completed(0.75)))  # then the sweep died
    assert [record.number for record in stored(opened).best()] == [0]
    assert_same(opened)


def test_a_file_that_is_no_storage_is_left_to_optuna(tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    other.write_text("no database")
    tables = tmp_path / "tables.db"
    with closing(sqlite3.connect(tables)) as connection:
        connection.execute("CREATE TABLE studies (study_id, study_name)")  # Optuna begins with it
    for file in (other, tables, tmp_path / "nowhere.db"):
        assert StoredStudy.all_in(file) is None
    assert {file.name for file in tmp_path.iterdir()} == {"other.db", "tables.db"}


def test_reading_leaves_no_files_beside_the_storage(begin: Any, tmp_path: Path) -> None:
    opened = begin()
    opened.storage.engine.dispose()
    for study in StoredStudy.all_in(file_of(opened.storage)) or []:
        study.records()
    assert [file.name for file in (tmp_path / "own").iterdir()] == ["study.db"]


def test_a_file_that_is_removed_meanwhile_is_reported(begin: Any, tmp_path: Path) -> None:
    opened = begin()
    opened.study.close()
    file = Path(shutil.copy(file_of(opened.storage), tmp_path / "study.db"))
    (study, *_) = StoredStudy.all_in(file) or []
    file.unlink()
    with pytest.raises(StorageAwayError, match=r"study\.db: unable to open"):
        study.records()
