"""Standard output and error that raise nothing when their reader goes away or the disk is full.

And lines that fit the window of a terminal.
"""

from __future__ import annotations

import errno
import io
import os
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator
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
        self.fault: str | None = None
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")

    def write(self, text: str) -> int:
        """Write a text, or drop it; returns the number of its characters."""
        try:
            self._stream.write(text)
        except OSError as error:
            self._lose(error)
        return len(text)

    def flush(self) -> None:
        """Flush the stream."""
        try:
            self._stream.flush()
        except OSError as error:
            self._lose(error)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def _lose(self, error: OSError) -> None:
        """Send all that follows to nowhere, what the stream has buffered included."""
        if error.errno not in _NO_READER:
            self.fault = error.strerror
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._stream.fileno())
        os.close(nowhere)


@contextmanager
def unbreakable() -> Iterator[Output]:
    """Replace standard output and error by `Output` while the block runs; yields the first."""
    before = sys.stdout, sys.stderr
    # Null devices take the numbers of closed streams, or later files would get these.
    _, stdout, stderr = (stream or open(os.devnull, "w") for stream in (sys.stdin, *before))  # noqa: SIM115
    outputs = Output(stdout), Output(stderr)
    # An `Output` has all that a text stream has, by `__getattr__`.
    sys.stdout, sys.stderr = outputs
    try:
        yield outputs[0]
    finally:
        for output in outputs:
            output.flush()
        sys.stdout, sys.stderr = before


def can_redraw(stream: TextIO) -> bool:
    """Whether a stream is a terminal in which lines can be replaced."""
    return stream.isatty() and os.environ.get("TERM") not in (None, "", "dumb", "unknown")


def folded(lines: Iterable[str], width: int) -> list[str]:
    """Lines, each wrapped between words where it is longer than the window."""
    return [part for text in lines for line in text.split("\n") for part in wrapped(line, width)]


def wrapped(line: str, width: int) -> list[str]:
    """A line, wrapped between words where it is longer than the window; a clock stands apart."""
    if len(line) <= width:
        return [line]
    clock = re.match(r"\[.{6}\] |", line)
    return textwrap.wrap(
        line,
        width,
        subsequent_indent=" " * (clock.end() if clock else 0) or "  ",
        break_long_words=False,
        break_on_hyphens=False,
        replace_whitespace=False,
    )
