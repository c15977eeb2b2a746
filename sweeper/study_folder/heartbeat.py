"""Check whether a sweep on another machine is alive, by the age of a file that it touches.

File locks work between processes of one machine, but on many network disks not between machines.
"""

from __future__ import annotations

import json
import os
import socket
import tempfile
from pathlib import Path

#: A sweep touches its file every `TOUCH_S` seconds. After each touch, it counts as alive for
#: `ALIVE_S` seconds (chosen, not measured).
TOUCH_S, ALIVE_S = 10.0, 60.0

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def elsewhere_s(file: Path) -> float | None:
    """Return how many seconds ago a live process on another machine touched its file.

    The age is measured by the disk's clock, which all machines that use the disk share: the time of
    a file that is touched now, minus the time of `file`.

    Args:
        file: JSON file that the process touches at intervals. It states the `machine` on which the
            process runs.

    Returns:
        The age in seconds. None if the file cannot be read or is older than `ALIVE_S`, or if its
        process runs on this machine, where file locks are more reliable.
    """
    try:
        machine = json.loads(file.read_text(encoding="utf-8")).get("machine")
        if machine in (None, this_machine()):
            return None
        with tempfile.TemporaryFile(dir=file.parent) as now, open(file) as touched:
            os.utime(now.fileno())
            # Both files are kept open, because clients of network disks cache the times of closed
            # files.
            age_s = os.fstat(now.fileno()).st_mtime - os.fstat(touched.fileno()).st_mtime
    except (OSError, ValueError, AttributeError):
        return None
    return max(0.0, age_s) if age_s < ALIVE_S else None


def this_machine() -> str:
    """Return an id of this machine. Processes with the same id see each other's file locks."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return socket.gethostname()
