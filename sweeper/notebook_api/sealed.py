"""Files that end with a mark and a digest of their content, by which incomplete ones are found."""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

#: The mark at the end of each file; the digest of all bytes before the mark follows it.
_SEAL = b"\nsweeper"
_DIGEST_BYTES = 32
_CHUNK_BYTES = 1 << 20


class SealedFile:
    """A file for writing that gets its mark and digest when it is closed."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._hash = hashlib.blake2b(digest_size=_DIGEST_BYTES)
        self._error: OSError | None = None

    def write(self, data: Any) -> int:
        """Write bytes or any other buffer; return their number.

        An OSError is raised by `close` only: torch calls this method from C++ and would turn an
        error here into one that does not name the full disk.
        """
        if self._error is None:
            try:
                self._file.write(data)
            except OSError as error:
                self._error = error
            self._hash.update(data)
        return memoryview(data).nbytes

    def flush(self) -> None:
        """Do nothing; torch requires the method."""

    def close(self) -> None:
        """Write the mark and the digest; the underlying file stays open.

        Raises:
            OSError: this or an earlier write has failed.
        """
        if self._error is not None:
            raise self._error
        self._file.write(_SEAL + self._hash.digest())
        self._file.flush()


def is_sealed(path: Path) -> bool:
    """Whether a file was written to its end; its content is not checked."""
    with suppress(OSError), path.open("rb") as file:
        file.seek(-len(_SEAL) - _DIGEST_BYTES, os.SEEK_END)
        return file.read(len(_SEAL)) == _SEAL
    return False


def is_intact(file: IO[bytes]) -> bool:
    """Whether a file is complete and unchanged; its position is 0 afterwards."""
    left = file.seek(0, os.SEEK_END) - len(_SEAL) - _DIGEST_BYTES
    file.seek(0)
    found = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    while left > 0 and (chunk := file.read(min(left, _CHUNK_BYTES))):
        found.update(chunk)
        left -= len(chunk)
    is_whole = left == 0 and file.read() == _SEAL + found.digest()
    file.seek(0)
    return is_whole
