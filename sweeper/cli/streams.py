"""Make standard output and error safe to write, and wrap lines to the width of a terminal.

A write does not raise if the reader has closed the stream or the disk is full.
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

#: Errors of a write after the reader (the other end of a pipe, or the terminal) has gone away.
_NO_READER = (errno.EPIPE, errno.EIO, errno.ECONNRESET)
#: Environment variable that jupyter_client sets in each kernel. Terminals in JupyterLab do not have
#: it.
_OF_KERNELS = "JPY_PARENT_PID"

#: `_TOGETHER` finds text that must stay in one row when a line is wrapped. While `textwrap` wraps
#: the line, `_FIXED_SPACE` replaces the spaces in such text, so that no row ends there.
_TOGETHER, _FIXED_SPACE = re.compile(r"`[^`]*`|\d %|\S+ ± \S+"), "\u00a0"


class Output:
    """A text stream that drops all text after its first failed write.

    Attributes:
        fault: Why a write failed. None if no write failed, or if the reader has closed the stream,
            which is no fault.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.fault: str | None = None
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")

    def write(self, text: str) -> int:
        """Write a text, or drop it. Return the number of its characters."""
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
        """Redirect all further text to the null device, including text in the stream's buffer.

        Store the reason in `fault`, unless the reader has closed the stream.

        Args:
            error: Error of the write that has failed.
        """
        if error.errno not in _NO_READER:
            self.fault = error.strerror
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._stream.fileno())
        os.close(nowhere)


def _or_null(stream: TextIO | None) -> TextIO:
    return open(os.devnull, "w") if stream is None else stream


@contextmanager
def unbreakable() -> Iterator[Output]:
    """Replace standard output and error by `Output` while the block runs.

    Yields:
        The `Output` that replaces standard output.
    """
    before = sys.stdout, sys.stderr
    # If a stream is closed, a null device gets the stream's file descriptor. Otherwise the next
    # file that is opened would get the descriptor, and with it the text that is printed.
    _, stdout, stderr = [_or_null(stream) for stream in (sys.stdin, sys.stdout, sys.stderr)]
    outputs = Output(stdout), Output(stderr)
    # Through `__getattr__`, an `Output` has all attributes of a text stream.
    sys.stdout, sys.stderr = outputs
    try:
        yield outputs[0]
    finally:
        for output in outputs:
            output.flush()
        sys.stdout, sys.stderr = before


def is_terminal(stream: TextIO) -> bool:
    """Return whether a stream is a terminal that a person uses.

    If a notebook's cell runs a command with `!`, IPython gives the command a terminal, for which
    this is False: nobody can type into it, and the cell keeps each line that was overwritten.
    """
    return stream.isatty() and _OF_KERNELS not in os.environ


def can_redraw(stream: TextIO) -> bool:
    """Return whether a stream is a terminal in which lines can be overwritten."""
    return is_terminal(stream) and os.environ.get("TERM") not in (None, "", "dumb", "unknown")


def folded(lines: Iterable[str], width: int) -> list[str]:
    """Wrap lines between words to the width of a window. Return the rows of all lines."""
    rows = []
    for text in lines:
        for line in text.split("\n"):
            rows += wrapped(line, width)
    return rows


def wrapped(line: str, width: int) -> list[str]:
    """Wrap a line between words to the width of a window. Return its rows.

    If the line begins with a time such as `[ 12.0s] `, the other rows are indented by the width of
    this time. Otherwise, they are indented by two spaces. A command in backticks, a percentage, and
    a number with its `±` stay in one row.
    """
    if len(line) <= width:
        return [line]
    clock = re.match(r"\[.{6}\] |", line)
    rows = textwrap.wrap(
        _TOGETHER.sub(lambda match: match[0].replace(" ", _FIXED_SPACE), line),
        width,
        subsequent_indent=" " * (clock.end() if clock else 0) or "  ",
        break_long_words=False,
        break_on_hyphens=False,
        replace_whitespace=False,
    )
    return [row.replace(_FIXED_SPACE, " ") for row in rows]
