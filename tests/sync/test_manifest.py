"""The JSON files of a remote copy: stored formats, and how bad data is refused."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from sweeper.sync.manifest import Entry, LocalMarker, Manifest, Owner

MANIFEST = Manifest(
    study="digits",
    study_id="1f",
    copy_id="c0",
    generation=3,
    at_s=1.5,
    template="out/{run_id}.ipynb",
    artifacts="file:///out",
    files={"study.db": Entry(size=7, hash="ab", mtime_s=0.25)},
)
STORED: dict[str, Any] = json.loads(MANIFEST.text)


def test_a_manifest_is_read_as_it_was_written() -> None:
    assert Manifest.read(MANIFEST.text.encode()) == MANIFEST
    assert Manifest.read(MANIFEST.text).objects == {"objects/ab"}


def test_keys_of_a_later_version_are_ignored() -> None:
    assert Manifest.read(json.dumps({**STORED, "new": 1})) == MANIFEST
    owner = Owner(host="h", pid=1, token="t", copy_id="c", every_s=1.0, at_s=2.0)
    assert Owner.read(json.dumps({**json.loads(owner.text), "new": 1})) == owner
    assert not owner.has_ended


def test_file_names_that_are_no_unicode_are_stored() -> None:
    name = os.fsdecode(b"checkpoints/0000/\xff.pt")
    files = {name: Entry(size=7, hash="ab", mtime_s=0.25)}
    stored = json.dumps({**STORED, "files": {name: STORED["files"]["study.db"]}})
    assert Manifest.read(stored.encode()).files == files


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "Expecting value"),
        ("[]", "not a manifest: "),
        ("{}", "not a manifest: study: Field required"),
        (json.dumps({**STORED, "files": {"a": {"size": 1}}}), "not a manifest: files.a.hash: "),
        (json.dumps({**STORED, "generation": "x"}), "not a manifest: generation: "),
        (json.dumps({**STORED, "version": 2}), "^written by a later version of notebook-hpo"),
    ],
)
def test_a_damaged_or_later_manifest_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Manifest.read(text)


def test_a_folder_without_a_readable_marker_was_never_copied(tmp_path: Path) -> None:
    file = tmp_path / "sync.json"
    assert LocalMarker.at(file) is None
    file.write_text("{")
    assert LocalMarker.at(file) is None
    marker = LocalMarker(copy_id="c", generation=2)
    file.write_text(marker.text)
    assert LocalMarker.at(file) == marker
