"""What MLflow is told, and what it may cost when it does not listen."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from sweeper.errors import TrackingError
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
def test_where_there_is_no_time_a_store_that_does_not_answer_is_told_the_next_time(
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
        assert not again.is_told(record)
        storage.rollback()
    again.started(record, {"x": "0.5"})
    again.ended(record, {}, {})
    assert again.close() == 0
    assert opened(tmp_path).is_told(record)


@pytest.mark.slow  # likewise
def test_an_attempt_whose_end_was_not_told_is_not_taken_for_the_one_before(tmp_path: Path) -> None:
    tracker = opened(tmp_path)
    first = stopped(tmp_path)
    tracker.started(first, {"x": "0.5"})
    tracker.ended(first, {}, {})
    assert tracker.close() == 0
    completed = replace(first, state=TrialState.COMPLETED, attempt=2, scores={"val": 1.0})
    assert opened(tmp_path).is_told(first)
    assert not opened(tmp_path).is_told(completed)
    assert not opened(tmp_path).is_told(replace(first, attempt=2))


@pytest.mark.slow  # likewise
def test_a_kill_while_the_store_is_made_leaves_none_or_a_whole_one(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from sweeper.tracking.files import make_store; "
        "make_store(Path(sys.argv[1]))"
    )
    place = tmp_path / "mlflow.db"
    beside = tmp_path / ".mlflow.db.part"
    for bytes_at_least in (1, 100_000):
        making = subprocess.Popen([sys.executable, "-c", code, place])
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
def test_a_store_that_mlflow_cannot_open_is_told_of_in_one_line(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "mlflow.db")) as torn:
        torn.execute("CREATE TABLE experiment_tags (key TEXT)")
    with pytest.raises(TrackingError) as refused:
        opened(tmp_path)
    said = str(refused.value)
    assert "\n" not in said
    assert f"--tracking-uri sqlite:///{tmp_path}/mlflow.db: cannot be used: " in said
    assert "mlflow.db away: a new one is begun, and told of the study's trials again" in said
