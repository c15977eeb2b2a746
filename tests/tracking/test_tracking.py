"""Test what the tracker writes to MLflow, the view there, and failures of MLflow."""

from __future__ import annotations

import base64
import json
import os
import queue
import random
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, replace
from multiprocessing import Pipe
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nbformat
import pytest
from hypothesis import example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from studies import assert_says, mlflow_client, mlflow_runs, note_in, trial_record, until

from sweeper import Settings
from sweeper.errors import TrackingError
from sweeper.notebook_api.messages import Point
from sweeper.settings.addresses import Address
from sweeper.study_folder.saved import saved_in
from sweeper.tracking import (
    RunWriter,
    Tracker,
    artifacts,
    check_reachable,
    free_port,
    refused_starts,
    view_of,
    view_url,
)
from sweeper.tracking import tracker as tracker_module
from sweeper.tracking.messages import Call, Reply, Store, Upload
from sweeper.tracking.opening import NOTE_TAG
from sweeper.tracking.values import legal
from sweeper.tracking.writer import carried_out
from sweeper.trials import GpuUse, Notice, Reason, StudyPaths, TrialRecord, TrialState

if TYPE_CHECKING:
    from mlflow import MlflowClient


pytestmark = pytest.mark.slow  # because MLflow is imported

PARAMS = {"x": "0.5"}


def store_in(folder: Path, study: str) -> Store:
    paths = StudyPaths.parse(f"{folder}/{{run_id}}.ipynb", study=study)
    address = Address.of_file(paths.tracking)
    return Store(address=address, study=study, study_id="one", paths=paths)


def opened(folder: Path, study: str = "digits") -> Tracker:
    tracker = Tracker(store_in(folder, study))
    tracker.wait_until_open()
    return tracker


def writer_of(folder: Path, study: str) -> tuple[RunWriter, Store]:
    """Return a writer in this process, whose MLflow client a test can change, and its store."""
    store = store_in(folder, study)
    return RunWriter.open(store), store


def written(writer: RunWriter, of_study: Store, *calls: Call) -> list[str | None]:
    """Carry out calls. Return for each call why MLflow did not accept it, or None."""
    return [carried_out(call, writer, of_study).error for call in calls]


def start_of(record: TrialRecord) -> Call:
    running = replace(record, state=TrialState.RUNNING)
    return Call("start", record.run_id, (running, PARAMS))


def points_of(run_id: str, *points: tuple[int, float]) -> Call:
    return Call("log", run_id, (run_id, [("val", step, value, step) for step, value in points]))


def end_of(record: TrialRecord, *points: tuple[int, float]) -> Call:
    return Call("end", record.run_id, (record, PARAMS, {"val": points}, {}, 9))


def files_of(record: TrialRecord) -> Call:
    return Call("files", record.run_id, (record,))


def wrote(tracker: Tracker, *records: TrialRecord) -> bool:
    """Write the starts and ends of trials. Return whether MLflow has their ends."""
    for record in records:
        tracker.started(replace(record, state=TrialState.RUNNING), PARAMS)
        tracker.ended(record, PARAMS, {}, {})
    tracker.close()
    return all(map(tracker.has_end_of, records))


def within(limit_s: float) -> Callable[[], float]:
    """Return a function that returns how much is left of a limit in seconds that begins now."""
    end_s = time.monotonic() + limit_s
    return lambda: end_s - time.monotonic()


def stopped(folder: Path) -> TrialRecord:
    notebook = folder / "0000.ipynb"
    return trial_record(notebook=notebook, state=TrialState.STOPPED, started_at_s=time.time())


def test_the_next_sweep_writes_to_mlflow_what_a_locked_mlflow_store_did_not_accept_in_time(
    tmp_path: Path,
) -> None:
    tracker = opened(tmp_path)
    record = replace(stopped(tmp_path), state=TrialState.COMPLETED, scores={"val": 1.0})
    with closing(sqlite3.connect(tmp_path / "mlflow.db")) as storage:
        storage.execute("BEGIN IMMEDIATE")
        tracker.ended(record, PARAMS, {}, {})
        tracker.close(within(0.5))
        assert not tracker.has_end_of(record)
        again = opened(tmp_path)
        assert not again.has_end_of(record)
        storage.rollback()
    assert wrote(again, record)
    last = opened(tmp_path)
    assert last.has_end_of(record)
    assert not last.has_end_of(replace(record, attempt=2)), "MLflow has only the end of attempt 1"


def test_a_hanging_process_that_writes_to_mlflow_is_awaited_only_for_the_time_that_is_left(
    tmp_path: Path,
) -> None:
    tracker = opened(tmp_path)
    assert tracker.wait()
    assert tracker._process is not None
    os.kill(tracker._process.pid, signal.SIGSTOP)
    left_s = within(0.5)
    tracker.close(left_s)
    assert left_s() > -4, "the process was given its usual 10 s"


def test_no_mlflow_run_ends_before_its_start_if_the_clock_is_set_back(tmp_path: Path) -> None:
    writer, store = writer_of(tmp_path, "digits")
    an_hour_later = time.time() + 3600
    record = trial_record(notebook=tmp_path / "0000.ipynb", started_at_s=an_hour_later)
    nbformat.write(nbformat.v4.new_notebook(), record.notebook)
    assert written(writer, store, start_of(record), end_of(record)) == [None, None]
    (run,) = mlflow_runs(store.address.full, "digits")
    assert run.info.end_time == run.info.start_time


def test_the_mlflow_store_and_its_artifacts_are_in_the_output_folder_whatever_its_name(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "a?b" / "%41 josé@corp:#1 (2)&'s 日本"
    folder.mkdir(parents=True)
    store = store_in(folder, "digits")
    writer = RunWriter.open(store)
    record = trial_record(notebook=folder / "0000.ipynb")
    nbformat.write(nbformat.v4.new_notebook(), record.notebook)
    calls = start_of(record), end_of(record), files_of(record)
    assert written(writer, store, *calls) == [None] * 3
    artifacts_there = {path.name for path in store.paths.study_artifacts.rglob("*")}
    assert record.notebook.name in artifacts_there
    assert store.paths.tracking.is_file()
    assert [path.name for path in tmp_path.iterdir()] == ["a?b"], (
        "a folder with an escaped name was made"
    )
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]
    assert mlflow_client(store.address.full).get_experiment_by_name("digits") is not None


def test_a_kill_during_the_creation_of_the_store_leaves_no_store_or_a_complete_one(
    tmp_path: Path,
) -> None:
    code = (
        "import sys; from pathlib import Path; from sweeper.tracking.files import make_store; "
        "make_store(Path(sys.argv[1]))"
    )
    place = tmp_path / "mlflow.db"
    beside = tmp_path / ".mlflow.db.part"
    env = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "no store is kept here")}
    making = subprocess.Popen([sys.executable, "-c", code, place], env=env)
    while making.poll() is None and not (beside.exists() and beside.stat().st_size >= 100_000):
        time.sleep(0.002)
    making.kill()
    making.wait()
    assert beside.exists()
    assert not place.exists()
    opened(tmp_path).close()
    assert not beside.exists()


def test_an_mlflow_store_copied_from_the_cache_equals_a_new_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    first, second = (opened_in(tmp_path / name) for name in ("a", "b"))
    assert len(list((tmp_path / "cache" / "notebook-hpo").glob("mlflow-*.db"))) == 1
    assert first == second
    assert any("experiments" in statement for statement in first)


def opened_in(folder: Path) -> list[str]:
    """Open a store in a folder. Return its content without the folder's path and times."""
    opened(folder).close()
    with closing(sqlite3.connect(folder / "mlflow.db")) as made:
        made.execute("UPDATE experiments SET creation_time = 0, last_update_time = 0")
        dump = "\n".join(made.iterdump()).replace(str(folder), "folder")
        # Sorted, because MLflow writes in any order.
        return sorted(line.strip(" ,\t") for line in dump.splitlines())


def test_the_error_about_a_store_that_mlflow_cannot_open_is_one_line_with_a_remedy(
    tmp_path: Path,
) -> None:
    with closing(sqlite3.connect(tmp_path / "mlflow.db")) as torn:
        torn.execute("CREATE TABLE experiment_tags (key TEXT)")
    with pytest.raises(TrackingError) as refused:
        opened(tmp_path)
    message = str(refused.value)
    assert "\n" not in message
    assert f"--tracking-uri sqlite:///{tmp_path}/mlflow.db: cannot be used: " in message
    assert "mlflow.db away: a new one is created, and the study's trials are written" in message


@pytest.mark.parametrize(
    ("change", "remedy"),
    [
        ("UPDATE experiments SET lifecycle_stage = 'deleted'", "mlflow experiments restore -x 1"),
        ("UPDATE alembic_version SET version_num = 'ffffffffffff'", "pip install --upgrade mlflow"),
        ("UPDATE alembic_version SET version_num = '451aebb31d03'", "mlflow db upgrade sqlite:"),
    ],
    ids=["a deleted experiment", "a newer MLflow", "an older MLflow"],
)
def test_a_deleted_experiment_or_another_mlflow_version_is_an_error_before_the_store_is_opened(
    tmp_path: Path, change: str, remedy: str
) -> None:
    opened(tmp_path).close()
    check_reachable(store_in(tmp_path, "digits"))
    with closing(sqlite3.connect(tmp_path / "mlflow.db")) as stored, stored:
        stored.execute(change)
    with pytest.raises(TrackingError) as refused:
        check_reachable(store_in(tmp_path, "digits"))
    assert remedy in str(refused.value)


# --- one store for the tests below, each with a study of its own ---------------------------------


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("store")
    opened(folder).close()
    return folder


def completed(folder: Path, *cells: Any) -> TrialRecord:
    """Return a completed trial whose notebook has these cells."""
    record = replace(stopped(folder), state=TrialState.COMPLETED, scores={"val": 0.5})
    record.notebook.write_text(nbformat.writes(nbformat.v4.new_notebook(cells=list(cells))))
    return record


def client_of(store: Path) -> MlflowClient:
    return mlflow_client(f"sqlite:///{store}/mlflow.db")


def run_of(store: Path, tracker: Tracker, record: TrialRecord) -> Any:
    return client_of(store).get_run(tracker.mlflow_run_ids[record.run_id])


def fail_first(
    monkeypatch: pytest.MonkeyPatch, writer: RunWriter, call: str, *errors: Exception
) -> None:
    """Make the first calls of a method of MLflow's client raise these errors."""
    proper, failures = getattr(writer._client, call), list(errors)

    def fails(*arguments: Any, **options: Any) -> Any:
        if failures:
            raise failures.pop(0)
        return proper(*arguments, **options)

    monkeypatch.setattr(writer._client, call, fails)


def test_a_trial_whose_start_mlflow_refused_is_written_completely_at_its_end(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, of_study = writer_of(store, "late")
    record = completed(tmp_path)
    fail_first(monkeypatch, writer, "create_run", MemoryError())  # an error without a message
    calls = start_of(record), points_of("0000", (0, 0.25)), end_of(record, (0, 0.25), (1, 0.5))
    assert written(writer, of_study, *calls) == ["MemoryError", None, None]
    run = writer._client.get_run(writer.runs["0000"])
    assert (run.info.status, run.data.params) == ("FINISHED", {"x": "0.5"})
    history = writer._client.get_metric_history(run.info.run_id, "val")
    assert [(m.step, m.value) for m in history] == [(0, 0.25), (1, 0.5)]


def test_an_mlflow_run_has_the_artifacts_of_its_trial_except_large_ones(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, described = writer_of(store, "stages")
    saved = described.paths.saved("0000")
    (saved / "tokenizer").mkdir(parents=True)
    (saved / "tokenizer" / "vocab").write_text("a b")
    (saved / "model.pt").write_text("weights")
    (saved / "large.pt").write_text("many weights")
    record = completed(tmp_path, nbformat.v4.new_markdown_cell("text"))
    used: dict[str, Any] = {"study": "pretrain", "study_id": "1", "run_id": "0003"}
    used |= {"artifact": "model.pt", "sha256": "f00", "size_bytes": 7, "path": "/model.pt"}
    artifacts_of = {name: asdict(artifact) for name, artifact in saved_in(saved).items()}
    note_in(record.notebook, artifacts=artifacts_of, inputs={"encoder": used})
    monkeypatch.setattr(artifacts, "LARGEST_LOGGED_BYTES", 10)
    client, mlflow_id = client_of(store), writer.end(record, {}, {}, {}, 9)
    writer.files(record)
    files = {file.path for file in client.list_artifacts(mlflow_id)}
    assert files == {"0000.ipynb", "0000.html", "model.pt", "tokenizer"}
    assert [file.path for file in client.list_artifacts(mlflow_id, "tokenizer")] == [
        "tokenizer/vocab"
    ]
    tags = client.get_run(mlflow_id).data.tags
    assert tags["sweeper.input.encoder"] == "pretrain/0003/model.pt@f00"
    assert tags["sweeper.artifact.large.pt"].startswith("12 bytes, sha256 ")
    assert f"`{saved / 'large.pt'}`" in tags[NOTE_TAG]
    assert "model.pt`" not in tags[NOTE_TAG]


def test_a_rendered_notebook_that_a_killed_process_was_logging_is_removed_by_the_next_process(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, described = writer_of(store, "killed")
    record = completed(tmp_path, nbformat.v4.new_markdown_cell("text"))
    writer.end(record, {}, {}, {}, 9)
    with monkeypatch.context() as killed:
        killed.setattr(shutil, "rmtree", lambda *_, **__: None)
        killed.setattr(tempfile, "tempdir", str(tmp_path / "no such folder"))
        writer.files(record)
    (left,) = described.paths.folder.rglob("0000.html")
    own = described.paths.folder / "rendered" / "0000.ipynb"
    own.parent.mkdir()
    own.write_text("an executed notebook of -o out/{study}/rendered/{run_id}.ipynb")
    writer_of(store, "killed")
    assert not left.exists()
    assert own.exists()


def hostile(rng: random.Random, outside: Path) -> object:
    """Return a value that somebody may have written into a notebook in place of its artifacts."""
    names = [
        "../../secret", str(outside), "link", "folder", "folder/../../../secret", "", ".", "..",
        "a\0b", "./kept", "folder//vocab", "kept", "x" * 300,
    ]  # fmt: skip
    entries: list[object] = [
        {"size_bytes": 1, "sha256": "0"},
        {},
        [],
        None,
        "text",
        {"size_bytes": [1]},
    ]
    # One invalid entry makes the whole section invalid, so sometimes use only the valid first one.
    entries = rng.choice([entries[:1], entries])
    section = {rng.choice(names): rng.choice(entries) for _ in range(rng.randrange(5))}
    return rng.choice([section, section, section, list(section), "text", None])


def test_only_files_of_the_trial_reach_mlflow_whatever_names_its_notebook_states(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, described = writer_of(store, "hostile")
    saved = described.paths.saved("0000")
    (saved / "folder").mkdir(parents=True)
    outside = tmp_path / "secret"
    outside.write_text("key")
    (described.paths.folder / "secret").write_text("key")
    for link in (saved / "link", saved / "folder" / "link"):
        link.symlink_to(outside)
    for file in (saved / "kept", saved / "folder" / "vocab"):
        file.write_text("ours")
    logged: set[Path] = set()

    def log(mlflow_id: str, path: Path, folder: str | None) -> None:
        logged.add(path)

    monkeypatch.setattr(writer._artifacts, "_log_file", log)
    record = completed(tmp_path, nbformat.v4.new_markdown_cell("text"))
    rng = random.Random(0)
    for _ in range(200):
        sections = {key: hostile(rng, outside) for key in ("artifacts", "inputs")}
        note_in(record.notebook, **sections)
        artifacts.stage_tags(record)
        writer._artifacts._log_saved("run", record)
    assert logged == {saved / "kept", saved / "folder" / "vocab"}


def test_an_mlflow_run_ends_although_its_notebook_cannot_be_rendered(
    store: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tracker = opened(store, "unrendered")
    size = {"image/png": 3}  # invalid: nbconvert expects a mapping with the width
    picture = nbformat.v4.new_output("display_data", {"image/png": "iVBO"}, metadata=size)
    record = completed(tmp_path, nbformat.v4.new_code_cell("show()", outputs=[picture]))
    assert wrote(tracker, record, replace(record, number=1))
    again = opened(store, "unrendered")
    assert again.has_end_of(record)
    run = run_of(store, again, record)
    assert (run.info.status, run.data.metrics) == ("FINISHED", {"val": 0.5})
    files = [file.path for file in client_of(store).list_artifacts(run.info.run_id)]
    assert files == ["0000.ipynb"]
    note = run.data.tags["mlflow.note.content"]
    assert "/artifacts/0000.ipynb)" in note
    assert note.startswith("**completed** · `val` = 0.5")
    (warning,) = caplog.records
    assert_says(warning.getMessage(), "trial 0000", "has no attribute 'get'", ".ipynb")


def test_an_mlflow_store_that_refuses_files_gets_values_now_and_files_from_the_next_sweep(
    store: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    in_the_way = store_in(store, "full").paths.study_artifacts
    in_the_way.parent.mkdir(exist_ok=True)
    in_the_way.write_text("a file where a folder is to be")
    tracker = opened(store, "full")
    record = completed(tmp_path)
    assert not wrote(tracker, record, record)
    (warning,) = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert warning.startswith("MLflow did not accept the files of trial 0000: ")
    in_the_way.unlink()
    again = opened(store, "full")
    run = run_of(store, again, record)
    assert (run.info.status, run.data.metrics) == ("FINISHED", {"val": 0.5})
    assert not again.has_end_of(record)
    assert wrote(again, record)
    assert opened(store, "full").has_end_of(record)
    files = {file.path for file in client_of(store).list_artifacts(run.info.run_id)}
    assert files == {"0000.ipynb", "0000.html"}


def test_an_mlflow_run_has_its_values_and_status_before_its_files_are_uploaded(
    store: Path, tmp_path: Path
) -> None:
    writer, of_study = writer_of(store, "slow upload")
    record = completed(tmp_path)
    written(writer, of_study, start_of(record), end_of(record, (0, 0.5)))
    run = writer._client.get_run(writer.runs["0000"])
    assert (run.info.status, run.data.metrics) == ("FINISHED", {"val": 0.5})
    assert run.data.tags["sweeper.state"] == "completed"
    later = RunWriter.open(of_study)
    later.kill_running()
    assert later.attempts == {"0000": ""}, "the next sweep would not log the files"
    assert writer._client.get_run(later.runs["0000"]).info.status == "FINISHED"


def test_a_large_upload_to_mlflow_may_take_longer_than_other_calls(store: Path) -> None:
    tracker = opened(store, "large upload")
    ours, theirs = Pipe()
    for message in (Upload(10**8), Reply("done")):
        theirs.send(message)
    assert tracker._answer(ours).value == "done"
    assert tracker._heard_s > time.monotonic() + 100
    tracker.close()


def test_the_tags_of_an_mlflow_run_state_the_outcome_of_its_trial(
    store: Path, tmp_path: Path
) -> None:
    writer, _ = writer_of(store, "on a gpu")
    gpu = GpuUse(peak_bytes=8_412_000_000, busy_share=0.5)
    notices = {Notice.NOT_REPLICABLE: ("put_", "b")}
    ended: dict[str, Any] = {"state": TrialState.PRUNED, "is_infeasible": True}
    record = replace(stopped(tmp_path), gpu=gpu, notices=notices, **ended)
    run = writer._client.get_run(writer.end(record, {}, {}, {}, 9))
    tags = run.data.tags
    assert (run.info.status, tags["sweeper.state"]) == ("FINISHED", "pruned")
    assert tags["sweeper.infeasible"] == "true"
    assert tags["sweeper.not_replicable"] == "put_, b"
    assert tags["sweeper.gpu_peak_gb"] == "8.41"
    assert tags["sweeper.gpu_busy_percent"] == "50.0"


def test_the_tags_of_a_trial_that_has_completed_do_not_state_why_it_was_stopped_before(
    store: Path, tmp_path: Path
) -> None:
    writer, _ = writer_of(store, "stopped before")
    record = completed(tmp_path)
    ended: dict[str, Any] = {"state": TrialState.STOPPED, "reason": Reason.INTERRUPTED}
    first = writer.end(replace(record, message="Ctrl-C", **ended), {}, {}, {}, 9)
    writer._client.set_tag(first, "mine", "kept")
    assert writer.end(replace(record, attempt=2), {}, {}, {"sweeper.code": "1"}, 9) == first
    writer.files(replace(record, attempt=2))
    tags = writer._client.get_run(first).data.tags
    assert not {"sweeper.reason", "sweeper.message"} & tags.keys()
    assert (tags["sweeper.code"], tags["sweeper.attempt"], tags["mine"]) == ("1", "2", "kept")
    assert RunWriter.open(store_in(store, "stopped before")).runs == {record.run_id: first}


def test_mlflow_runs_of_trials_that_the_restored_study_lacks_are_renamed_and_kept(
    store: Path, caplog: pytest.LogCaptureFixture
) -> None:
    writer, of_study = writer_of(store, "restored")
    record = stopped(store)
    written(writer, of_study, *(start_of(replace(record, number=n)) for n in range(3)))
    earlier = RunWriter.open(replace(of_study, study_id="an earlier study of the name"))
    earlier.start(record, PARAMS)
    again = RunWriter.open(of_study)
    again.set_others_aside(["0000", "0001"])
    assert {*again.runs} == {*RunWriter.open(of_study).runs} == {"0000", "0001"}
    kept = writer._client.get_run(writer.runs["0002"]).info
    assert (kept.run_name, kept.status, kept.lifecycle_stage) == ("0002.other", "KILLED", "active")
    assert "0002" in caplog.text
    assert {*RunWriter.open(earlier._store).runs} == {"0000"}


def test_an_mlflow_run_that_a_user_has_deleted_is_not_created_again(store: Path) -> None:
    writer, of_study = writer_of(store, "deleted")
    record = completed(store)
    written(writer, of_study, start_of(record), end_of(record), files_of(record))
    writer._client.delete_run(writer.runs["0000"])
    later = RunWriter.open(of_study)
    assert (later.runs, later.attempts) == ({}, {"0000": "1"})


def test_an_mlflow_run_that_a_user_has_renamed_remains_the_run_of_its_trial(store: Path) -> None:
    writer, of_study = writer_of(store, "renamed")
    record = stopped(store)
    written(writer, of_study, start_of(record), end_of(record), files_of(record))
    mlflow_id = writer.runs["0000"]
    writer._client.update_run(mlflow_id, name="best so far")
    later = RunWriter.open(of_study)
    later.set_others_aside(["0000"])
    assert (later.runs, later.attempts) == ({"0000": mlflow_id}, {"0000": "1"})
    assert later.start(record, PARAMS) == mlflow_id
    assert writer._client.get_run(mlflow_id).info.run_name == "best so far"


def test_an_error_of_mlflows_store_is_one_line_without_a_traceback(
    store: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """MLflow logs each error of its store with a traceback before it raises the error."""
    shutil.copy(store / "mlflow.db", tmp_path)
    tracker = opened(tmp_path)
    with closing(sqlite3.connect(tmp_path / "mlflow.db")) as connection, connection:
        connection.execute("DROP TABLE metrics")
    tracker.ended(completed(tmp_path), PARAMS, {"val": [(0, 1.0)]}, {})
    tracker.close()
    assert any("MLflow" in record.getMessage() for record in caplog.records)
    assert "Traceback" not in capfd.readouterr().err


# --- points --------------------------------------------------------------------------------------


def test_many_reported_points_arrive_in_mlflow_completely_and_in_few_calls(
    store: Path, tmp_path: Path
) -> None:
    tracker = opened(store, "many")
    record = completed(tmp_path)
    tracker.started(replace(record, state=TrialState.RUNNING), PARAMS)
    for step in range(20_000):
        tracker.reported("0000", Point(step=step, metrics={"val": step / 2}))
    tracker.close(within(45))  # one call for each point would take minutes
    with closing(sqlite3.connect(store / "mlflow.db")) as made:
        run = (tracker.mlflow_run_ids["0000"],)
        found = made.execute("SELECT count(*) FROM metrics WHERE run_uuid = ?", run).fetchone()
    assert found == (20_000,)


def test_the_mlflow_run_of_a_trial_that_ends_before_anything_was_written_is_complete(
    tmp_path: Path,
) -> None:
    tracker = opened(tmp_path)
    record = completed(tmp_path)
    with closing(sqlite3.connect(tmp_path / "mlflow.db")) as storage:
        # Locks the store, so that nothing is written before the trial has ended.
        storage.execute("BEGIN IMMEDIATE")
        tracker.started(replace(record, state=TrialState.RUNNING), PARAMS)
        began_ms = time.time_ns() // 1_000_000
        tracker.reported("0000", Point(step=0, metrics={"val": 0.25}))
        tracker.reported("0000", Point(step=1, metrics={"val": 0.5}))
        reported_ms = time.time_ns() // 1_000_000
        time.sleep(0.2)
        tracker.ended(record, PARAMS, {"val": [(0, 0.25), (1, 0.5)], "late": [(0, 3.0)]}, {})
        storage.rollback()
    tracker.close()
    (run,) = runs_in(tmp_path, "digits")
    assert (run.info.status, run.info.run_name, run.data.params) == ("FINISHED", "0000", PARAMS)
    assert run.data.metrics == {"val": 0.5, "late": 3.0}
    client = mlflow_client(f"sqlite:///{tmp_path}/mlflow.db")
    points = client.get_metric_history(run.info.run_id, "val")
    assert [(point.step, point.value) for point in points] == [(0, 0.25), (1, 0.5)]
    assert all(began_ms <= point.timestamp <= reported_ms for point in points)
    files = {file.path for file in client.list_artifacts(run.info.run_id)}
    assert files == {"0000.ipynb", "0000.html"}


def test_only_the_call_in_progress_is_lost_if_the_process_that_writes_to_mlflow_dies(
    tmp_path: Path,
) -> None:
    tracker = opened(tmp_path)
    ended = [trial_record(n, notebook=tmp_path / f"{n}.ipynb") for n in range(5)]
    with closing(sqlite3.connect(tmp_path / "mlflow.db")) as storage:
        storage.execute("BEGIN IMMEDIATE")
        for record in ended:
            tracker.ended(record, PARAMS, {}, {})
        time.sleep(1.5)  # wait until the calls have been sent to the writer
        assert tracker._process is not None
        tracker._process.kill()
        storage.rollback()
    until(
        lambda: tracker.progress() == (4, 5),
        "the process that replaced the killed one has written nothing",
    )
    tracker.close()
    assert [tracker.has_end_of(record) for record in ended] == [False, True, True, True, True]


def test_the_start_of_a_trial_that_mlflow_refused_is_written_again_while_the_trial_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refused_starts, "_AGAIN_S", 0.0)
    tracker = opened(tmp_path)
    with closing(sqlite3.connect(tmp_path / "mlflow.db")) as storage:
        storage.execute(
            "CREATE TRIGGER refuse BEFORE INSERT ON runs BEGIN SELECT RAISE(FAIL, 'no'); END"
        )
        tracker.started(replace(stopped(tmp_path), state=TrialState.RUNNING), PARAMS)
        until(lambda: tracker.problem is not None, "the start was not refused")
        assert tracker.mlflow_run_ids == {}
        storage.execute("DROP TRIGGER refuse")
    until(lambda: tracker.mlflow_run_ids.keys() == {"0000"}, "the start was not written again")
    tracker.close()


def test_files_are_uploaded_after_all_other_calls_and_before_the_call_wait_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The tracker gathers calls for up to 60 s before it sends them. `wait` must end this, too.
    monkeypatch.setattr(tracker_module, "_GATHER_S", 60.0)
    tracker, taken = opened(tmp_path), list[str]()
    take = tracker._take

    def noted(call: Call, reply: Reply) -> None:
        taken.append(f"{call.method} {call.about}")
        take(call, reply)

    monkeypatch.setattr(tracker, "_take", noted)
    ended = [trial_record(number, notebook=tmp_path / f"{number}.ipynb") for number in range(3)]
    for record in ended:
        tracker.ended(record, PARAMS, {}, {})
    tracker.started(trial_record(3, state=TrialState.RUNNING), PARAMS)
    tracker.started(replace(ended[0], attempt=2, state=TrialState.RUNNING), PARAMS)
    assert tracker.wait()
    starts, ends = ["start 0003", "start 0000"], ["end 0000", "end 0001", "end 0002"]
    assert taken == [*ends, *starts, "files 0001", "files 0002"]
    assert tracker.progress() == (3, 3)
    tracker.close()


def test_files_of_trials_are_uploaded_even_if_other_calls_are_always_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class NeverEmpty(queue.SimpleQueue[Any]):
        def empty(self) -> bool:
            return False

    monkeypatch.setattr(queue, "SimpleQueue", NeverEmpty)
    monkeypatch.setattr(tracker_module, "_FILES_WAIT_S", 0.0)
    tracker = opened(tmp_path)
    tracker.ended(trial_record(notebook=tmp_path / "0.ipynb"), PARAMS, {}, {})
    until(lambda: tracker.progress() == (1, 1), "the files were not uploaded")
    tracker.close()


def test_the_mlflow_run_of_a_later_attempt_has_each_series_once(
    store: Path, tmp_path: Path
) -> None:
    writer, of_study = writer_of(store, "attempts")
    record = completed(tmp_path)
    first = replace(record, state=TrialState.STOPPED)
    begun = [
        start_of(first),
        points_of("0000", (0, 0.0), (1, 0.1)),
        end_of(first, (0, 0), (1, 0.1)),
    ]
    written(writer, of_study, *begun)
    kept = writer.runs["0000"]
    again = replace(record, attempt=2)
    written(writer, of_study, start_of(again), end_of(again, (0, 0.0), (1, 0.1), (2, 0.2)))
    assert writer.runs["0000"] == kept, "an attempt with the same numbers got a new run"
    others = [(0, 0.0), (1, 0.15), (2, 0.5), (2, 0.4)]
    third = replace(record, attempt=3)
    written(writer, of_study, start_of(third), points_of("0000", (1, 0.15)), end_of(third, *others))
    assert writer.runs["0000"] != kept
    # The end is written again, as after a kill of the sweep.
    written(RunWriter.open(of_study), of_study, end_of(third, *others))
    (run,) = mlflow_runs(of_study.address.full, "attempts")
    history = writer._client.get_metric_history(run.info.run_id, "val")
    score = record.scores["val"]
    assert sorted((m.step, m.value) for m in history) == sorted([*others, (2, score)])
    assert run.data.metrics["val"] == score, (
        "MLflow does not show the newest value of the last step"
    )
    assert (run.info.status, run.data.params) == ("FINISHED", {"x": "0.5"})


def test_the_mlflow_run_of_an_attempt_is_kept_if_the_next_attempt_has_other_numbers(
    store: Path, tmp_path: Path
) -> None:
    writer, of_study = writer_of(store, "kept")
    record = completed(tmp_path)
    first = replace(record, state=TrialState.STOPPED)
    written(writer, of_study, start_of(first), points_of("0000", (0, 0.1)))
    kept, client = writer.runs["0000"], writer._client
    client.log_metric(kept, "own", 7.0)
    client.log_text(kept, "weights", "own/model.txt")
    again = replace(record, attempt=2)
    calls = [end_of(first, (0, 0.1)), start_of(again), end_of(again, (0, 0.2))]
    assert written(writer, of_study, *calls) == [None] * 3
    later = RunWriter.open(of_study)
    later.set_others_aside(["0000"])
    assert later.runs == writer.runs
    assert later.runs["0000"] != kept
    earlier = client.get_run(kept)
    info = earlier.info
    assert (info.run_name, info.status, info.lifecycle_stage) == (
        "0000.attempt1",
        "KILLED",
        "active",
    )
    assert earlier.data.tags["mlflow.parentRunId"] == later.runs["0000"]
    assert earlier.data.metrics == {"val": 0.1, "own": 7.0}
    assert [file.path for file in client.list_artifacts(kept, "own")] == ["own/model.txt"]


SETTINGS = {
    "objective": {"val loss": "minimize", "cost": "maximize"},
    "space": {
        "lr": {"low": 1e-4, "high": 1.0, "log": True},
        "kind": ["a", "b"],
        "depth": {"low": 1, "high": 3, "when": {"kind": "b"}},
    },
    "fixed": {"epochs": 3},
}


def state_of(view: str) -> dict[str, Any]:
    """Return the state of MLflow's UI (filter, columns, charts) that a view's tag contains."""
    kind, _, packed = json.loads(view)["state"].partition(";")
    assert kind == "deflate"
    state: dict[str, Any] = json.loads(zlib.decompress(base64.b64decode(packed)))
    return state


@pytest.fixture
def view() -> str:
    settings = Settings.from_mapping(SETTINGS)
    return view_of(settings.search_space, settings.objective, study_id="one")


def test_objectives_and_swept_params_are_columns_in_mlflow_and_the_best_run_is_first(
    view: str,
) -> None:
    state = state_of(view)
    assert state["selectedColumns"] == [
        "metrics.`val loss`",
        "metrics.`cost`",
        *("params.`lr`", "params.`kind`", "params.`depth`"),
    ]
    assert (state["orderByKey"], state["orderByAsc"]) == ("metrics.`val loss`", True)
    assert state["searchFilter"] == "tags.`sweeper.study_id` = 'one'", (
        "the view shows runs of other studies or earlier attempts"
    )


def test_parallel_coordinates_in_mlflow_use_logarithms_and_only_params_that_each_trial_has(
    view: str,
) -> None:
    (chart,) = state_of(view)["compareRunCharts"]
    assert chart["type"] == "PARALLEL"
    assert chart["selectedParams"] == ["log10_lr", "kind"]
    assert chart["selectedMetrics"] == ["val loss", "cost"]


def test_links_to_mlflow_open_the_view_of_the_study() -> None:
    here = "http://127.0.0.1:5000"
    assert view_url(Address.of("http://tracking:5001/"), "7", ui=here) == (
        "http://tracking:5001/#/experiments/7/runs?viewStateShareKey=sweeper"
        "&workflowType=machine_learning&compareRunsMode=CHART"
    )
    assert view_url(Address.of("sqlite:///x.db"), "7", ui=here).startswith(
        f"{here}/#/experiments/7/"
    )


def test_a_link_to_mlflow_names_a_free_port() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        number = taken.getsockname()[1]
        assert free_port(number) != number
    assert free_port(number) == number


NAMES = st.one_of(
    st.text(max_size=12),
    st.text(alphabet="ab./ :-_@<>%", max_size=8),
    st.text(alphabet="a/", min_size=240, max_size=260),
    st.sampled_from(
        ["iou>0.5", "iou<0.5", "acc@1", "acc_1", "acc.", "acc", "train//loss", "..", ""]
    ),
)


@given(names=st.lists(NAMES, unique=True, max_size=6))
@example(names=["0/./0", "0//0", "0/0"])
@hypothesis_settings(max_examples=300, deadline=None)
def test_every_name_becomes_a_unique_name_that_mlflow_accepts(names: list[str]) -> None:
    from mlflow.utils.validation import _validate_metric_name

    found = [legal(name) for name in names]
    for name in found:
        _validate_metric_name(name)  # type: ignore[no-untyped-call]
        assert len(name) <= 250
        assert legal(name) == name
    assert len({*found}) == len(names)


@pytest.mark.parametrize("name", ["val_acc", "train/loss", "acc_1", "Präzision", "a.b-c d", "acc."])
def test_a_name_that_mlflow_accepts_is_not_changed(name: str) -> None:
    assert legal(name) == name


def test_series_with_similar_names_stay_separate_and_a_changed_name_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    writer, store = writer_of(tmp_path, "names")
    record = replace(stopped(tmp_path), state=TrialState.COMPLETED, scores={"acc.": 0.5})
    series = {"iou>0.5": [(0, 0.1)], "iou<0.5": [(0, 0.2)], "acc": [(0, 0.3)]}
    end = Call("end", record.run_id, (record, PARAMS, series, {}, 9))
    assert written(writer, store, start_of(record), end) == [None, None]
    (run,) = runs_in(tmp_path, "names")
    assert run.info.status == "FINISHED"
    assert sorted(run.data.metrics.values()) == [0.1, 0.2, 0.3, 0.5]
    assert (run.data.metrics["acc"], run.data.metrics["acc."]) == (0.3, 0.5)
    assert "'iou>0.5'" in caplog.text
    assert legal("iou>0.5") in caplog.text


def test_a_value_that_mlflow_refuses_does_not_keep_other_values_from_being_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    writer, store = writer_of(tmp_path, "refused")
    record = replace(stopped(tmp_path), state=TrialState.COMPLETED, scores={"val": 0.5})
    series = {"train//loss": [(0, 0.1)], "val": [(0, 0.5)], "late": [(2**70, 1.0), (1, 2.0)]}
    tags = {"long": "x" * 10_000, "odd//key": "1"}
    end = Call("end", record.run_id, (record, {"x": "another"}, series, tags, 9))
    assert written(writer, store, start_of(record), end) == [None, None]
    (run,) = runs_in(tmp_path, "refused")
    assert run.info.status == "FINISHED"
    assert run.data.metrics == {legal("train//loss"): 0.1, "val": 0.5, "late": 2.0}
    assert run.data.params == {"x": "0.5"}, "MLflow has changed a param"
    assert run.data.tags["sweeper.state"] == "completed"
    assert "'x'" in caplog.text
    assert "'late'" in caplog.text


def runs_in(folder: Path, study: str) -> list[Any]:
    return mlflow_runs(f"sqlite:///{folder}/mlflow.db", study)
