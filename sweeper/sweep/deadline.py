"""Stop a sweep when its time limit or its study's budget runs out."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def stopped_after(limit_s: float | None, stop: Callable[[], object]) -> Iterator[None]:
    """Call `stop` if the `with` block has not ended within a time limit.

    Args:
        limit_s: Time limit in seconds. If it is not positive, `stop` is called before the block
            begins. None for no limit.
        stop: Function that stops the sweep.
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
