"""Objects in a storage: URLs, credentials in messages, conditional writes, and JSON files."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from sweeper.errors import SettingsError
from sweeper.sync.manifest import Entry, LocalMarker, Manifest
from sweeper.sync.store import ConflictError, Store, StoreError, redact_url, scrubbed


@pytest.fixture(params=["memory", "folder"])
def store(request: pytest.FixtureRequest, tmp_path: Any) -> Store:
    return Store("memory://bucket/x" if request.param == "memory" else tmp_path.as_uri())


def test_an_object_is_what_was_written_last(store: Store, tmp_path: Any) -> None:
    assert store.get("deep/a") is None
    store.put("deep/a", b"1")
    store.put("deep/a", b"2")
    assert store.get("deep/a") == b"2"
    assert 0 <= store.age_s("deep/a") < 60, "by the store's clock"
    file = tmp_path / "file"
    file.write_bytes(b"3")
    store.put_file("deep/b", file)
    store.get_file("deep/b", tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == b"3"
    assert sorted(store.names("deep")) == ["deep/a", "deep/b"]
    store.remove("deep/a")
    store.remove("deep/a")
    assert store.names("deep") == ["deep/b"]
    assert store.names("none") == []
    with pytest.raises(StoreError):
        store.get_file("deep/a", tmp_path / "again")


def test_schemes_and_packages_that_are_missing_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingsError, match=r"fsspec knows no s4://; expected something like s3:"):
        Store("s4://bucket/x")
    import fsspec

    def missing(scheme: str) -> Any:
        raise ImportError("Install s3fs to access S3")

    monkeypatch.setattr(fsspec, "get_filesystem_class", missing)
    with pytest.raises(SettingsError, match="a package for s3:// is missing: pip install s3fs"):
        Store("s3://bucket/x")


def test_messages_have_no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush-hush")
    assert redact_url("sftp://me:hush@host/x?sig=hush") == "sftp://host/x"
    message = scrubbed("cannot reach http://me:hush@host/x?X-Amz-Signature=hush with hush-hush")
    assert message == "cannot reach http://host/x with …"


@pytest.mark.slow  # a server
def test_s3_writes_only_over_the_version_that_was_read(s3: str) -> None:
    store = Store(f"{s3}/versions")
    assert store.version("a") is None
    store.put_if_unchanged("a", b"1", None)
    with pytest.raises(ConflictError):
        store.put_if_unchanged("a", b"2", None)
    version = store.version("a")
    assert version
    store.put_if_unchanged("a", b"3", version)
    with pytest.raises(ConflictError):
        store.put_if_unchanged("a", b"4", version)
    store.remove("a")
    with pytest.raises(ConflictError):
        store.put_if_unchanged("a", b"5", version)
    with pytest.raises(StoreError) as refused:
        Store("s3://nowhere-at-all/x").put_if_unchanged("a", b"6", None)
    assert refused.value.is_refusal


def test_other_stores_write_as_before(store: Store) -> None:
    assert store.version("a") is None
    store.put_if_unchanged("a", b"1", None)
    assert store.version("a") == ""
    store.put_if_unchanged("a", b"2", "")
    assert store.get("a") == b"2"


def test_a_server_without_conditional_writes_gets_an_ordinary_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written: list[dict[str, str]] = []

    def pipe_file(path: str, data: bytes, **conditions: str) -> None:
        written.append(conditions)
        if conditions:
            raise answer("NotImplemented")

    store = Store("memory://bucket")
    monkeypatch.setattr(store._at("a")[0], "pipe_file", pipe_file)
    store.put_if_unchanged("a", b"1", None)
    assert written == [{"mode": "create"}, {}]


def answer(code: str) -> Exception:
    """An error of s3fs, with botocore's as its cause."""
    cause = Exception(code)
    cause.response = {"Error": {"Code": code}}  # type: ignore[attr-defined]
    error = OSError(code)
    error.__cause__ = cause
    return error


MANIFEST = Manifest(
    study="digits",
    study_id="1f",
    copy_id="c0",
    generation=3,
    template="out/{run_id}.ipynb",
    artifacts="file:///out",
    files={"study.db": Entry(hash="ab", mtime_s=0.25)},
)
STORED: dict[str, Any] = json.loads(MANIFEST.text)


def test_a_manifest_is_read_as_it_was_written_with_names_that_are_no_unicode() -> None:
    assert Manifest.read(MANIFEST.text.encode()) == MANIFEST
    assert Manifest.read(MANIFEST.text).objects == {"objects/ab"}
    name = os.fsdecode(b"checkpoints/0000/\xff.pt")
    stored = json.dumps({**STORED, "files": {name: STORED["files"]["study.db"]}})
    assert list(Manifest.read(stored.encode()).files) == [name]


@pytest.mark.parametrize("text", ["", "[]", "{}", json.dumps({**STORED, "generation": "x"})])
def test_a_damaged_manifest_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"Expecting value|validation error"):
        Manifest.read(text)


def test_a_folder_without_a_readable_marker_was_never_copied(tmp_path: Path) -> None:
    file = tmp_path / "sync.json"
    assert LocalMarker.at(file) is None
    file.write_text("{")
    assert LocalMarker.at(file) is None
    marker = LocalMarker(copy_id="c", generation=2)
    file.write_text(marker.text)
    assert LocalMarker.at(file) == marker
