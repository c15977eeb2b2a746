"""Run the command line in a pseudo-terminal, and read its screen as people see it."""

from __future__ import annotations

import fcntl
import itertools
import os
import re
import struct
import termios
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pyte
from commands import Command
from studies import PATIENCE_S, until

#: Environment variables of an ordinary terminal.
_USUAL = {"TERM": "xterm-256color", "COLORTERM": "truecolor"}
#: Environment variables that would change the width or the colours.
_FOREIGN = ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "CI")
#: Seconds in which the last output of a command is read after its end.
_READ_S = 5.0


@dataclass(frozen=True, kw_only=True)
class Look:
    """A copy of the screen at one moment, as lines without trailing spaces."""

    at_s: float
    lines: tuple[str, ...]

    @property
    def text(self) -> str:
        """All visible text."""
        return "\n".join(self.lines)


class _Screen(pyte.Screen):
    """A screen that keeps the lines that have scrolled out of it.

    pyte's screen with a history takes three times as long for the same output.

    Attributes:
        above: Lines that have scrolled out of it, without trailing spaces.
    """

    def __init__(self, columns: int, rows: int) -> None:
        super().__init__(columns, rows)
        self.above: list[str] = []
        self._shown = [""] * rows

    def index(self) -> None:
        """Move the cursor down. Scroll if it is in the last line."""
        if self.margins is None and self.cursor.y == self.lines - 1:
            self.above.append(self._text(0))
        super().index()

    def shown(self) -> list[str]:
        """Return the lines in the window, without trailing spaces."""
        if len(self._shown) != self.lines:
            self._shown = [""] * self.lines
            self.dirty.update(range(self.lines))
        for row in self.dirty:
            if row < self.lines:
                self._shown[row] = self._text(row)
        self.dirty.clear()
        return list(self._shown)

    def _text(self, row: int) -> str:
        line = self.buffer[row]
        return "".join(line[column].data for column in range(self.columns)).rstrip()


class Terminal:
    """A terminal window in which one command runs.

    A line that the terminal has wrapped is several lines of the screen.

    Args:
        arguments: Words of the command line.
        columns, rows: Size of the window.
        env: Further environment variables. None removes a variable.

    Attributes:
        looks: The screen after each change.
        output: All bytes that were written.
        command: The process.
    """

    def __init__(
        self,
        *arguments: str,
        cwd: Path,
        columns: int = 80,
        rows: int = 24,
        env: Mapping[str, str | None] | None = None,
    ) -> None:
        self._screen = _Screen(columns, rows)
        self._stream = pyte.ByteStream(self._screen)
        self._lock = threading.Lock()
        self.looks: list[Look] = [Look(at_s=time.monotonic(), lines=())]
        self.output = b""
        self._ours, theirs = os.openpty()
        self._set_size(columns, rows)
        usual = {name: value for name, value in os.environ.items() if name not in _FOREIGN}
        chosen = {**usual, **_USUAL, **(env or {})}
        self.command = Command(
            *arguments,
            cwd=cwd,
            env={name: value for name, value in chosen.items() if value is not None},
            terminal=theirs,
        )
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    @property
    def now(self) -> str:
        """The visible text at this moment."""
        return self.looks[-1].text

    @property
    def lines(self) -> list[str]:
        """All lines at the end, including those that have scrolled out of the window."""
        with self._lock:
            return [*self._screen.above, *self._screen.shown()]

    @property
    def text(self) -> str:
        """All text at the end, including text that has scrolled out of the window."""
        return "\n".join(self.lines)

    def ever(self, pattern: str) -> list[str]:
        """Return the texts that match a pattern and were visible at any time, in their order."""
        found = (match[0] for look in self.looks for match in re.finditer(pattern, look.text))
        return list(dict.fromkeys(found))

    def press(self, keys: str) -> None:
        """Type keys, such as `\\r` for Enter and `\\x03` for Ctrl-C."""
        os.write(self._ours, keys.encode())

    def resize(self, columns: int, rows: int) -> None:
        """Change the size of the window. Its content is cut off, not wrapped again."""
        with self._lock:
            self._screen.resize(rows, columns)
            self._set_size(columns, rows)

    def until_seen(self, pattern: str) -> str:
        """Wait until a text that matches a pattern is visible. Return this text."""
        found: list[str] = []

        def is_seen() -> bool:
            match = re.search(pattern, self.now)
            if match is not None:
                found.append(match[0])
            assert match is not None or self.command.poll() is None, self.text
            return match is not None

        until(is_seen, f"{pattern} was not seen")
        return found[0]

    def until_new_frame(self) -> None:
        """Wait until the screen has changed twice, so that nothing of an earlier size is on it."""
        number = len(self.looks)
        until(lambda: len(self.looks) >= number + 2, "the screen does not change")

    def wait(self, timeout_s: float = PATIENCE_S) -> int:
        """Wait for the end of the command. Return its exit code."""
        code = self.command.wait(timeout_s)
        self._thread.join(_READ_S)
        return code

    def longest_silence_s(self) -> float:
        """Return the longest time without a change of the screen, in seconds."""
        pairs = itertools.pairwise(look for look in self.looks if look.text.strip())
        return max((later.at_s - earlier.at_s for earlier, later in pairs), default=0.0)

    def _set_size(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self._ours, 1 << 16)
            except OSError:  # the last process of the terminal has ended
                return
            with self._lock:
                self.output += data
                self._stream.feed(data)
                lines = tuple(self._screen.shown())
            if lines != self.looks[-1].lines:
                self.looks.append(Look(at_s=time.monotonic(), lines=lines))
