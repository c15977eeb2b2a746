"""What an atomic write leaves behind, whether it succeeds or fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweeper.files import write_atomically


def test_a_failed_write_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    write_atomically(path, "before")
    with pytest.raises(UnicodeEncodeError):
        write_atomically(path, "half \ud800")
    assert path.read_text() == "before\n"
    assert list(tmp_path.iterdir()) == [path]


def test_a_failed_rename_leaves_no_temporary_file(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="folder"):
        write_atomically(tmp_path / "folder", "text")
    assert [entry.name for entry in tmp_path.iterdir()] == ["folder"]


def test_a_written_file_ends_with_one_newline(tmp_path: Path) -> None:
    for text in ("a", "a\n"):
        write_atomically(tmp_path / "x", text)
        assert (tmp_path / "x").read_bytes() == b"a\n"
