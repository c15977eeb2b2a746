"""Keep track of the work of a sweep other than its trials, so that users see why they wait."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum


class ChoreKind(StrEnum):
    """Kind of work that a sweep does in addition to running trials, such as writing the page."""

    PROVING = "proving"
    ENDING = "ending"
    TRACKING = "tracking"
    IMPORTANCES = "importances"
    PAGE = "page"


@dataclass(frozen=True, slots=True, kw_only=True)
class Chore:
    """Work that a sweep does now in addition to its trials, and for which users wait.

    Attributes:
        kind: Kind of the work.
        since_s: Time at which the work began, in seconds on the monotonic clock.
        expected_s: Predicted duration in seconds. None if it cannot be predicted.
        progress: Number of parts that are done, and number of all parts. None if the work has no
            parts.
    """

    kind: ChoreKind
    since_s: float
    expected_s: float | None = None
    progress: tuple[int, int] | None = None


class Chores:
    """The chores (work other than trials) that a sweep does now. All methods are thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._current: tuple[Callable[[], Chore | None], ...] = ()

    def now(self) -> tuple[Chore, ...]:
        """Return the chores that are under way, the oldest first."""
        found = (look() for look in self._current)
        return tuple(chore for chore in found if chore is not None)

    @contextmanager
    def during(
        self, kind: ChoreKind, progress: Callable[[], tuple[int, int]] | None = None
    ) -> Iterator[None]:
        """Add a chore to those that `now` returns, as long as the `with` block runs.

        Args:
            kind: Kind of the chore.
            progress: Function that returns the number of parts that are done, and the number of all
                parts. None if the chore has no parts.
        """
        since_s = time.monotonic()

        def look() -> Chore:
            parts = None if progress is None else progress()
            return Chore(kind=kind, since_s=since_s, progress=parts)

        with self.watched(look):
            yield

    @contextmanager
    def watched(self, look: Callable[[], Chore | None]) -> Iterator[None]:
        """Let `now` also return a function's chore, as long as the `with` block runs.

        Args:
            look: Function that each call of `now` calls. It returns the chore that is under way, or
                None if there is none.
        """
        with self._lock:
            self._current = (*self._current, look)
        try:
            yield
        finally:
            with self._lock:
                self._current = tuple(other for other in self._current if other is not look)
