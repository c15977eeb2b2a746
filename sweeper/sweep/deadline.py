"""Stop a sweep when its time limit or its study's budget runs out."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def stopped_after(limit_s: float | None, stop: Callable[[], object]) -> Iterator[None]:
    """Call `stop` if the block is still running after a time. Call it at once if no time is left.

    Args:
        limit_s: Time limit in seconds. None for no limit.
        stop: Stops the sweep.
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
