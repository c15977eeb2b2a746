"""Have the sampler make its next proposal while trials run: no slot waits for it."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable

_log = logging.getLogger(__name__)


class ProposalPrefetcher:
    """Calls `prepare` on a thread of its own after each request.

    Args:
        prepare: makes a proposal. What it raises is logged: the slot that asks next calls the
            sampler itself and meets the same error.
    """

    def __init__(self, prepare: Callable[[], None]) -> None:
        self._prepare = prepare
        # A queue and no event: a request that comes while another is served must not be lost.
        self._requests: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._is_closing = False
        self._thread = threading.Thread(target=self._work, name="proposals", daemon=True)
        self._thread.start()

    def request(self) -> None:
        """Have a proposal made, as the last one was taken; returns at once."""
        self._requests.put(True)

    def close(self) -> None:
        """End the thread."""
        self._is_closing = True
        self._requests.put(False)
        self._thread.join()

    def _work(self) -> None:
        while self._requests.get() and not self._is_closing:
            try:
                self._prepare()
            except Exception:  # noqa: BLE001  see the class
                _log.info("no proposal was made ahead", exc_info=True)
