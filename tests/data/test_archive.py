"""Test the data of trials: it is pushed once, fetched once, and never overwritten."""

from __future__ import annotations

import errno
import hashlib
import io
import os
import pickle
import signal
import tarfile
import threading
from collections.abc import Callable
from copy import copy
from pathlib import Path
from typing import Any

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from sweeper.data import archive
from sweeper.data.archive import Dataset
from sweeper.errors import DataError
from sweeper.object_storage.store import Store, StoreError
from sweeper.settings.sections import Data

LONG = f"a/{'ü' * 120}.png"
FILES = {"a/1.png": b"one" * 9, LONG: b"two" * 9, "large.bin": bytes(range(256)) * 99, "none": b""}
OURS = ".notebook-hpo-data.json"


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fetch archives in blocks of 1 KiB, so that an archive has many blocks."""
    monkeypatch.setattr(archive, "_BLOCK_BYTES", 1024)
    monkeypatch.setattr(os, "sync", lambda: None)


@pytest.fixture
def gets(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list to which each fetch of a block adds the name of the object."""
    names: list[str] = []
    get_range = Store.get_range

    def noted(self: Store, name: str, start: int, end: int) -> bytes:
        names.append(name)
        return get_range(self, name, start, end)

    monkeypatch.setattr(Store, "get_range", noted)
    return names


Make = Callable[..., Dataset]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Return a function that makes the dataset of a notebook on one of several machines."""

    def made(machine: str, *, url: str = "memory://bucket/data", **stated: Any) -> Dataset:
        settings = Data.model_validate({"path": "./data", "from": url, **stated})
        return Dataset(settings, folder=tmp_path / machine)

    return made


def write(dataset: Dataset, files: dict[str, bytes] = FILES) -> None:
    for name, content in files.items():
        path = dataset.place() / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def pushed(dataset: Dataset, files: dict[str, bytes] = FILES) -> str:
    write(dataset, files)
    return dataset.push(lambda _: None)[0]


def content_of(place: Path) -> dict[str, bytes]:
    found = {path.relative_to(place).as_posix(): path for path in place.rglob("*")}
    return {n: p.read_bytes() for n, p in found.items() if p.is_file() and p.name != OURS}


def fetched(dataset: Dataset, begun_with: str | None = None) -> list[str]:
    lines: list[str] = []
    dataset.settle(begun_with=begun_with)
    dataset.bring(lines.append)
    return lines


def test_a_machine_fetches_the_data_that_another_machine_has_pushed(
    make: Make, gets: list[str]
) -> None:
    home, away = make("home"), make("away")
    version = pushed(home)
    assert fetched(home) == []
    lines = fetched(away)
    assert content_of(away.place()) == FILES
    assert away.use.version == version
    assert lines[0].endswith("from memory://bucket/data: 31 kB")
    assert len(gets) > 20
    # Equal files give the same version, whenever they were written.
    assert pushed(make("third"), FILES) == version


def test_a_study_keeps_its_version_of_the_data_and_a_new_study_uses_the_newest(
    make: Make, gets: list[str]
) -> None:
    home, away = make("home"), make("away")
    old = pushed(home)
    new = pushed(home, {"more": b"x"})
    fetched(away, begun_with=old)
    assert (away.version, content_of(away.place())) == (old, FILES)
    newest = make("third")
    fetched(newest)
    assert (newest.version, content_of(newest.place())) == (new, {**FILES, "more": b"x"})
    with pytest.raises(DataError, match=r"archives/0123456789abcdef.* or data.version"):
        fetched(make("fourth", version="0123456789abcdef"))
    MemoryFileSystem.store.clear()
    del gets[:]
    write(away, {"mine": b"written by the notebook"})
    fetched(make("away"), begun_with=old)
    fetched(make("home", version=new))
    assert gets == [], "a machine that has the version asks the store for nothing"


def test_files_that_are_already_in_the_data_folder_are_never_changed(make: Make) -> None:
    old = pushed(make("home"))
    pushed(make("home"), {"more": b"x"})
    with pytest.raises(DataError, match=r"has version .*, and the trials use version .*push"):
        fetched(make("home", version=old))
    by_hand = make("away")
    write(by_hand, {"large.bin": b"mine"})
    with pytest.raises(DataError, match=r"has not pushed.*stays as it is"):
        fetched(by_hand)
    assert content_of(by_hand.place()) == {"large.bin": b"mine"}
    changed = make("third")
    fetched(changed)
    write(changed, {"a/1.png": b"mine"})
    with pytest.raises(DataError, match=r"a/1\.png has changed, and the trials"):
        fetched(changed)
    assert content_of(changed.place())["a/1.png"] == b"mine"


def test_a_file_that_was_added_to_the_data_folder_is_named_in_a_warning(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    pushed(make("home"))
    away = make("away")
    fetched(away)
    fetched(away)
    assert caplog.text == ""
    write(away, {"a/cache.bin": b"written by the notebook"})
    fetched(away)
    assert "a/cache.bin is not in version" in caplog.text


def test_pushing_earlier_data_again_sends_nothing_and_returns_its_version(
    make: Make,
) -> None:
    home = make("home")
    old = pushed(home)
    pushed(home, {"more": b"x"})
    (home.place() / "more").unlink()
    assert home.push(lambda _: None) == (old, 0)
    fetched(make("away", version=old))


def test_data_of_an_incomplete_push_is_never_used(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    home = make("home")
    with monkeypatch.context() as patch:
        patch.setattr(Store, "put", killed)
        with pytest.raises(KeyboardInterrupt):
            pushed(home)
    with pytest.raises(DataError, match=r"there is no data at memory://bucket/data; put .* push"):
        fetched(make("away"))
    pushed(home)


def test_a_block_that_does_not_arrive_is_requested_again(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = make("away")
    pushed(make("home"))
    get_range, cuts = Store.get_range, [StoreError("cut"), StoreError("cut")]

    def cut(self: Store, name: str, start: int, end: int) -> bytes:
        if start >= 2000 and cuts:
            raise cuts.pop()
        return get_range(self, name, start, end)

    monkeypatch.setattr("sweeper.object_storage.store._PAUSE_S", 0.01)
    monkeypatch.setattr(Store, "get_range", cut)
    fetched(away)
    assert content_of(away.place()) == FILES
    cuts.append(StoreError("no bucket", is_refusal=True))
    with pytest.raises(DataError, match=r"no bucket.*see the guide for credentials"):
        fetched(make("third"))


@pytest.mark.parametrize("place", [600, 20_000])
def test_data_whose_bytes_were_changed_in_the_store_is_not_used(make: Make, place: int) -> None:
    away = make("away")
    pushed(make("home"))
    (name,) = (name for name in MemoryFileSystem.store if "/archives/" in name)
    MemoryFileSystem.store[name].seek(place)
    MemoryFileSystem.store[name].write(b"other")
    with pytest.raises(DataError, match="has other content than was pushed"):
        fetched(away)
    assert not list(away.place().parent.glob("*data*/*"))


def test_a_disk_too_full_for_the_data_is_reported_before_anything_is_fetched(
    make: Make, gets: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    away = make("away")
    pushed(make("home"))
    away.settle()
    monkeypatch.setattr(archive, "free_bytes", lambda _: 30_000)
    with pytest.raises(DataError, match=r"data needs 31 kB, and 30 kB are free there; make room"):
        fetched(away)
    assert gets == []


def test_the_error_about_a_data_folder_that_cannot_be_pushed_names_the_cause(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = make("home")
    with pytest.raises(DataError, match=r"there is no folder .*/data; a relative path begins in"):
        home.push(lambda _: None)
    home.place().mkdir(parents=True)
    with pytest.raises(DataError, match="has no files to push"):
        home.push(lambda _: None)
    write(home)
    link = home.place() / "a" / "link"
    link.symlink_to("gone")
    with pytest.raises(DataError, match=r"a/link is neither a file nor a folder.*remove it"):
        home.push(lambda _: None)
    link.unlink()
    link.symlink_to("..")  # a link that leads in a circle
    with pytest.raises(DataError, match=r"a/link is neither a file nor a folder"):
        home.push(lambda _: None)
    link.unlink()
    scandir = os.scandir

    def unreadable(folder: str) -> Any:
        if Path(folder).name == "a":
            raise PermissionError(errno.EACCES, "Permission denied", folder)
        return scandir(folder)

    monkeypatch.setattr(os, "scandir", unreadable)
    with pytest.raises(DataError, match=r"data/a: Permission denied; make it readable"):
        home.push(lambda _: None)


def test_the_error_about_a_folder_that_the_user_may_not_enter_names_the_folder(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pushed(make("home"))
    home = make("home", path="closed/deep/data")
    home.settle()
    closed = tmp_path / "home" / "closed"
    closed.mkdir()

    def refuse(name: str, call: Callable[..., Any]) -> None:
        def refused(path: Any, *rest: Any, **more: Any) -> Any:
            if not isinstance(path, int) and closed in Path(path).parents:
                raise PermissionError(errno.EACCES, "Permission denied", str(path))
            return call(path, *rest, **more)

        monkeypatch.setattr(os, name, refused)

    refuse("stat", os.stat)
    refuse("mkdir", os.mkdir)
    with pytest.raises(DataError, match=r"data.path: .*closed/deep.*: Permission denied"):
        fetched(home)
    with pytest.raises(DataError, match=r"data.path: .*closed/deep"):
        home.push(lambda _: None)


def test_data_of_a_copied_notebook_folder_is_kept_in_the_users_cache(
    make: Make, gets: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    home = make("home")
    pushed(home)
    fetched(home)
    for name in ("worker 1", "worker 2"):
        there = pickle.loads(pickle.dumps(home))
        there.bring(lambda _: None, copy=tmp_path / name)
        assert content_of(tmp_path / name / "data") == FILES
        n_gets = len(gets)
    assert len(gets) == n_gets


def test_only_one_of_two_processes_fetches_data_and_a_stop_ends_the_wait_of_the_other(
    make: Make, gets: list[str]
) -> None:
    pushed(make("home"))
    lines: list[str] = []
    begun, may_end = threading.Event(), threading.Event()

    def slow_line(line: str) -> None:
        lines.append(line)
        begun.set()
        may_end.wait(30)

    def fetch() -> None:
        first.settle()
        first.bring(slow_line)

    first, second = make("away"), make("away")
    thread = threading.Thread(target=fetch)
    thread.start()
    begun.wait(30)
    second.settle()
    second.bring(lines.append, iter([False, True]).__next__)
    assert "waiting for another process that fetches" in lines[-1]
    (lock,) = second.place().parent.glob(".*.lock")
    assert lock.stat().st_mode & 0o077 == 0, "other users could hold the lock"
    may_end.set()
    second.bring(lines.append)
    thread.join()
    assert sum(line.startswith("fetching ") for line in lines) == 1
    assert content_of(second.place()) == FILES


def test_a_killed_fetch_of_data_leaves_no_incomplete_data(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = make("away")
    pushed(make("home"))
    if (child := os.fork()) == 0:
        get_range, left = Store.get_range, iter(range(15))

        def until_killed(self: Store, name: str, start: int, end: int) -> bytes:
            if next(left, None) is None:
                os.kill(os.getpid(), signal.SIGKILL)
            return get_range(self, name, start, end)

        monkeypatch.setattr(Store, "get_range", until_killed)
        fetched(away)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert not away.place().exists()
    assert list(away.place().parent.glob(".*.part"))
    fetched(away)
    assert content_of(away.place()) == FILES
    assert not list(away.place().parent.glob(".*.part"))


@pytest.mark.slow  # a server
def test_data_pushed_to_s3_by_one_machine_is_fetched_by_another(make: Make, s3: str) -> None:
    away = make("away", url=f"{s3}/datasets")
    pushed(make("home", url=f"{s3}/datasets"))
    fetched(away)
    assert content_of(away.place()) == FILES
    missing = make("missing", url="s3://no-such-bucket/datasets")
    with pytest.raises(DataError, match="bucket does not exist"):
        pushed(missing)


def member(name: str, *, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    found = tarfile.TarInfo(name)
    found.type, found.linkname, found.size = kind, target, len(name) if kind == b"0" else 0
    return found


@pytest.mark.parametrize("block_bytes", [1024, 1 << 20])  # The larger block has the whole archive.
@pytest.mark.parametrize(
    "hostile",
    [
        member("{outside}"),
        member("../outside"),
        member("a/../../outside"),
        member("//outside"),
        member(""),
        member("link", kind=tarfile.SYMTYPE, target="../outside"),
        member("link", kind=tarfile.LNKTYPE, target="../outside"),
        member("pipe", kind=tarfile.FIFOTYPE),
        member("device", kind=tarfile.CHRTYPE),
    ],
    ids=lambda found: f"{found.name}-{found.linkname}",
)
def test_an_archive_with_a_path_out_of_the_folder_a_link_or_a_device_is_refused_and_changes_no_file(
    make: Make,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    hostile: tarfile.TarInfo,
    block_bytes: int,
) -> None:
    monkeypatch.setattr(archive, "_BLOCK_BYTES", block_bytes)
    hostile = copy(hostile)
    dataset = make("away")
    outside = tmp_path / "away" / "outside"
    outside.parent.mkdir()
    outside.write_bytes(b"mine")
    os.utime(outside, (1, 1))
    hostile.name = hostile.name.replace("{outside}", str(outside))
    packed = io.BytesIO()
    with tarfile.open(mode="w", fileobj=packed, format=tarfile.PAX_FORMAT) as tar:
        tar.addfile(member("first"), io.BytesIO(b"first"))
        tar.addfile(hostile, io.BytesIO(hostile.name.encode()))
    version = hashlib.sha256(packed.getvalue()).hexdigest()[:16]
    store = Store("memory://bucket/data")
    store.put(f"archives/{version}.tar", packed.getvalue())
    store.put("newest", version.encode())
    with pytest.raises(DataError, match="other content than was pushed"):
        fetched(dataset)
    assert [path.name for path in outside.parent.iterdir() if path.suffix != ".lock"] == ["outside"]
    assert (outside.read_bytes(), outside.stat().st_mtime) == (b"mine", 1)


def test_a_data_version_that_is_a_path_out_of_the_data_folder_is_refused(make: Make) -> None:
    pushed(make("home"))
    Store("memory://bucket/data").put("newest", b"../../../home/me/.ssh")
    with pytest.raises(DataError, match="instead of a version, which has 16 hexadecimal digits"):
        fetched(make("away"))
