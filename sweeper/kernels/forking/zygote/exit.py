"""End a forked kernel quickly."""

from __future__ import annotations

import atexit
import gc
import io
import os
import weakref

_WRITERS = (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom)


class FastExit:
    """Ends a kernel after all its exit handlers, without the slow clean-up of all modules.

    Python runs exit handlers in the reverse order of their registration. So the handler of this
    class is registered before any import that may register another one, and runs last.

    Attributes:
        code: Exit code with which this process ends.
    """

    def __init__(self) -> None:
        self.code = 0
        self._pid = 0
        self._files: list[weakref.ref[object]] = []
        atexit.register(self._end)

    def note_files(self) -> None:
        """Remember the files that are open for writing, so that `_end` can flush them.

        `gc.get_objects` does not list them later, because `gc.freeze` hides the objects of this
        process from the garbage collector.
        """
        gc.unfreeze()
        self._files = [weakref.ref(one) for one in gc.get_objects() if isinstance(one, _WRITERS)]
        gc.freeze()

    def begin(self) -> None:
        """Let this process exit quickly when it ends, but not the processes that it forks."""
        self._pid = os.getpid()

    def _end(self) -> None:
        if os.getpid() != self._pid:
            return
        try:
            noted = [reference() for reference in self._files]
            for file in [*noted, *gc.get_objects()]:
                if not isinstance(file, _WRITERS):
                    continue
                try:
                    if not file.closed:
                        file.flush()
                except Exception:  # noqa: BLE001  Python also ignores failed flushes when it exits.
                    continue
        finally:
            os._exit(self.code)
