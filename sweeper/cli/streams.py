"""Standard output and error that never end a command: a reader may go away, a disk may be full."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

#: The reader has gone: the other end of a pipe, or the terminal.
_NO_READER = (errno.EPIPE, errno.EIO, errno.ECONNRESET)


class Output:
    """A text stream that drops what cannot be written, from its first failure on.

    Attributes:
        fault: why the stream takes no more, in words; None while it does, and where its reader has
            gone, which is the reader's wish.
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
        """Have everything written."""
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
            # What the stream still holds goes nowhere, or Python fails at it when it ends.
            with contextlib.suppress(OSError, ValueError):
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, self._stream.fileno())
                os.close(nowhere)


@contextmanager
def unbreakable() -> Iterator[tuple[Output, Output]]:
    """Have standard output and error drop what they cannot write, while the block runs.

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
    """Have nothing that is opened later get the number of a standard stream that was closed."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free
