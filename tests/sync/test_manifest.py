"""The JSON files of a remote copy: stored formats, and how bad data is refused."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from sweeper.sync.manifest import Entry, LocalMarker, Manifest

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
