"""Whether a sweep on another machine is alive: it touches a file as long as it lives.

File locks work between processes of one machine, and on many network disks not between machines.
"""

from __future__ import annotations

import json
import os
import socket
import tempfile
from pathlib import Path

#: How often the file is touched, and the age up to which its process counts as alive.
TOUCH_S, ALIVE_S = 10.0, 60.0

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def elsewhere_s(file: Path) -> float | None:
    """How many seconds ago a live process on another machine touched its file.

    The clock is that of the disk, which all machines that use the disk share: the time of a file
    that is touched now, minus the time of `file`.

    Returns:
        None when the file is gone or older than `ALIVE_S`, or when its process runs on this
        machine, where file locks are more exact.

    Args:
        file: JSON with the `machine` that wrote it.
    """
    try:
        machine = json.loads(file.read_text(encoding="utf-8")).get("machine")
        if machine in (None, this_machine()):
            return None
        with tempfile.TemporaryFile(dir=file.parent) as now, open(file) as touched:
            os.utime(now.fileno())
            # Of an open file, because a network disk's client caches the times of closed files.
            age_s = os.fstat(now.fileno()).st_mtime - os.fstat(touched.fileno()).st_mtime
    except (OSError, ValueError, AttributeError):
        return None
    return max(0.0, age_s) if age_s < ALIVE_S else None


def this_machine() -> str:
    """An id of this machine; processes with the same id see each other's file locks."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return socket.gethostname()
