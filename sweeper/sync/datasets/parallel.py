"""Do the same with many items on several threads, until one fails or the user stops."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from itertools import islice
from typing import TypeVar

_TICK_S = 0.5

T = TypeVar("T")
R = TypeVar("R")


def in_parallel(
    items: Iterable[T],
    work: Callable[[T, threading.Event], R],
    *,
    at_once: int,
    tick: Callable[[], None],
    is_stopped: Callable[[], bool],
) -> Iterator[R]:
    """Yield what `work` makes of each item, in the order in which that ends.

    When it is stopped, or a call raises, no more calls begin and the running ones are waited for.

    Args:
        work: called with an item and an event that is set when its result is not wanted any more.
        tick: called every half second from this thread.
        is_stopped: asked as often.
    """
    ending = threading.Event()
    waiting = iter(items)
    with ThreadPoolExecutor(at_once, thread_name_prefix="data") as pool:
        running: set[Future[R]] = set()
        try:
            while not is_stopped():
                for item in islice(waiting, 2 * at_once - len(running)):
                    running.add(pool.submit(work, item, ending))
                if not running:
                    return
                ended, running = wait(running, timeout=_TICK_S, return_when=FIRST_COMPLETED)
                for future in ended:
                    yield future.result()
                tick()
        finally:
            ending.set()
            for future in running:
                future.cancel()
