"""Files that end with a digest: incomplete and changed ones are found."""

from __future__ import annotations

import io
from pathlib import Path
from typing import IO

import pytest

from sweeper.notebook_api.sealed import SealedFile, is_intact, is_sealed


def write(path: Path, content: bytes) -> bytes:
    with path.open("wb") as file:
        sealed = SealedFile(file)
        assert sealed.write(content) == len(content)
        sealed.close()
    return path.read_bytes()


def is_file_intact(path: Path) -> bool:
    with path.open("rb") as file:
        intact = is_intact(file)
        assert file.tell() == 0
    return intact


@pytest.mark.parametrize("content", [b"", b"weights", bytes(3 << 20)])
def test_a_closed_file_is_sealed_and_intact(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x"
    assert write(path, content).startswith(content)
    assert is_sealed(path)
    assert is_file_intact(path)


def test_any_cut_of_a_file_is_found(tmp_path: Path) -> None:
    path = tmp_path / "x"
    whole = write(path, b"weights")
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        assert not is_sealed(path)
        assert not is_file_intact(path)


def test_any_changed_byte_is_found_though_the_file_is_sealed(tmp_path: Path) -> None:
    path = tmp_path / "x"
    whole = write(path, b"weights")
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        assert not is_file_intact(path)
    path.write_bytes(b"W" + whole[1:])
    assert is_sealed(path)
    assert not is_sealed(tmp_path / "missing")


def test_an_error_of_a_write_is_raised_by_close() -> None:
    class FullDisk(io.BytesIO):
        def write(self, _data: object) -> int:
            raise OSError(28, "No space left on device")

    file: IO[bytes] = FullDisk()
    sealed = SealedFile(file)
    sealed.write(b"weights")
    with pytest.raises(OSError, match="No space left"):
        sealed.close()
