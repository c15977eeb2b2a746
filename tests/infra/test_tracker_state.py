"""The tracker's SQLite file in an object storage: saved whole, brought back, owned by one."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
import tracker_state
from tracker_state import Copy, StateError, restore, save

pytestmark = pytest.mark.slow  # they start processes


@pytest.fixture
def bucket(tmp_path: Path) -> str:
    return f"file://{tmp_path}/bucket"


@pytest.fixture
def db(tmp_path: Path) -> Path:
    return tmp_path / "first" / "mlflow.db"


def write(db: Path, value: int) -> None:
    with closing(sqlite3.connect(db)) as opened, opened:
        opened.execute("create table if not exists runs (value)")
        opened.execute("insert into runs values (?)", [value])


def values(db: Path) -> list[int]:
    with closing(sqlite3.connect(db)) as opened:
        return [value for (value,) in opened.execute("select value from runs")]


def begin(db: Path, bucket: str, *saved: int) -> Copy:
    copy = Copy(bucket)
    restore(db, copy)
    for value in saved:
        write(db, value)
        save(db, copy)
    return copy


@pytest.mark.parametrize("store", ["bucket", "s3"])
def test_a_new_machine_goes_on_with_what_the_last_one_saved(
    store: str, db: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = f"{request.getfixturevalue(store)}/tracker-{tmp_path.name}"
    begin(db, url, 1, 2, 3)
    second = tmp_path / "second" / "mlflow.db"
    assert restore(second, Copy(url)).startswith("brought back the copy in ")
    assert values(second) == [1, 2, 3]
    write(second, 4)
    save(second, Copy(url))
    third = tmp_path / "third" / "mlflow.db"
    restore(third, Copy(url))
    assert values(third) == [1, 2, 3, 4]


def test_a_machine_that_was_restarted_keeps_its_own_newer_file(db: Path, bucket: str) -> None:
    copy = begin(db, bucket, 1)
    write(db, 2)
    assert "goes on" in restore(db, copy)
    assert values(db) == [1, 2]
    save(db, copy)


def test_a_tracker_that_was_replaced_saves_no_more(db: Path, bucket: str, tmp_path: Path) -> None:
    copy = begin(db, bucket, 1)
    second = tmp_path / "second" / "mlflow.db"
    restore(second, copy)
    write(db, 2)
    with pytest.raises(StateError, match="has taken over"):
        save(db, copy)
    with pytest.raises(StateError, match=r"move mlflow\.db away"):
        restore(db, copy)
    assert values(second) == [1]


def killed_while(work: Callable[[], object]) -> None:
    """Run something in a process of its own that kills itself with SIGKILL at some point."""
    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.WTERMSIG(status) == signal.SIGKILL


def die(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("is_sent", [False, True])
def test_a_save_that_is_killed_leaves_a_whole_copy(
    is_sent: bool, db: Path, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = begin(db, bucket, 1)
    write(db, 2)
    put = Copy.put
    with monkeypatch.context() as patch:
        patch.setattr(Copy, "put", lambda it, file: die(put(it, file) if is_sent else None))
        killed_while(lambda: save(db, copy))
    second = tmp_path / "second" / "mlflow.db"
    restore(second, copy)
    assert values(second) == ([1, 2] if is_sent else [1])


@pytest.mark.parametrize("step", ["get", "take"])
def test_bringing_back_begins_anew_after_a_kill(
    step: str, db: Path, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = begin(db, bucket, 1, 2)
    second = tmp_path / "second" / "mlflow.db"
    with monkeypatch.context() as patch:
        patch.setattr(Copy, step, die)
        killed_while(lambda: restore(second, copy))
    write(db, 3)
    save(db, copy)  # the first machine is not replaced yet
    assert restore(second, copy).startswith("brought back")
    assert values(second) == [1, 2, 3]


def watching(db: Path, bucket: str, *options: str) -> subprocess.Popen[str]:
    call = [sys.executable, tracker_state.__file__, "watch", str(db), bucket, "--every", "0.05"]
    return subprocess.Popen([*call, *options], stderr=subprocess.PIPE, text=True)


def test_sigterm_ends_watching_after_a_last_save(db: Path, bucket: str, tmp_path: Path) -> None:
    begin(db, bucket, 1)
    saved = tmp_path / "bucket" / "mlflow.db.gz"
    saved.unlink()
    write(db, 2)
    process = watching(db, bucket)
    while not saved.exists():
        assert process.poll() is None
    write(db, 3)
    process.send_signal(signal.SIGTERM)
    lines = process.communicate(timeout=60)[1]
    assert (process.returncode, "ended after a last save" in lines) == (0, True)
    second = tmp_path / "second" / "mlflow.db"
    restore(second, Copy(bucket))
    assert values(second) == [1, 2, 3]


def test_watching_ends_where_nothing_is_written(db: Path, bucket: str) -> None:
    begin(db, bucket, 1)
    process = watching(db, bucket, "--idle-hours", "0.0001")
    assert "nothing has been written" in process.communicate(timeout=60)[1]
    assert process.returncode == 0


def test_a_store_that_is_away_starts_no_empty_tracker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "nobody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "nothing")
    call = [sys.executable, tracker_state.__file__, "restore", str(tmp_path / "mlflow.db")]
    done = subprocess.run(
        [*call, "s3://sweeps/tracker"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []
