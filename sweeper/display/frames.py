"""Draw the live table of a sweep as lines of text that fit a terminal."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO

from ..errors import first_line
from ..trials import Snapshot
from .screen import table

if TYPE_CHECKING:
    from rich.console import RenderableType

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Frame:
    """One drawing of the live table, as lines for a terminal with a certain number of columns."""

    columns: int
    lines: Sequence[str] = ()


class Frames:
    """Draws the state of a sweep in lines that fit the terminal.

    Args:
        look: Function that returns the sweep's state to draw, or None while there is none.
        stream: Terminal on which the lines will be shown.
    """

    def __init__(self, look: Callable[[], Snapshot | None], stream: TextIO) -> None:
        from rich.console import Console

        self._look, self._console = look, Console(file=stream, highlight=False)
        self._last = Frame(columns=self._console.width)
        self._has_failed = False
        self._began_s = time.monotonic()

    @property
    def size(self) -> tuple[int, int]:
        """Number of columns and of lines of the terminal."""
        return self._console.size

    def next(self) -> Frame:
        """Draw the state now. If drawing fails, return the last frame again."""
        console = self._console
        try:
            snapshot = self._look()
            columns, height = console.size
            width = columns - 1  # Some terminals wrap a line of full length.
            with console.capture() as capture:
                console.print(self._drawn(snapshot, width, height), width=width)
            lines = capture.get().splitlines()[: height - 1]
            self._last = Frame(columns=columns, lines=lines)
        except Exception as error:  # noqa: BLE001  An error in the table must not end the sweep.
            if not self._has_failed:
                self._has_failed = True
                _log.warning(
                    "the table was not drawn: %s: %s; the sweep continues",
                    type(error).__name__,
                    first_line(error),
                )
            _log.info("the table was not drawn", exc_info=True)
        return self._last

    def _drawn(self, snapshot: Snapshot | None, width: int, height: int) -> RenderableType:
        from rich.console import Group

        parts: list[RenderableType] = []
        if snapshot is not None:
            # The table gets at most two thirds of the terminal's lines, so that the results of the
            # last trials stay visible above it.
            parts.append(table(snapshot, width, height * 2 // 3))
        if snapshot is None or not (snapshot.running or any(snapshot.counts.values())):
            waited_s = time.monotonic() - self._began_s
            parts.append(
                f"preparing the study, the MLflow store and the first kernel · {waited_s:.0f}s"
            )
        return Group(*parts)
