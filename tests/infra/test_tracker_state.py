"""Test the tracker, which serves MLflow: its SQLite file in a bucket, and the keys of workers."""

from __future__ import annotations

import os
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
import tunnel_keys
from tracker_state import Copy, StateError, restore, save

pytestmark = pytest.mark.slow  # because processes are started


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
def test_a_new_tracker_continues_with_the_mlflow_database_that_the_last_one_saved(
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


def test_a_restarted_tracker_keeps_its_database_if_it_is_newer_than_the_saved_copy(
    db: Path, bucket: str
) -> None:
    copy = begin(db, bucket, 1)
    write(db, 2)
    assert "continues with it" in restore(db, copy)
    assert values(db) == [1, 2]
    save(db, copy)


def test_a_tracker_that_another_machine_has_replaced_can_neither_save_nor_restore(
    db: Path, bucket: str, tmp_path: Path
) -> None:
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
    """Run a function in a child process that kills itself with SIGKILL."""
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
def test_a_save_of_the_tracker_that_is_killed_leaves_a_complete_copy(
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
def test_a_killed_restoration_of_a_tracker_leaves_the_old_machine_as_owner_and_can_be_repeated(
    step: str, db: Path, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = begin(db, bucket, 1, 2)
    second = tmp_path / "second" / "mlflow.db"
    with monkeypatch.context() as patch:
        patch.setattr(Copy, step, die)
        killed_while(lambda: restore(second, copy))
    write(db, 3)
    save(db, copy)  # the killed restoration has not made the second machine the owner
    assert restore(second, copy).startswith("brought back")
    assert values(second) == [1, 2, 3]


def watching(db: Path, bucket: str, *options: str) -> subprocess.Popen[str]:
    call = [sys.executable, tracker_state.__file__, "watch", str(db), bucket, "--every", "0.05"]
    return subprocess.Popen([*call, *options], stderr=subprocess.PIPE, text=True)


def test_at_sigterm_the_tracker_is_saved_once_more(db: Path, bucket: str, tmp_path: Path) -> None:
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


def test_the_tracker_ends_if_nothing_is_written_to_mlflows_database_for_too_long(
    db: Path, bucket: str
) -> None:
    begin(db, bucket, 1)
    process = watching(db, bucket, "--idle-hours", "0.0001")
    assert "nothing has been written" in process.communicate(timeout=60)[1]
    assert process.returncode == 0


def test_no_empty_tracker_is_started_while_the_store_is_unavailable(
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


KEY = "ssh-ed25519 " + "A" * 68


@pytest.fixture
def url(tmp_path: Path) -> str:
    (tmp_path / "host.pub").write_text(f"{KEY} root@tracker\n")
    (tmp_path / "worker.pub").write_text(f"{KEY} worker-1\n")
    url = f"file://{tmp_path}/tracker"
    tunnel_keys.announce(url, "34.1.2.3", str(tmp_path / "host.pub"))
    return url


def authorised(url: str, tmp_path: Path) -> str:
    """Return the text of SSH's file of authorised keys after its first update."""
    file = tmp_path / "authorized_keys"
    running = subprocess.Popen(
        [sys.executable, tunnel_keys.__file__, "authorise", url, str(file), "5000"]
    )
    try:
        while not file.exists():
            assert running.poll() is None
            time.sleep(0.02)
    finally:
        running.terminate()
        running.wait()
    return file.read_text()


def test_a_workers_key_permits_one_port_of_the_tracker_and_nothing_else(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    known = tmp_path / "known_hosts"
    tunnel_keys.offer(url, "worker-1", str(tmp_path / "worker.pub"), str(known))
    assert capsys.readouterr().out == "34.1.2.3\n"
    assert known.read_text() == f"tracker {KEY}\n"
    rule = 'restrict,port-forwarding,permitopen="127.0.0.1:5000",permitlisten="1"'
    (tmp_path / "tracker" / "keys" / "other.pub").write_text(f'command="sh" {KEY}\n{KEY}')
    assert authorised(url, tmp_path) == f"{rule} {KEY}\n"


def test_a_new_tracker_removes_the_worker_keys_of_an_earlier_tracker(
    url: str, tmp_path: Path
) -> None:
    tunnel_keys.offer(url, "worker-1", str(tmp_path / "worker.pub"), str(tmp_path / "known"))
    tunnel_keys.announce(url, "35.4.5.6", str(tmp_path / "host.pub"))
    assert list((tmp_path / "tracker" / "keys").iterdir()) == []


def test_a_worker_cannot_offer_its_key_if_no_tracker_has_announced_itself(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no tracker has announced itself in file://"):
        tunnel_keys.offer(f"file://{tmp_path}", "worker-1", "key", "known")


@pytest.mark.parametrize("address", ["-oProxyCommand=sh", "host name", ""])
def test_an_invalid_address_of_a_tracker_is_refused(url: str, tmp_path: Path, address: str) -> None:
    tunnel_keys.announce(url, address, str(tmp_path / "host.pub"))
    with pytest.raises(ValueError, match="is no address"):
        tunnel_keys.offer(url, "worker-1", str(tmp_path / "worker.pub"), str(tmp_path / "known"))
