"""Close the event loop on which a thread communicates with its kernels."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from jupyter_core.utils import ensure_event_loop

#: Cancelled tasks must end within this number of seconds (chosen, not measured).
_TASKS_S = 1.0


@contextmanager
def thread_event_loop() -> Iterator[None]:
    """Close the event loop of the calling thread at the end of the block.

    Jupyter's libraries make a loop for each thread that uses them, and never close the loop. If the
    garbage collector closed a loop after its sockets, Python would write a traceback to stderr.

    If a loop is running already, as in a notebook, Jupyter's libraries use a thread of their own.
    Then nothing is closed.
    """
    try:
        yield
    finally:
        if not _is_loop_running():
            loop = ensure_event_loop()
            loop.run_until_complete(_end_tasks())
            asyncio.set_event_loop(None)
            loop.close()


def _is_loop_running() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def _end_tasks() -> None:
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    if left:
        await asyncio.wait(left, timeout=_TASKS_S)
