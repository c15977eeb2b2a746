"""Draw the live table of a sweep at the bottom of a terminal, below the printed lines.

rich's `Live` is not used. After the window has become narrower, it leaves rows of the old table on
the screen, and an exception during a drawing ends it for good.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TextIO

from ..display.frames import Frame, Frames
from ..display.repeating import repeated
from ..trials import Snapshot
from .streams import folded

#: The table is drawn every `_INTERVAL_S` seconds. After a printed line, it is drawn within
#: `_SOON_S` seconds, because a line about a trial's end appears while the table still shows the
#: trial as running.
_INTERVAL_S, _SOON_S = 0.5, 0.05
#: This number of printed lines is kept, to be printed again when the window has become narrower
#: (chosen, not measured). A tall window has about this number of lines.
_MOST_ABOVE = 200
#: Terminal codes that clear the window up to its last character. If the window is cleared in
#: another way, tmux keeps the old lines in its history.
_CLEAR_WINDOW = "\x1b[999;999H\x1b[1J\x1b[H"
_HIDE_CURSOR, _SHOW_CURSOR, _CLEAR_LINE, _CLEAR_BELOW = "\x1b[?25l", "\x1b[?25h", "\x1b[K", "\x1b[J"


@contextmanager
def live_table(look: Callable[[], Snapshot | None], stream: TextIO) -> Iterator[None]:
    """Redraw the table while the block runs. Lines that are printed to stderr appear above it.

    Args:
        look: Returns the sweep's state to draw, or None while there is none.
        stream: Terminal for which `can_redraw` is true.
    """
    area = _Area(Frames(look, stream), stream)

    def redraw() -> None:
        area.has_printed.wait(_INTERVAL_S)
        area.has_printed.clear()
        area.draw()

    before, sys.stderr = sys.stderr, area  # `_Area` has all attributes of a stream.
    try:
        area.draw()
        with repeated(redraw, _SOON_S, name="table"):
            try:
                yield
            finally:
                area.has_printed.set()
    finally:
        sys.stderr = before
        area.close()


class _Area:
    """The last rows of a terminal, which show the live table and are redrawn.

    The object replaces `sys.stderr`, and prints lines above these rows.

    All methods can be called from any thread. The lock is reentrant, because a signal handler may
    print.

    Attributes:
        has_printed: Event that is set by each printed line.

    Args:
        frames: Draws the table.
        stream: Terminal.
    """

    def __init__(self, frames: Frames, stream: TextIO) -> None:
        self._frames, self._stream = frames, stream
        self._lock = threading.RLock()
        self._frame = Frame(columns=frames.size[0])
        self._above: deque[str] = deque(maxlen=_MOST_ABOVE)
        self._begun_line = ""
        self.has_printed = threading.Event()

    def draw(self) -> None:
        """Draw the table as it is now, in place of its last state."""
        # Do not hold the lock during `next`, which may log a warning: another thread that is
        # logging may wait for the lock, and the two threads would wait for each other.
        frame = self._frames.next()
        with self._lock:
            self._put([], frame)

    def write(self, text: str) -> int:
        """Print the complete lines of a text above the frame (the drawn table).

        A line that is not complete is kept, and printed when the rest of it is written.
        """
        with self._lock:
            *lines, self._begun_line = (self._begun_line + text).split("\n")
            if lines:
                self._put(lines, self._frame)
                self.has_printed.set()
        return len(text)

    def flush(self) -> None:
        """Do nothing, because complete lines are already on the screen."""

    def close(self) -> None:
        """Erase the drawn table, so that only the printed lines remain."""
        with self._lock:
            rest = [self._begun_line] if self._begun_line else []
            self._put(rest, Frame(columns=self._frame.columns))
            self._stream.write(_SHOW_CURSOR)
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def _put(self, lines: Sequence[str], frame: Frame) -> None:
        """Replace the frame (the drawn table) by another one, and print lines above it."""
        columns, height = self._frames.size
        if frame.columns > columns:  # The frame was drawn before the window became narrower.
            frame = Frame(columns=columns)
        self._above.extend(lines)
        if columns < self._frame.columns:
            # The terminal has wrapped or cut the old frame's rows, and their number is unknown. So
            # the whole window is written again.
            begin, lines = _CLEAR_WINDOW, self._last_lines(columns, height - len(frame.lines) - 1)
        else:
            begin = "\r" + (f"\x1b[{len(self._frame.lines)}A" if self._frame.lines else "")
            lines = folded(lines, columns)
        rows = "".join(f"{row}{_CLEAR_LINE}\n" for row in (*lines, *frame.lines))
        self._stream.write(f"{_HIDE_CURSOR}{begin}{rows}{_CLEAR_BELOW}")
        self._stream.flush()
        self._frame = replace(frame, columns=columns)

    def _last_lines(self, width: int, room: int) -> list[str]:
        """Wrap the printed lines to the width of the window. Return the last rows.

        Args:
            width: Number of columns of the window.
            room: Largest number of rows to return.
        """
        rows = folded(self._above, width)
        return rows[-room:] if room > 0 else []
