"""Files that end with a seal and the digest of their content: half of one is found out."""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

#: Ends each file, before the digest of all that stands in front of it.
_SEAL = b"\nsweeper"
_DIGEST_BYTES = 32
_CHUNK_BYTES = 1 << 20


class SealedFile:
    """A file to be written to, whose last bytes are written when it is closed."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._hash = hashlib.blake2b(digest_size=_DIGEST_BYTES)
        self._error: OSError | None = None

    def write(self, data: Any) -> int:
        """Write bytes, or anything that has a buffer; returns how many.

        torch writes from C++, which would make a riddle of a full disk: the error waits.
        """
        if self._error is None:
            try:
                self._file.write(data)
            except OSError as error:
                self._error = error
            self._hash.update(data)
        return memoryview(data).nbytes

    def flush(self) -> None:
        """Asked for by torch."""

    def close(self) -> None:
        """Write the seal; the file below stays open.

        Raises:
            OSError: of this or an earlier write.
        """
        if self._error is not None:
            raise self._error
        self._file.write(_SEAL + self._hash.digest())
        self._file.flush()


def is_sealed(path: Path) -> bool:
    """Whether a file was written to its end; its content is not looked at."""
    with suppress(OSError), path.open("rb") as file:
        file.seek(-len(_SEAL) - _DIGEST_BYTES, os.SEEK_END)
        return file.read(len(_SEAL)) == _SEAL
    return False


def is_untouched(file: IO[bytes]) -> bool:
    """Whether all of a file is there, as it was written; leaves it at its beginning."""
    left = file.seek(0, os.SEEK_END) - len(_SEAL) - _DIGEST_BYTES
    file.seek(0)
    found = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    while left > 0 and (chunk := file.read(min(left, _CHUNK_BYTES))):
        found.update(chunk)
        left -= len(chunk)
    is_whole = left == 0 and file.read() == _SEAL + found.digest()
    file.seek(0)
    return is_whole
