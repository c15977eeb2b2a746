"""What a live table shows of a sweep, as lines of text that fit a terminal."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TextIO

from ..errors import first_line
from ..trials import Snapshot
from .screen import chore_line, table

if TYPE_CHECKING:
    from rich.console import RenderableType

_log = logging.getLogger(__name__)

_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
#: The spinner turns so often in a second.
_TURNS_PER_S = 2


class Frames:
    """Draws the state of a sweep, in lines that fit the terminal.

    Args:
        look: returns the state to draw; None while there is none.
        stream: the terminal.
    """

    def __init__(self, look: Callable[[], Snapshot | None], stream: TextIO) -> None:
        from rich.console import Console

        self._look, self._console = look, Console(file=stream, highlight=False)
        self._last: list[str] = []
        self._has_failed = False
        self._began_s = time.monotonic()

    @property
    def size(self) -> tuple[int, int]:
        """Columns and lines of the terminal."""
        return self._console.size

    def next(self) -> list[str]:
        """The lines of the state now; the last ones again where drawing fails."""
        console = self._console
        try:
            snapshot = self._look()
            # Space for the terminal's own ^C; a line as long as the window may be wrapped.
            width, height = console.width - 4, console.height
            with console.capture() as capture:
                console.print(self._drawn(snapshot, width, height), width=width)
            self._last = capture.get().splitlines()[: height - 1]
        except Exception as error:  # noqa: BLE001  a table that fails ends no sweep
            if not self._has_failed:
                self._has_failed = True
                _log.warning(
                    "the table was not drawn: %s: %s; the sweep goes on",
                    type(error).__name__,
                    first_line(error),
                )
            _log.info("the table was not drawn", exc_info=True)
        return self._last

    def _drawn(self, snapshot: Snapshot | None, width: int, height: int) -> RenderableType:
        from rich.console import Group
        from rich.text import Text

        now_s = time.monotonic()
        if snapshot is None:
            doing = [("preparing the study and the MLflow store", self._began_s)]
        elif not (snapshot.running or any(snapshot.counts.values())):
            doing = [("waiting for the first kernel", self._began_s)]
        else:
            doing = [(chore_line(chore), chore.since_s) for chore in snapshot.doing]
        mark = _SPINNER[int(now_s * _TURNS_PER_S) % len(_SPINNER)]
        lines = [
            Text(f"{mark} {text} · {now_s - since_s:.0f}s", no_wrap=True, overflow="ellipsis")
            for text, since_s in doing
        ]
        # A third of the lines stays for what the last trials have come to.
        room = height * 2 // 3 - len(lines)
        return Group(*([] if snapshot is None else [table(snapshot, width, room)]), *lines)
