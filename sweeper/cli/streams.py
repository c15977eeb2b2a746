"""Standard output and error that raise nothing when their reader goes away or the disk is full."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

#: The errors when the reader has gone: the other end of a pipe, or the terminal.
_NO_READER = (errno.EPIPE, errno.EIO, errno.ECONNRESET)


class Output:
    """A text stream that drops all text after its first failed write.

    Attributes:
        fault: why the write failed; None without a failure, and where the reader has gone, which
            is no fault.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lock = threading.RLock()
        self._is_lost = False
        self.fault: str | None = None

    def write(self, text: str) -> int:
        """Write a text, or drop it.

        Returns:
            the number of its characters.
        """
        if not self._is_lost:
            try:
                self._stream.write(self._encodable(text))
            except (OSError, ValueError) as error:
                self._lose(error)
        return len(text)

    def flush(self) -> None:
        """Flush the stream, unless it has failed."""
        if not self._is_lost:
            try:
                self._stream.flush()
            except (OSError, ValueError) as error:
                self._lose(error)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def _encodable(self, text: str) -> str:
        """The text with escapes for what the stream's encoding lacks."""
        encoding = getattr(self._stream, "encoding", None) or "utf-8"
        return text.encode(encoding, "backslashreplace").decode(encoding)

    def _lose(self, error: OSError | ValueError) -> None:
        with self._lock:
            if self._is_lost:
                return
            self._is_lost = True
            if getattr(error, "errno", None) not in _NO_READER:
                self.fault = getattr(error, "strerror", None) or str(error)
            # Discard the stream's buffer, or Python fails when it flushes the buffer at its end.
            with contextlib.suppress(OSError, ValueError):
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, self._stream.fileno())
                os.close(nowhere)


@contextmanager
def unbreakable() -> Iterator[tuple[Output, Output]]:
    """Replace standard output and error by `Output` while the block runs.

    Yields:
        both of them.
    """
    _fill_closed()
    before = sys.stdout, sys.stderr
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        outputs = Output(before[0] or nowhere), Output(before[1] or nowhere)
        # An `Output` has all that a text stream has, by `__getattr__`.
        sys.stdout, sys.stderr = outputs
        try:
            yield outputs
        finally:
            for output in outputs:
                output.flush()
            sys.stdout, sys.stderr = before


def _fill_closed() -> None:
    """Open the null device for closed standard streams, or later files would get their numbers."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free
