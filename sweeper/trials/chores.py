"""Keep what a sweep does in addition to running trials, so that waiting users see it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum


class ChoreKind(StrEnum):
    """Kind of a chore."""

    PROVING = "proving"
    ENDING = "ending"
    TRACKING = "tracking"
    IMPORTANCES = "importances"
    PAGE = "page"


@dataclass(frozen=True, slots=True, kw_only=True)
class Chore:
    """Work that a sweep does now in addition to its trials, and for which users wait.

    Attributes:
        kind: Kind of the chore.
        since_s: Time at which it began, on the monotonic clock.
        expected_s: Predicted duration in seconds. None if it is not known.
        progress: Number of parts that are done, and number of all parts. None if it has no parts.
    """

    kind: ChoreKind
    since_s: float
    expected_s: float | None = None
    progress: tuple[int, int] | None = None


class Chores:
    """The chores that a sweep is doing now. Safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._current: tuple[Callable[[], Chore | None], ...] = ()

    def now(self) -> tuple[Chore, ...]:
        """Return the chores that are being done now. The chore that began first comes first."""
        found = (look() for look in self._current)
        return tuple(chore for chore in found if chore is not None)

    @contextmanager
    def during(
        self, kind: ChoreKind, progress: Callable[[], tuple[int, int]] | None = None
    ) -> Iterator[None]:
        """Add a chore while the block runs.

        Args:
            kind: Kind of the chore.
            progress: Returns the number of parts that are done, and the number of all parts. None
                if the chore has no parts.
        """
        since_s = time.monotonic()

        def look() -> Chore:
            parts = None if progress is None else progress()
            return Chore(kind=kind, since_s=since_s, progress=parts)

        with self.watched(look):
            yield

    @contextmanager
    def watched(self, look: Callable[[], Chore | None]) -> Iterator[None]:
        """Add the chore that a function returns, while the block runs.

        Args:
            look: Returns the chore that is being done now, or None. Called by each `now`.
        """
        with self._lock:
            self._current = (*self._current, look)
        try:
            yield
        finally:
            with self._lock:
                self._current = tuple(other for other in self._current if other is not look)
