"""A trial's record is stored as JSON, and one query reads the same records as Optuna does."""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import optuna
import pytest
from opened_studies import Opened, asked, completed, failed, opened_in, stopped
from optuna.storages import RDBStorage
from studies import small_settings

from sweeper.errors import StudyError
from sweeper.search.trial_codec import RECORD, decode, encode, record_of
from sweeper.settings.addresses import Address
from sweeper.study.access import close_storage, log_ahead, open_storage
from sweeper.study.facts import ATTRIBUTE, StudyFacts
from sweeper.study.files import is_storage
from sweeper.study.study import Study
from sweeper.trials import GpuUse, Notice, Reason, StudyPaths, TrialOutcome, TrialRecord, TrialState

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
    """Return Optuna's trial 0 with a record in its user attribute `RECORD`.

    Args:
        stored: The record as JSON data. None for a trial without a record.
    """
    attributes = {} if stored is None else {RECORD: json.loads(json.dumps(stored))}
    frozen = optuna.trial.create_trial(value=0.0, user_attrs=attributes)
    frozen.number = 0
    return frozen


def test_a_record_is_stored_as_json_without_default_values() -> None:
    stored, expected = (json.dumps(it, sort_keys=True) for it in (encode(RECORDED), STORED))
    assert stored == expected


def test_optional_fields_of_a_record_are_stored_if_they_are_set() -> None:
    gpu = GpuUse(peak_bytes=8_400_000_000)
    notices = {Notice.NOT_REPLICABLE: ("put_",)}
    record = replace(RECORDED, gpu=gpu, is_infeasible=True, notices=notices, host="b")
    assert encode(record) == {
        **STORED,
        "gpu": {"peak_bytes": 8_400_000_000},
        "is_infeasible": True,
        "notices": {"not_replicable": ["put_"]},
        "host": "b",
    }
    assert decode(RECORDED.number, json.loads(json.dumps(encode(record)))) == record


def test_a_stored_record_is_read_with_the_types_of_its_values() -> None:
    record = record_of(trial(STORED))
    assert record == RECORDED
    assert record is not None
    assert repr(record.params) == repr(RECORDED.params)  # 1, 1.0 and True are equal


def test_an_optuna_trial_without_the_sweepers_attribute_has_no_record() -> None:
    assert record_of(trial(None)) is None


@pytest.mark.parametrize(
    ("changes", "field"),
    [({"state": "unheard of"}, "state"), ({"seed": "x"}, "seed"), ({"scores": 7}, "scores")],
)
def test_reading_a_damaged_record_raises_an_error_that_names_the_field(
    changes: dict[str, Any], field: str
) -> None:
    with pytest.raises(ValueError, match=rf"(?s)TrialRecord.*{field}"):
        record_of(trial({**STORED, **changes}))


PRUNED = TrialOutcome(state=TrialState.PRUNED, reason=Reason.PRUNED, scores={"acc": 9.0})


def file_of(storage: RDBStorage) -> Path:
    return Path(str(storage.engine.url.database))


def looked_at(opened: Opened) -> Study:
    """Return the study as `status` reads it while another process has it open."""
    studies = {
        study.name: study for study in Study.all_in(Address.of_file(file_of(opened.storage)))
    }
    return studies[opened.settings.name]


def assert_same(opened: Opened) -> None:
    found = looked_at(opened)
    assert found.facts == opened.study.facts
    assert found.records() == opened.study.records()
    assert found.records() == [record for t in opened.optunas() if (record := record_of(t))]
    assert found.best() == opened.study.best()


def test_records_and_facts_are_read_from_tables_as_optuna_reads_them(begin: Any) -> None:
    opened = begin(start=[{"x": 0.5}])
    assert_same(opened)
    opened.study.note_facts(template="ä/{run_id}.ipynb", trials=7)
    for outcome in (failed(acc=2.0), stopped(), PRUNED, completed(0.25), completed(0.5)):
        opened.study.tell(opened.ask().number, outcome)
    opened.ask()
    opened.study.enqueue({"x": 0.125})
    assert len(looked_at(opened).records()) == 6
    assert_same(opened)


@pytest.mark.parametrize("direction", ["maximize", "minimize"])
def test_the_first_of_equally_good_trials_is_the_best(begin: Any, direction: str) -> None:
    opened = begin(objective={"acc": direction}, trials=20)
    opened.run(0.5, 0.9, 0.1, 0.9, 0.1, 0.5)
    assert_same(opened)


def test_a_trial_whose_end_is_only_in_its_record_and_not_in_optuna_is_not_the_best(
    begin: Any,
) -> None:
    opened = begin()
    opened.run(0.25)
    record = opened.ask()
    opened.study._write(opened.study.ended(record.number, completed(0.75)))  # then the sweep died
    assert [record.number for record in looked_at(opened).best()] == [0]
    assert_same(opened)


NOBODY = 65_534


def become_nobody() -> None:
    """Give up the rights of root, who could write to any folder."""
    if os.geteuid() == 0:
        os.setgroups([])
        os.setuid(NOBODY)


@pytest.fixture
def unwritable(begin: Any) -> Iterator[Path]:
    """A folder with a study's database. The user who reads it cannot write to the folder."""
    opened = begin()
    opened.run(0.25)
    opened.study.close()
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    shutil.copy(file_of(opened.storage), folder / "study.db")
    storage = open_storage(Address.of_file(folder / "study.db"))
    log_ahead(storage)
    close_storage(storage)
    if os.geteuid() == 0:
        for path in (folder / "study.db", folder):
            os.chown(path, NOBODY, NOBODY)
    folder.chmod(0o555)
    yield folder
    folder.chmod(0o755)
    shutil.rmtree(folder)


def n_trials(file: Path) -> list[int]:
    return [len(study.records()) for study in Study.all_in(Address.of_file(file))]


def test_a_study_is_read_in_a_folder_that_cannot_be_written(unwritable: Path) -> None:
    with multiprocessing.get_context("fork").Pool(1, become_nobody) as other:
        assert other.apply(n_trials, (unwritable / "study.db",)) == [1]
        (unwritable / "study.db-wal").write_bytes(b"what a killed sweep has left")
        with pytest.raises(StudyError, match=r"study\.db-wal"):
            other.apply(n_trials, (unwritable / "study.db",))


def test_reading_a_study_does_not_turn_another_file_into_a_storage(tmp_path: Path) -> None:
    tables = tmp_path / "tables.db"
    with closing(sqlite3.connect(tables)) as connection:
        connection.execute("CREATE TABLE studies (study_id, study_name)")  # Optuna's first table
    for file in (tables, tmp_path / "nowhere.db"):
        assert not is_storage(file)
    assert [file.name for file in tmp_path.iterdir()] == ["tables.db"]


def test_the_error_about_a_file_that_is_not_a_database_names_it_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "study.db").write_text("no database, and longer than a hundred characters" * 3)
    with pytest.raises(StudyError, match=r"study\.db is damaged") as raised:
        Study.all_in(Address.of_file(tmp_path / "study.db"))
    assert len(str(raised.value).splitlines()) == 1


def test_reading_a_study_leaves_no_files_next_to_its_storage(begin: Any) -> None:
    opened = begin()
    opened.study.close()
    study = looked_at(opened)
    study.records()
    study.close()
    folder = file_of(opened.storage).parent
    assert [file.name for file in folder.iterdir()] == ["study.db"]


def test_facts_and_records_stored_by_another_version_are_reported_in_one_message(
    tmp_path: Path,
) -> None:
    paths = StudyPaths.parse(f"{tmp_path}/out/{{run_id}}.ipynb", study="s")
    settings = small_settings("s")
    study = opened_in(paths, settings)
    asked(study, settings, paths)
    study.close()
    url = f"sqlite:///{paths.storage}"
    stored = optuna.load_study(study_name="s", storage=url)
    trial_id = stored.trials[0]._trial_id
    stored._storage.set_trial_user_attr(trial_id, RECORD, {"state": "asleep"})
    with pytest.raises(StudyError, match=r"'s' is stored in a form .* use the version that began"):
        Study.load(url, "s").records()
    stored.set_user_attr(ATTRIBUTE, {"id": "1", "objectives": ["val"], "trials": "many"})
    with pytest.raises(StudyError, match=r"'s' is stored in a form .*trials"):
        Study.load(url, "s")
    with pytest.raises(StudyError, match=r"'s' is stored in a form .*trials"):
        _ = Study.all_in(url)[0].facts


def test_the_stored_plan_of_a_confirming_study_keeps_the_types_of_its_params() -> None:
    params = {"a": 1, "b": 1.0, "c": True, "d": None, "e": [1, "x"], "f": {"g": 2}}
    trial = {"run_id": "0003", "params": params, "score": 1}
    plan = {"objective": "acc", "direction": "maximize", "seeds": [1, 2], "trials": [trial]}
    stored = {"id": "2", "objectives": ["acc"], "confirms": {**plan, "of": "1", "since": 0}}
    facts = StudyFacts.decode(json.loads(json.dumps(stored)))
    again = StudyFacts.decode(json.loads(json.dumps(facts.encode())))
    assert facts == again
    assert again.confirms is not None
    assert repr(again.confirms.trials[0].params) == repr(params)
    assert (again.confirms.of, again.confirms.since, again.confirms.seeds) == ("1", 0, [1, 2])
