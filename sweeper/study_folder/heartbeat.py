"""A file that a process touches as long as it lives, for machines that cannot see its locks.

File locks work between processes of one machine, and on many network disks not between machines.
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

#: How often the file is touched, and the age up to which its process counts as alive.
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
        """Stop touching the file."""
        self._closing.set()
        self._thread.join()

    def _work(self) -> None:
        while not self._closing.wait(self._every_s):
            try:
                os.utime(self._file)
            except OSError as error:  # the disk may come back before `ALIVE_S` is over
                _log.info("%s: %s", self._file, error)


def elsewhere_s(file: Path) -> float | None:
    """How many seconds ago a live process on another machine touched its file.

    Returns:
        None when the file is gone or older than `ALIVE_S`, or when its process runs on this
        machine, where file locks are more exact.

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
    """How many seconds ago a file was touched; None when that cannot be determined.

    The clock is that of the disk, which all machines that use the disk share: the time of a file
    that is touched now, minus the time of `file`.
    """
    with suppress(OSError), tempfile.TemporaryFile(dir=file.parent) as now, open(file) as touched:
        os.utime(now.fileno())
        # Of an open file, because a network disk's client caches the times of closed files.
        return os.fstat(now.fileno()).st_mtime - os.fstat(touched.fileno()).st_mtime
    return None


def this_machine() -> str:
    """An id of this machine; processes with the same id see each other's file locks."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return socket.gethostname()
