"""The data of trials: pushed once, fetched once, verified, and never overwritten."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from sweeper.errors import DataError
from sweeper.settings.sections import Data
from sweeper.sync.datasets import Dataset, folder, manifest
from sweeper.sync.datasets.remote import RemoteData

FILES = {"a/1.png": b"one" * 9, "a/2.png": b"two" * 9, "large.bin": bytes(range(250)), "none": b""}
RECORD = ".notebook-hpo-data.json"


@pytest.fixture(autouse=True)
def small_objects(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Objects of 100 bytes, so that 250 bytes are a large file; and an empty store."""
    monkeypatch.setattr(manifest, "OBJECT_BYTES", 100)
    monkeypatch.setattr(os, "sync", lambda: None)
    MemoryFileSystem.store.clear()
    yield
    MemoryFileSystem.store.clear()


@pytest.fixture
def gets(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the objects that were fetched."""
    names: list[str] = []
    get = RemoteData.get

    def noted(self: RemoteData, wanted: manifest.DataObject, ending: threading.Event) -> bytes:
        names.append(wanted.name)
        return get(self, wanted, ending)

    monkeypatch.setattr(RemoteData, "get", noted)
    return names


Make = Callable[..., Dataset]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """A dataset for a notebook in one of several folders, as if each were another machine."""

    def made(machine: str, *, url: str = "memory://bucket/data", **stated: Any) -> Dataset:
        settings = Data.model_validate({"path": "./data", "from": url, **stated})
        return Dataset(settings, folder=tmp_path / machine)

    return made


def write(dataset: Dataset, files: dict[str, bytes] = FILES) -> None:
    for name, content in files.items():
        path = dataset.place() / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def content_of(dataset: Dataset) -> dict[str, bytes]:
    place = dataset.place()
    found = {path.relative_to(place).as_posix(): path for path in place.rglob("*")}
    ours = ".notebook-hpo-data"
    return {n: p.read_bytes() for n, p in found.items() if p.is_file() and ours not in n}


def fetched(dataset: Dataset) -> list[str]:
    lines: list[str] = []
    dataset.settle()
    dataset.bring(lines.append)
    return lines


def test_what_one_machine_has_pushed_another_has_after_a_fetch(make: Make, gets: list[str]) -> None:
    home, away = make("home"), make("away")
    write(home)
    pushed = home.push(lambda _: None)
    lines = fetched(away)
    assert content_of(away) == FILES
    assert (away.version, pushed.n_files) == (pushed.version, 4)
    assert lines[0].endswith("from memory://bucket/data: 4 files, 0 kB")
    assert len(gets) == 4  # one object for both pictures, three for the large file
    assert away.facts["version"] == pushed.version


def test_a_machine_that_has_the_data_fetches_nothing(make: Make, gets: list[str]) -> None:
    home = make("home")
    write(home)
    home.push(lambda _: None)
    assert fetched(home) == []
    MemoryFileSystem.store.clear()  # and with the version known it asks for nothing
    again = make("home", version=home.version[:6])
    assert fetched(again) == []
    assert gets == []


def test_files_that_are_there_by_hand_are_verified_and_not_fetched(
    make: Make, gets: list[str]
) -> None:
    home, away = make("home"), make("away")
    write(home)
    home.push(lambda _: None)
    write(away, {"large.bin": FILES["large.bin"], "a/1.png": FILES["a/1.png"], "mine": b"x"})
    fetched(away)
    assert content_of(away) == {**FILES, "mine": b"x"}
    assert len(gets) == 1
    os.utime(away.place() / "large.bin", ns=(1, 1))  # it looks other, and is the same
    fetched(away)
    assert len(gets) == 1


@pytest.mark.parametrize("other", [b"other", bytes(250)])
def test_a_file_with_other_content_is_left_alone_and_named(make: Make, other: bytes) -> None:
    home, away = make("home"), make("away")
    write(home)
    home.push(lambda _: None)
    write(away, {"large.bin": other})
    with pytest.raises(DataError, match=r"other content than version .*: large\.bin\. Nothing was"):
        fetched(away)
    assert content_of(away) == {"large.bin": other}


def test_a_file_that_changes_behind_its_time_is_found_on_request(make: Make) -> None:
    home = make("home")
    write(home)
    home.push(lambda _: None)
    large = home.place() / "large.bin"
    status = large.stat()
    large.write_bytes(bytes(250))
    os.utime(large, ns=(status.st_atime_ns, status.st_mtime_ns))
    fetched(home)
    with pytest.raises(DataError, match=r"large\.bin"):
        home.bring(lambda _: None, reads_all=True)


def test_another_version_goes_to_another_folder(make: Make) -> None:
    home, away = make("home"), make("away")
    write(home)
    old = home.push(lambda _: None).version
    fetched(away)
    (home.place() / "a/1.png").unlink()
    new = home.push(lambda _: None)
    assert (new.is_new, new.version == old) == (True, False)
    with pytest.raises(DataError, match=f'has version {old} of the data.*data.version: "{old}"'):
        fetched(make("away"))
    assert content_of(away) == FILES
    fetched(make("away", version=old[:8]))
    third = make("third", version=old)  # what was pushed before stays there
    fetched(third)
    assert content_of(third) == FILES
    with pytest.raises(DataError, match="no such version; the newest is"):
        fetched(make("fourth", version="abcdef"))


def test_a_study_goes_on_with_the_version_of_its_first_trials(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    home, away = make("home"), make("away")
    write(home)
    old = home.push(lambda _: None).version
    write(home, {"more": b"x"})
    home.push(lambda _: None)
    away.settle(begun_with=old)
    assert away.version == old
    assert f"this study goes on with {old}" in caplog.text


def test_a_push_sends_what_the_store_lacks_and_nothing_twice(make: Make) -> None:
    home = make("home")
    write(home)
    first = home.push(lambda _: None)
    write(home, {"new.bin": bytes(70)})
    second = home.push(lambda _: None)
    assert (first.sent_bytes, second.sent_bytes) == (304, 70)
    assert not home.push(lambda _: None).is_new


def test_half_a_push_is_never_used(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    home, away = make("home"), make("away")
    write(home)

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(RemoteData, "publish", killed)
        with pytest.raises(KeyboardInterrupt):
            home.push(lambda _: None)
    with pytest.raises(DataError, match=r"there is no data at memory://bucket/data; put .* push"):
        fetched(away)
    assert home.push(lambda _: None).sent_bytes == 0


def test_a_store_that_is_away_is_no_obstacle_where_the_data_is(
    make: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    home = make("home")
    write(home)
    home.push(lambda _: None)

    def away(_: RemoteData) -> None:
        raise DataError("data.from: it is away")

    monkeypatch.setattr(RemoteData, "head", away)
    fetched(home)
    assert f"it is away; the trials use version {home.version}" in caplog.text
    with pytest.raises(DataError, match="it is away"):
        fetched(make("away"))


def test_bytes_that_were_changed_in_the_store_are_not_used(make: Make) -> None:
    home, away = make("home"), make("away")
    write(home, {"one": b"12345"})
    home.push(lambda _: None)
    (name,) = (name for name in MemoryFileSystem.store if "/objects/" in name)
    MemoryFileSystem.store[name].seek(0)
    MemoryFileSystem.store[name].write(b"54321")
    with pytest.raises(DataError, match="has other bytes than were pushed"):
        fetched(away)
    assert content_of(away) == {}


def test_a_disk_without_room_is_named_before_anything_is_fetched(
    make: Make, gets: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    home, away = make("home"), make("away")
    write(home)
    home.push(lambda _: None)
    away.settle()
    assert away.look()[0].missing_bytes == 304
    monkeypatch.setattr(folder.DataFolder, "free_bytes", lambda _: 100_000_100)
    with pytest.raises(DataError, match=r"0 kB are missing in .*, and 100 MB are free there; make"):
        away.look()
    with pytest.raises(DataError, match=r"set data\.path to a larger disk"):
        fetched(away)
    assert gets == []


def test_folders_that_cannot_be_pushed_are_named(make: Make) -> None:
    home = make("home")
    with pytest.raises(DataError, match=r"there is no folder .*/data; a relative path begins in"):
        home.push(lambda _: None)
    home.place().mkdir(parents=True)
    with pytest.raises(DataError, match="has no files to push"):
        home.push(lambda _: None)


def test_a_copy_of_the_notebooks_folder_leads_to_the_users_cache(
    make: Make, gets: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    home = make("home")
    write(home)
    home.push(lambda _: None)
    home.settle()
    for name in ("worker 1", "worker 2"):
        home.bring(lambda _: None, folder=tmp_path / name, is_copy=True)
        assert (tmp_path / name / "data" / "large.bin").read_bytes() == FILES["large.bin"]
    assert len(gets) == 4


def test_two_that_begin_at_once_fetch_once(make: Make, gets: list[str]) -> None:
    home = make("home")
    write(home)
    home.push(lambda _: None)
    lines: list[str] = []

    def fetch() -> None:
        away = make("away")
        away.settle()
        away.bring(lines.append)

    threads = [threading.Thread(target=fetch) for _ in range(2)]
    other_process = folder.DataFolder(make("away").place())
    with other_process.locked(lambda _: None, lambda: False):
        for thread in threads:
            thread.start()
        while len(lines) < len(threads):  # each says that it waits
            time.sleep(0.01)
    for thread in threads:
        thread.join()
    assert len(gets) == 4


KILLED = """
import os, pathlib, signal, sys
from sweeper.settings.sections import Data
from sweeper.sync.datasets import Dataset, fetching
from sweeper.sync.datasets.remote import RemoteData
get, left = RemoteData.get, [3]
def until_killed(self, wanted, ending):
    left[0] -= 1
    if left[0] < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return get(self, wanted, ending)
RemoteData.get, fetching._AT_ONCE = until_killed, 1
data = Dataset(Data.model_validate({"path": "data", "from": sys.argv[1]}), folder=pathlib.Path("."))
data.settle()
data.bring(print)
"""


@pytest.mark.slow  # a process with the package's imports
def test_a_fetch_that_was_killed_goes_on_where_it_was(
    make: Make, gets: list[str], tmp_path: Path
) -> None:
    url = (tmp_path / "bucket").as_uri()
    home, away = make("home", url=url), make("away", url=url)
    write(home)
    home.push(lambda _: None)
    away.place().parent.mkdir()
    done = subprocess.run([sys.executable, "-c", KILLED, url], cwd=away.place().parent, check=False)
    assert done.returncode == -signal.SIGKILL
    assert "large.bin" not in content_of(away)  # no half file has its name
    fetched(away)
    assert content_of(away) == FILES
    assert len(gets) == 1  # of four
    assert not list(away.place().glob("*.part"))


@pytest.mark.slow  # a server
def test_data_travels_through_s3(make: Make, s3: str) -> None:
    home, away = make("home", url=f"{s3}/datasets"), make("away", url=f"{s3}/datasets")
    write(home)
    home.push(lambda _: None)
    fetched(away)
    assert content_of(away) == FILES
    missing = make("missing", url="s3://no-such-bucket/datasets")
    write(missing)
    with pytest.raises(DataError, match="bucket does not exist; create it, or correct the URL"):
        missing.push(lambda _: None)


def test_a_record_of_another_kind_counts_as_none(make: Make, gets: list[str]) -> None:
    home = make("home")
    write(home)
    home.push(lambda _: None)
    (home.place() / RECORD).write_text(json.dumps({"format": 99}))
    fetched(home)
    assert gets == []
