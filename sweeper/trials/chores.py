"""What a sweep does beside its trials, for people who wait for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum


class ChoreKind(StrEnum):
    """What is done."""

    PROVING = "proving"
    ENDING = "ending"
    TRACKING = "tracking"
    IMPORTANCES = "importances"
    PAGE = "page"


@dataclass(frozen=True, slots=True, kw_only=True)
class Chore:
    """Something that a sweep does now, and that people wait for.

    Attributes:
        since_s: when it began, on the monotonic clock.
        expected_s: the predicted duration; None where nothing is known of it.
        progress: how much is done, of how much; None for what has no parts.
    """

    kind: ChoreKind
    since_s: float
    expected_s: float | None = None
    progress: tuple[int, int] | None = None


class Chores:
    """The chores of a sweep that are being done. Safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._current: tuple[Callable[[], Chore | None], ...] = ()

    def now(self) -> tuple[Chore, ...]:
        """What is being done, the longest first."""
        found = (look() for look in self._current)
        return tuple(chore for chore in found if chore is not None)

    @contextmanager
    def during(
        self, kind: ChoreKind, progress: Callable[[], tuple[int, int]] | None = None
    ) -> Iterator[None]:
        """Have a chore among those that are being done, while the block runs.

        Args:
            progress: returns how much is done, of how much.
        """
        since_s = time.monotonic()

        def look() -> Chore:
            parts = None if progress is None else progress()
            return Chore(kind=kind, since_s=since_s, progress=parts)

        with self.watched(look):
            yield

    @contextmanager
    def watched(self, look: Callable[[], Chore | None]) -> Iterator[None]:
        """Have what a function returns among the chores, while the block runs.

        Args:
            look: returns the chore that is being done now; None while none is.
        """
        with self._lock:
            self._current = (*self._current, look)
        try:
            yield
        finally:
            with self._lock:
                self._current = tuple(other for other in self._current if other is not look)
