"""Manifests of data: what lies in which object, and which manifests are refused."""

from __future__ import annotations

import gzip
import json

import pytest

from sweeper.sync.datasets.manifest import (
    OBJECT_BYTES,
    DataFile,
    DataObject,
    Manifest,
    cut,
    version_of,
)

SMALL = [DataFile(f"{n:05}.png", 3_000, f"{n:064x}") for n in range(5_000)]
LARGE = DataFile("train.bin", 2 * OBJECT_BYTES + 1, "ab" * 32)


def manifest_of(files: list[DataFile]) -> Manifest:
    sizes = [sum(piece.size_bytes for piece in pieces) for pieces in cut(files)]
    return Manifest(files, [DataObject(f"{n:064x}", size) for n, size in enumerate(sizes)])


def test_small_files_share_objects_and_large_ones_are_cut() -> None:
    objects = list(cut([*SMALL, LARGE]))
    assert [len(pieces) for pieces in objects[-3:]] == [1, 1, 1]
    assert max(sum(it.size_bytes for it in pieces) for pieces in objects) <= OBJECT_BYTES
    assert len(objects) < 10


def test_a_new_file_changes_the_objects_beside_it_only() -> None:
    before = list(cut(SMALL))
    after = list(cut([SMALL[0], DataFile("00000a.png", 3_000, "cd" * 32), *SMALL[1:]]))
    names = [
        {tuple(it.file.name for it in pieces) for pieces in found} for found in (before, after)
    ]
    assert len(names[0] & names[1]) >= len(before) - 1


def test_a_manifest_is_what_was_encoded() -> None:
    made = manifest_of([*SMALL[:10], LARGE, DataFile("empty", 0, "0" * 64)])
    again = Manifest.decode(made.encode(), version=made.version)
    assert again == made
    assert [[it.file.name for it in pieces] for pieces in again.pieces()] == [
        [it.file.name for it in pieces] for pieces in cut(made.files)
    ]


@pytest.mark.parametrize("name", ["../outside", "/etc/passwd", ""])
def test_names_that_lead_out_of_the_folder_are_refused(name: str) -> None:
    made = manifest_of([DataFile(name, 3, "ab" * 32)])
    with pytest.raises(ValueError, match="leads out of its folder"):
        Manifest.decode(made.encode(), version=made.version)


def test_damaged_manifests_are_refused() -> None:
    made = manifest_of(SMALL[:3])
    for content in (b"", b"nothing", gzip.compress(json.dumps({"format": 1}).encode())):
        with pytest.raises(ValueError, match="damaged"):
            Manifest.decode(content, version=made.version)
    short = Manifest(made.files, [])
    with pytest.raises(ValueError, match="damaged"):
        Manifest.decode(short.encode(), version=made.version)
    with pytest.raises(ValueError, match="damaged"):
        Manifest.decode(made.encode(), version=version_of([LARGE]))
