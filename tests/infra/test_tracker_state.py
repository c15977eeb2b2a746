"""The tracker's SQLite file in an object storage: saved whole, brought back, owned by one."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
import tracker_state
from tracker_state import KEPT, Copy, StateError, restore, save


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
    begin(db, url, 1, 2, 3, 4, 5)
    second = tmp_path / "second" / "mlflow.db"
    message = restore(second, Copy(url))
    assert message.startswith("brought back the copy of ")
    assert values(second) == [1, 2, 3, 4, 5]
    write(second, 6)
    assert (save(second, Copy(url)) or "").startswith("saved ")
    assert save(second, Copy(url)) is None  # nothing has changed


def test_old_copies_are_removed(db: Path, bucket: str, tmp_path: Path) -> None:
    begin(db, bucket, *range(KEPT + 3))
    assert len(list((tmp_path / "bucket").glob("*.db.gz"))) == KEPT


def test_a_machine_that_was_restarted_keeps_its_own_newer_file(db: Path, bucket: str) -> None:
    copy = begin(db, bucket, 1)
    write(db, 2)
    assert "goes on" in restore(db, copy)
    assert values(db) == [1, 2]


def test_a_tracker_that_was_replaced_saves_no_more(db: Path, bucket: str, tmp_path: Path) -> None:
    copy = begin(db, bucket, 1)
    second = tmp_path / "second" / "mlflow.db"
    restore(second, copy)
    write(db, 2)
    with pytest.raises(StateError, match="has taken over"):
        save(db, copy)
    with pytest.raises(StateError, match="is older than the copy"):
        restore(db, copy)
    assert values(second) == [1]


def test_a_file_that_was_there_before_is_not_overwritten(
    db: Path, bucket: str, tmp_path: Path
) -> None:
    begin(db, bucket, 1)
    own = tmp_path / "own" / "mlflow.db"
    own.parent.mkdir()
    write(own, 7)
    with pytest.raises(StateError, match=r"move mlflow\.db away"):
        restore(own, Copy(bucket))
    assert values(own) == [7]


def test_what_was_damaged_in_the_store_is_not_brought_back(
    db: Path, bucket: str, tmp_path: Path
) -> None:
    copy = begin(db, bucket, 1, 2)
    newest = copy.latest()
    assert newest is not None
    shutil.copy(tmp_path / "bucket" / newest["kept"][1], tmp_path / "bucket" / newest["name"])
    second = tmp_path / "second" / "mlflow.db"
    with pytest.raises(StateError, match="is not what was saved; older copies: "):
        restore(second, copy)
    assert not second.exists()


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


STEPS = [
    (tracker_state, "_backup", "before"),
    (Copy, "put", "before"),
    (Copy, "put", "after"),
    (Copy, "point_to", "before"),
]


@pytest.mark.parametrize(("owner", "name", "when"), STEPS, ids=lambda value: str(value)[-20:])
def test_a_save_that_is_killed_leaves_the_complete_copy_before_it(
    owner: object, name: str, when: str, db: Path, bucket: str, tmp_path: Path
) -> None:
    copy = begin(db, bucket, 1)
    write(db, 2)

    def work() -> None:
        real = getattr(owner, name)

        def call(*arguments: object) -> None:
            if when == "after":
                real(*arguments)
            die()

        setattr(owner, name, call)
        save(db, copy)

    killed_while(work)
    shutil.copytree(tmp_path / "bucket", tmp_path / "as-it-was")
    second = tmp_path / "second" / "mlflow.db"
    restore(second, Copy(f"file://{tmp_path}/as-it-was"))
    assert values(second) == [1]
    assert (save(db, copy) or "").startswith("saved ")  # the machine itself saves again
    assert len(list(db.parent.iterdir())) == 2  # the database and its mark
    assert len(list((tmp_path / "bucket").glob("*.db.gz"))) == 2


def test_a_save_killed_after_its_last_step_is_complete(
    db: Path, bucket: str, tmp_path: Path
) -> None:
    copy = begin(db, bucket, 1)
    write(db, 2)

    def work() -> None:
        Copy.remove_all_but = die  # type: ignore[assignment, method-assign]
        save(db, copy)

    killed_while(work)
    assert save(db, copy) is None
    second = tmp_path / "second" / "mlflow.db"
    restore(second, copy)
    assert values(second) == [1, 2]


@pytest.mark.parametrize("step", ["get", "point_to"])
def test_bringing_back_begins_anew_after_a_kill(
    step: str, db: Path, bucket: str, tmp_path: Path
) -> None:
    copy = begin(db, bucket, 1, 2)
    second = tmp_path / "second" / "mlflow.db"

    def work() -> None:
        setattr(Copy, step, die)
        restore(second, copy)

    killed_while(work)
    write(db, 3)
    save(db, copy)  # the first machine is not replaced yet
    assert restore(second, copy).startswith("brought back")
    assert values(second) == [1, 2, 3]


def test_sigterm_ends_watching_after_a_last_save(db: Path, bucket: str, tmp_path: Path) -> None:
    begin(db, bucket, 1)
    watching = subprocess.Popen(
        [sys.executable, tracker_state.__file__, "watch", str(db), bucket, "--every", "0.05"],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert watching.stderr is not None
    write(db, 2)
    first = watching.stderr.readline()
    write(db, 3)
    watching.send_signal(signal.SIGTERM)
    lines = first + watching.communicate(timeout=60)[1]
    assert watching.returncode == 0, lines
    assert "ended after a last save" in lines
    second = tmp_path / "second" / "mlflow.db"
    restore(second, Copy(bucket))
    assert values(second) == [1, 2, 3]


def test_a_store_that_is_away_starts_no_empty_tracker(tmp_path: Path) -> None:
    done = subprocess.run(
        [
            *(sys.executable, tracker_state.__file__, "restore"),
            *(str(tmp_path / "mlflow.db"), "s3://sweeps/tracker"),
        ],
        env={
            **os.environ,
            "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
            "AWS_MAX_ATTEMPTS": "1",
            "AWS_ACCESS_KEY_ID": "nobody",
            "AWS_SECRET_ACCESS_KEY": "nothing",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "tracker_state.py: s3://sweeps/tracker: " in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_watching_ends_where_nothing_is_written(db: Path, bucket: str) -> None:
    copy = begin(db, bucket, 1)
    handlers = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    try:
        began_s = time.monotonic()
        assert "nothing has been written" in tracker_state.watch(
            db, copy, every_s=0.01, idle_s=0.05
        )
        assert time.monotonic() - began_s >= 0.05
    finally:
        for number, handler in zip((signal.SIGTERM, signal.SIGINT), handlers, strict=True):
            signal.signal(number, handler)
