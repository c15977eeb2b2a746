"""Repeat a call in a thread, such as the drawing of the live table."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

#: At the end of the block, a call that has begun gets at most this number of seconds to return
#: (chosen, not measured).
_MAX_CALL_S = 10.0


@contextmanager
def repeated(call: Callable[[], None], every_s: float, *, name: str) -> Iterator[threading.Thread]:
    """Call a function again and again in a thread, while the block runs.

    Args:
        call: The function. It must not raise.
        every_s: Seconds from the end of one call to the next call.
        name: Name of the thread.

    Yields:
        The thread. It is still alive after the block if the last call has not returned within
        `_MAX_CALL_S` seconds after the end of the block.
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
