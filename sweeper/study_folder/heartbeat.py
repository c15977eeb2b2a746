"""A file that is touched as long as a process lives, for who cannot see its locks.

File locks reach all processes of one machine, and on many network disks no further.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import tempfile
import threading
from contextlib import suppress
from pathlib import Path

#: How often the file is touched, and how old it may be while it counts as alive.
TOUCH_S, ALIVE_S = 10.0, 60.0

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")

_log = logging.getLogger(__name__)


class Heartbeat:
    """Touches a file every few seconds, on a thread of its own, until it is closed."""

    def __init__(self, file: Path, *, every_s: float = TOUCH_S) -> None:
        self._file = file
        self._every_s = every_s
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._work, name="heartbeat", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Touch it no more."""
        self._closing.set()
        self._thread.join()

    def _work(self) -> None:
        while not self._closing.wait(self._every_s):
            try:
                os.utime(self._file)
            except OSError as error:  # the disk may come back; who reads it waits for a while
                _log.info("%s: %s", self._file, error)


def elsewhere_s(file: Path) -> float | None:
    """How long ago a process on another machine has touched its file, in seconds.

    None when it has ended, or has not for so long that it counts as dead, or runs on this machine,
    where its locks say more.

    Args:
        file: JSON with the `machine` that wrote it.
    """
    try:
        machine = json.loads(file.read_text(encoding="utf-8")).get("machine")
    except (OSError, ValueError, AttributeError):
        return None
    if machine in (None, this_machine()):
        return None
    age = age_s(file)
    return max(0.0, age) if age is not None and age < ALIVE_S else None


def age_s(file: Path) -> float | None:
    """How long ago a file was touched, in seconds; None when that cannot be known.

    By the clock of the disk, which all machines that use it have in common: the time of a file that
    is touched now, less the time of this one.
    """
    with suppress(OSError), tempfile.TemporaryFile(dir=file.parent) as now, open(file) as touched:
        os.utime(now.fileno())
        # Of an open file, for a network disk answers other questions from memory.
        return os.fstat(now.fileno()).st_mtime - os.fstat(touched.fileno()).st_mtime
    return None


def this_machine() -> str:
    """Tells this machine from others: processes with the same name here share their file locks."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return socket.gethostname()
