"""Repeat a call in a thread, such as the drawing of the live table."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

#: Longest wait at the end for a call that has begun, in seconds (chosen, not measured).
_MAX_CALL_S = 10.0


@contextmanager
def repeated(call: Callable[[], None], every_s: float, *, name: str) -> Iterator[threading.Thread]:
    """Call a function again and again in a thread, while the block runs.

    Args:
        call: The function. It must not raise.
        every_s: Seconds between two calls.
        name: Name of the thread.

    Yields:
        The thread. It is alive after the block if a call takes longer than `_MAX_CALL_S`.
    """
    has_ended = threading.Event()

    def repeat() -> None:
        while not has_ended.wait(every_s):
            call()

    # The thread runs in a copy of this context, so that ipykernel shows its outputs below the cell
    # that calls this function.
    context = contextvars.copy_context()
    thread = threading.Thread(target=context.run, args=[repeat], name=name, daemon=True)
    thread.start()
    try:
        yield thread
    finally:
        has_ended.set()
        thread.join(_MAX_CALL_S)
