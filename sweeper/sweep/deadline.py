"""A sweep's end by the clock: its time limit, or its study's budget."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def stopped_after(limit_s: float | None, stop: Callable[[], object]) -> Iterator[None]:
    """Stop a sweep if the block takes longer than a time; at once where there is none left.

    Args:
        limit_s: in seconds; None for as long as it takes.
        stop: stops the sweep.
    """
    if limit_s is None:
        yield
        return
    if limit_s <= 0:
        stop()
    timer = threading.Timer(max(limit_s, 0.0), stop)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
