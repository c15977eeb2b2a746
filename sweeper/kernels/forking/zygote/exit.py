"""How a forked kernel ends."""

from __future__ import annotations

import atexit
import gc
import io
import os


class FastExit:
    """Ends a kernel after all its exit handlers, without tearing down every module.

    The exit handler that is registered first runs last, so this one is registered before any import
    that may register another.

    Attributes:
        code: The exit code.
    """

    def __init__(self) -> None:
        self.code = 0
        self._pid = 0
        atexit.register(self._end)

    def begin(self) -> None:
        """End this process, and none that it forks."""
        self._pid = os.getpid()

    def _end(self) -> None:
        if os.getpid() != self._pid:
            return
        try:
            for file in gc.get_objects():
                if not isinstance(file, (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom)):
                    continue
                try:
                    if not file.closed:
                        file.flush()
                except Exception:  # noqa: BLE001  as at the end of an interpreter
                    continue
        finally:
            os._exit(self.code)
