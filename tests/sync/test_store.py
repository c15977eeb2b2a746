"""Test objects in a store: URLs, credentials in messages, and JSON files."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sweeper.errors import SettingsError
from sweeper.object_storage.store import Store, scrubbed
from sweeper.sync.manifest import Entry, LocalMarker, Manifest


@pytest.fixture(params=["memory", "folder"])
def store(request: pytest.FixtureRequest, tmp_path: Any) -> Store:
    return Store("memory://bucket/x" if request.param == "memory" else tmp_path.as_uri())


def test_reading_an_object_of_a_store_returns_what_was_written_last(
    store: Store, tmp_path: Any
) -> None:
    assert store.get("deep/a") is None
    store.put("deep/a", b"1")
    store.put("deep/a", b"2")
    assert store.get("deep/a") == b"2"
    assert 0 <= store.age_s("deep/a") < 60, "the age is not by the store's clock"
    file = tmp_path / "file"
    file.write_bytes(b"3")
    store.put_file("deep/b", file)
    assert store.get_file("deep/b", tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == b"3"
    assert sorted(store.names("deep")) == ["deep/a", "deep/b"]
    store.remove("deep/a")
    store.remove("deep/a")
    assert store.names("deep") == ["deep/b"]
    assert store.names("none") == []
    assert not store.get_file("deep/a", tmp_path / "again")


def test_a_write_to_a_store_removes_old_temporary_objects_of_unfinished_writes(
    tmp_path: Path,
) -> None:
    (tmp_path / "a.part").write_text("the user's")
    old, new = tmp_path / ".a.01234567.part", tmp_path / ".a.89abcdef.part"
    for left in (old, new):
        left.touch()
    os.utime(old, (0, 0))
    Store(tmp_path.as_uri()).put("a", b"1")
    assert {path.name for path in tmp_path.iterdir()} == {"a", "a.part", new.name}
    assert (tmp_path / "a.part").read_text() == "the user's"


def test_the_refusal_of_a_store_names_an_unknown_url_scheme_or_a_missing_package(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(SettingsError, match=r"fsspec knows no s4://; expected something like s3:"):
        Store("s4://bucket/x")
    import fsspec

    def missing(scheme: str) -> Any:
        raise ImportError("Install s3fs to access S3")

    monkeypatch.setattr(fsspec, "get_filesystem_class", missing)
    with pytest.raises(SettingsError, match="a package for s3:// is missing: pip install s3fs"):
        Store("s3://bucket/x")


@pytest.mark.parametrize("url", ["smb://host/share/x", "webhdfs://host/x", "webHDFS://host/x"])
def test_a_store_whose_objects_cannot_be_replaced_is_refused(url: str) -> None:
    with pytest.raises(SettingsError, match=r"data.from: .*cannot be replaced.*file:///mnt"):
        Store(url, key="data.from")


def test_messages_about_the_store_contain_no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush-hush")
    message = scrubbed("cannot reach http://me:hush@host/x?X-Amz-Signature=hush with hush-hush")
    assert message == "cannot reach http://host/x with …"


MANIFEST = Manifest(
    study="digits",
    study_id="1f",
    copy_id="c0",
    generation=3,
    template="out/{run_id}.ipynb",
    artifacts="file:///out",
    files={"study.db": Entry(hash="ab" * 64, mtime_s=0.25)},
)
STORED: dict[str, Any] = json.loads(MANIFEST.text)


def test_a_manifest_can_contain_file_names_that_are_not_unicode() -> None:
    assert Manifest.read(MANIFEST.text.encode()) == MANIFEST
    assert Manifest.read(MANIFEST.text).objects == {f"objects/{'ab' * 64}"}
    name = os.fsdecode(b"checkpoints/0000/\xff.pt")
    stored = json.dumps({**STORED, "files": {name: STORED["files"]["study.db"]}})
    assert list(Manifest.read(stored.encode()).files) == [name]


@pytest.mark.parametrize("mtime_s", [-86_400.0, 0.25, 40_000_000_000.0])
def test_a_manifest_can_be_read_if_a_file_was_modified_before_1970_or_after_the_year_3000(
    mtime_s: float, tmp_path: Path
) -> None:
    file = tmp_path / "old.txt"
    file.touch()
    os.utime(file, (mtime_s, mtime_s))
    written = replace(MANIFEST, files={"old.txt": Entry.of(file, hash="ab" * 64)})
    assert Manifest.read(written.text) == written


@pytest.mark.parametrize("text", ["", "[]", "{}", json.dumps({**STORED, "generation": "x"})])
def test_a_damaged_manifest_of_a_copy_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"Expecting value|validation error"):
        Manifest.read(text)


def test_a_study_folder_counts_as_never_copied_if_its_file_sync_json_is_missing_or_damaged(
    tmp_path: Path,
) -> None:
    file = tmp_path / "sync.json"
    assert LocalMarker.at(file) is None
    file.write_text("{")
    assert LocalMarker.at(file) is None
    marker = LocalMarker(copy_id="c", generation=2)
    file.write_text(marker.text)
    assert LocalMarker.at(file) == marker
