"""What the tracker writes to MLflow, and what happens when MLflow does not take it."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import nbformat
import pytest

from sweeper.errors import TrackingError
from sweeper.notebook_api.messages import Point
from sweeper.tracking import Tracker
from sweeper.trials import TrialRecord, TrialState


def opened(folder: Path) -> Tracker:
    return Tracker.open(
        None,
        study="digits",
        study_id="one",
        embedded=folder / "mlflow.db",
        artifacts=folder / "artifacts",
    )


def stopped(folder: Path) -> TrialRecord:
    return TrialRecord(
        number=0,
        params={"x": 0.5},
        seed=1,
        attempt=1,
        notebook=folder / "0000.ipynb",
        state=TrialState.STOPPED,
        started_at_s=time.time(),
    )


@pytest.mark.slow  # MLflow makes its tables
def test_messages_to_a_store_that_does_not_answer_in_time_are_written_by_the_next_sweep(
    tmp_path: Path,
) -> None:
    tracker = opened(tmp_path)
    record = replace(stopped(tmp_path), state=TrialState.COMPLETED, scores={"val": 1.0})
    with closing(sqlite3.connect(tmp_path / "mlflow.db")) as storage:
        storage.execute("BEGIN IMMEDIATE")
        tracker.started(record, {"x": "0.5"})
        tracker.ended(record, {}, {})
        assert tracker.close(patience_s=0.5) > 0
        again = opened(tmp_path)
        assert not again.has_end_of(record)
        storage.rollback()
    tracker.close()  # or it would write beside the next one, as no process does that has ended
    again.started(record, {"x": "0.5"})
    again.ended(record, {}, {})
    assert again.close() == 0
    assert opened(tmp_path).has_end_of(record)


@pytest.mark.slow  # likewise
def test_the_end_of_one_attempt_is_not_taken_for_that_of_another(tmp_path: Path) -> None:
    tracker = opened(tmp_path)
    first = stopped(tmp_path)
    tracker.started(first, {"x": "0.5"})
    tracker.ended(first, {}, {})
    assert tracker.close() == 0
    completed = replace(first, state=TrialState.COMPLETED, attempt=2, scores={"val": 1.0})
    assert opened(tmp_path).has_end_of(first)
    assert not opened(tmp_path).has_end_of(completed)
    assert not opened(tmp_path).has_end_of(replace(first, attempt=2))


@pytest.mark.slow  # likewise
def test_a_kill_while_the_store_is_made_leaves_none_or_a_whole_one(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from sweeper.tracking.new_store import make_store; "
        "make_store(Path(sys.argv[1]))"
    )
    place = tmp_path / "mlflow.db"
    beside = tmp_path / ".mlflow.db.part"
    env = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "no store is kept here")}
    for bytes_at_least in (1, 100_000):
        making = subprocess.Popen([sys.executable, "-c", code, place], env=env)
        while making.poll() is None and not (
            beside.exists() and beside.stat().st_size >= bytes_at_least
        ):
            time.sleep(0.002)
        making.kill()
        making.wait()
        assert beside.exists()
        assert not place.exists()
    assert opened(tmp_path).close() == 0
    assert not beside.exists()


@pytest.mark.slow  # likewise
def test_a_store_out_of_the_cache_is_as_a_new_one_and_a_broken_cache_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    first, second, third = (opened_in(tmp_path / name) for name in ("a", "b", "c"))
    kept = list((tmp_path / "cache" / "notebook-hpo").glob("mlflow-*.db"))
    assert len(kept) == 1
    assert first == second == third
    assert any("experiments" in statement for statement in first)
    for damage in (b"", b"no database", kept[0].read_bytes()[:400_000]):
        kept[0].write_bytes(damage)
        assert opened_in(tmp_path / f"after-{len(damage)}") == first
        assert len(kept[0].read_bytes()) > 400_000


def opened_in(folder: Path) -> list[str]:
    """What an opened store consists of, but for its folder and times."""
    assert opened(folder).close() == 0
    with closing(sqlite3.connect(folder / "mlflow.db")) as made:
        made.execute("UPDATE experiments SET creation_time = 0, last_update_time = 0")
        dump = "\n".join(made.iterdump()).replace(str(folder), "folder")
        return sorted(line.strip(" ,\t") for line in dump.splitlines())  # MLflow keeps no order


@pytest.mark.slow  # likewise
def test_a_store_that_mlflow_cannot_open_is_refused_in_one_line(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "mlflow.db")) as torn:
        torn.execute("CREATE TABLE experiment_tags (key TEXT)")
    with pytest.raises(TrackingError) as refused:
        opened(tmp_path)
    message = str(refused.value)
    assert "\n" not in message
    assert f"--tracking-uri sqlite:///{tmp_path}/mlflow.db: cannot be used: " in message
    assert "mlflow.db away: a new one is created, and the study's trials are written" in message


# --- one store for the tests below, each with a study of its own ---------------------------------


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("store")
    opened(folder).close()
    return folder


def of_study(store: Path, study: str) -> Tracker:
    return Tracker.open(
        None, study=study, study_id="one", embedded=store / "mlflow.db", artifacts=store / study
    )


def completed(folder: Path, *cells: Any) -> TrialRecord:
    """A trial whose notebook has these cells."""
    record = replace(stopped(folder), state=TrialState.COMPLETED, scores={"val": 0.5})
    record.notebook.write_text(nbformat.writes(nbformat.v4.new_notebook(cells=list(cells))))
    return record


def run_of(tracker: Tracker, record: TrialRecord) -> Any:
    return tracker._client.get_run(tracker.mlflow_run_ids[record.run_id])


@pytest.mark.slow  # MLflow
def test_an_error_without_a_message_costs_one_message_to_mlflow_and_not_all_later_ones(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracker = of_study(store, "wordless")
    first = replace(stopped(tmp_path), state=TrialState.RUNNING)
    create_run, failures = tracker._client.create_run, [MemoryError()]

    def fails_once(*arguments: Any, **options: Any) -> Any:
        if failures:
            raise failures.pop()
        return create_run(*arguments, **options)

    monkeypatch.setattr(tracker._client, "create_run", fails_once)
    tracker.started(first, {"x": "0.5"})
    tracker.started(replace(first, number=1), {"x": "0.5"})
    assert tracker.close() == 1
    assert list(tracker.mlflow_run_ids) == ["0001"]


@pytest.mark.slow  # MLflow
def test_a_trial_whose_start_mlflow_did_not_take_is_written_whole_at_its_end(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tracker = of_study(store, "late")
    record = completed(tmp_path)
    log_batch, failures = tracker._client.log_batch, [OSError("away"), OSError("away")]

    def fails_twice(*arguments: Any, **options: Any) -> Any:
        if failures:
            raise failures.pop()
        return log_batch(*arguments, **options)

    monkeypatch.setattr(tracker._client, "log_batch", fails_twice)
    tracker.started(replace(record, state=TrialState.RUNNING), {"x": "0.5"})
    tracker.reported("0000", Point(step=0, metrics={"val": 0.25}))
    tracker.ended(record, {"val": [(0, 0.25), (1, 0.5)]}, {})
    assert tracker.close() == 0, "the end has repeated everything"
    run = run_of(tracker, record)
    assert (run.info.status, run.data.params) == ("FINISHED", {"x": "0.5"})
    history = tracker._client.get_metric_history(run.info.run_id, "val")
    assert [(m.step, m.value) for m in history] == [(0, 0.25), (1, 0.5)]
    warnings = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert warnings == ["MLflow did not take the start of trial 0000: away"]


@pytest.mark.slow  # MLflow
def test_a_notebook_that_cannot_be_rendered_ends_its_run_all_the_same(
    store: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tracker = of_study(store, "unrendered")
    record = completed(tmp_path, nbformat.v4.new_markdown_cell("![x](attachment:gone.png)"))
    for number in range(2):
        tracker.started(replace(record, number=number, state=TrialState.RUNNING), {"x": "0.5"})
        tracker.ended(replace(record, number=number), {"val": [(0, 0.5)]}, {})
    assert tracker.close() == 0
    again = of_study(store, "unrendered")
    assert again.has_end_of(record)
    run = run_of(again, record)
    assert (run.info.status, run.data.metrics) == ("FINISHED", {"val": 0.5})
    files = [file.path for file in again._client.list_artifacts(run.info.run_id)]
    assert files == ["0000.ipynb"]
    assert "/artifacts/0000.ipynb)" in run.data.tags["mlflow.note.content"]
    (warning,) = caplog.records
    assert warning.getMessage() == (
        "trial 0000: its notebook cannot be rendered as a page (missing attachment: gone.png); "
        "MLflow has it as .ipynb"
    )


@pytest.mark.slow  # MLflow
def test_a_store_that_takes_no_files_has_the_values_and_gets_the_files_from_the_next_sweep(
    store: Path, tmp_path: Path
) -> None:
    (store / "full").write_text("in the way of the artifacts")
    tracker = of_study(store, "full")
    record = completed(tmp_path)
    tracker.started(replace(record, state=TrialState.RUNNING), {"x": "0.5"})
    tracker.ended(record, {}, {})
    assert tracker.close() == 1
    (store / "full").unlink()
    again = of_study(store, "full")
    run = run_of(again, record)
    assert (run.info.status, run.data.metrics) == ("FINISHED", {"val": 0.5})
    assert not again.has_end_of(record)
    again.started(record, {"x": "0.5"})
    again.ended(record, {}, {})
    assert again.close() == 0
    assert of_study(store, "full").has_end_of(record)
    files = {file.path for file in again._client.list_artifacts(run.info.run_id)}
    assert files == {"0000.ipynb", "0000.html"}


@pytest.mark.slow  # MLflow
def test_a_user_without_a_name_is_recorded_by_number(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 612345)  # as `docker run -u 612345` has it
    tracker = of_study(store, "nameless")
    record = completed(tmp_path)
    tracker.started(record, {"x": "0.5"})
    tracker.ended(record, {}, {})
    assert tracker.close() == 0
    assert run_of(tracker, record).data.tags["mlflow.user"] == "612345"


@pytest.mark.slow  # MLflow
def test_the_end_of_a_trial_whose_start_was_never_written_gets_a_run(
    store: Path, tmp_path: Path
) -> None:
    tracker = of_study(store, "killed")
    tracker.ended(stopped(tmp_path), {}, {})
    assert tracker.close() == 0
    assert run_of(tracker, stopped(tmp_path)).info.status == "KILLED"


def test_an_error_of_the_store_is_one_line_and_no_traceback_of_mlflows(
    store: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """MLflow logs each error of its store with a traceback before it raises it."""
    shutil.copy(store / "mlflow.db", tmp_path)
    tracker = opened(tmp_path)
    with closing(sqlite3.connect(tmp_path / "mlflow.db")) as connection, connection:
        connection.execute("DROP TABLE metrics")
    tracker.started(replace(stopped(tmp_path), state=TrialState.RUNNING), {"x": "0.5"})
    tracker.reported("0000", Point(step=0, metrics={"val": 1.0}))
    assert tracker.close() > 0
    assert any("MLflow" in record.getMessage() for record in caplog.records)
    assert "Traceback" not in capfd.readouterr().err
