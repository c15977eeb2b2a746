"""How far a long transfer is, in words: bytes, rate and the time that is left."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from ...settings.units import duration, size

#: How often a line is given out, and how soon the first one.
_EVERY_S = 5.0
_FIRST_S = 1.0

#: Called with a line for people.
OnLine = Callable[[str], None]


class Progress:
    """Counts bytes and gives out a line now and then. `add` is safe from any thread.

    Args:
        what: what is done, as in `fetching ./data`.
        total_bytes: of all of it.
        on_line: called from the thread that calls `tick`.
    """

    def __init__(self, what: str, total_bytes: int, on_line: OnLine) -> None:
        self._what = what
        self._total_bytes = total_bytes
        self._on_line = on_line
        self._done_bytes = 0
        self._lock = threading.Lock()
        self._began_s = time.monotonic()
        self._next_s = self._began_s + _FIRST_S

    def add(self, n_bytes: int) -> None:
        """Count bytes that are done."""
        with self._lock:
            self._done_bytes += n_bytes

    def tick(self) -> None:
        """Give out a line if the last one is old enough."""
        now_s = time.monotonic()
        if now_s >= self._next_s:
            self._next_s = now_s + _EVERY_S
            self._on_line(self._line(now_s - self._began_s))

    def _line(self, took_s: float) -> str:
        done, total = self._done_bytes, self._total_bytes
        rate = done / took_s
        share = f" ({100 * done // total} %)" if total else ""
        left = f", {duration((total - done) / rate)} left" if rate else ""
        return f"{self._what}: {size(done)} of {size(total)}{share}, {size(round(rate))}/s{left}"
