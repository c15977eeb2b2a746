"""Pause processes at a moment when they lock no file.

A paused process keeps its locks. If it were paused while it writes to an SQLite file, such as the
MLflow store of the sweep, no other process could write to this file until it continues.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Collection
from pathlib import Path

# These limits are chosen, not measured.
#: Processes that still hold a lock after this many seconds are paused nevertheless. For a program
#: that locks a file for hours, as with HDF5, no better moment would come.
_LIMIT_S = 0.5
#: Seconds for which processes that hold a lock may continue before they are paused again.
_AGAIN_S = 0.01
#: Seconds between two checks whether the processes stand still.
_POLL_S = 0.001
#: States of a thread that runs no code: stopped, traced, zombie, dead.
_STILL = (b"T", b"t", b"Z", b"X")


def pause(send: Callable[[int], Collection[int]]) -> None:
    """Pause processes at a moment when none of them holds an exclusive lock of a file.

    After 0.5 s, they are paused even if one holds a lock. Where the system does not list its locks,
    as on macOS, they are paused at once.

    Args:
        send: Function that sends a signal to all these processes, and returns their ids.
    """
    end_s = time.monotonic() + _LIMIT_S
    pids = send(signal.SIGSTOP)
    while _locks_a_file(pids, end_s) and time.monotonic() < end_s:
        send(signal.SIGCONT)
        time.sleep(_AGAIN_S)
        pids = send(signal.SIGSTOP)


def _locks_a_file(pids: Collection[int], end_s: float) -> bool:
    """Return whether processes that were paused hold an exclusive lock of a file.

    Args:
        pids: Ids of the processes.
        end_s: Time on the monotonic clock. Until then, wait for the processes to stand still. A
            process that waits for the disk is paused only when the disk has answered.
    """
    while not all(map(_stands_still, pids)) and time.monotonic() < end_s:
        time.sleep(_POLL_S)
    try:
        lines = Path("/proc/locks").read_text("utf-8").splitlines()
    except OSError:
        return False
    # Each line is like `1: POSIX ADVISORY WRITE 4321 08:01:1234 0 EOF`, where 4321 is a process id.
    # If `->` follows the first number, the process only waits for the lock.
    for line in lines:
        _, kind, _, access, pid, *_ = line.split()
        if kind != "->" and access == "WRITE" and int(pid) in pids:
            return True
    return False


def _stands_still(pid: int) -> bool:
    """Return whether all threads of a process are stopped or have ended."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")
        stats = [Path(f"/proc/{pid}/task/{thread}/stat").read_bytes() for thread in threads]
    except OSError:
        return True
    # The name of a thread may contain brackets, and the state follows the last one.
    return all(stat.rpartition(b")")[2].split()[0] in _STILL for stat in stats)
