"""Processes are paused at a moment when they lock no file."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from studies import until

from sweeper.kernels.process.pausing import pause

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="only Linux lists the locks of files"),
]

#: A program that locks a file for 10 of every 17 ms, as MLflow does when it writes to SQLite.
#: `pause` tries again after 10 to 12 ms, so one of its tries soon falls into the 7 ms without a
#: lock.
WRITES_OFTEN = """if True:
    import fcntl, sys, time
    file = open(sys.argv[1], "w")
    while True:
        LOCK(file, fcntl.LOCK_EX)
        time.sleep(0.01)
        LOCK(file, fcntl.LOCK_UN)
        time.sleep(0.007)
"""
WRITES_FOR_HOURS = """if True:
    import fcntl, sys, time
    file = open(sys.argv[1], "w")
    fcntl.flock(file, fcntl.LOCK_EX)
    time.sleep(600)
"""


@contextmanager
def running(code: str, path: Path) -> Iterator[int]:
    """Run a program that locks a file. Yield its process id when it has begun."""
    process = subprocess.Popen([sys.executable, "-c", code, path])
    try:
        until(path.exists, "the program has not begun")
        yield process.pid
    finally:
        process.kill()
        process.wait()


def send(pid: int, number: int) -> list[int]:
    os.kill(pid, number)
    return [pid]


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@pytest.mark.parametrize("lock", ["flock", "lockf"])  # SQLite's locks are those of `lockf`.
def test_a_process_is_paused_only_while_it_locks_no_file(lock: str, tmp_path: Path) -> None:
    with running(WRITES_OFTEN.replace("LOCK(", f"fcntl.{lock}("), tmp_path / "store") as pid:
        for _ in range(5):
            pause(partial(send, pid))
            assert state_of(pid) == "T"
            with open(tmp_path / "store", "r+") as file:
                getattr(fcntl, lock)(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.kill(pid, signal.SIGCONT)


def test_a_process_that_locks_a_file_for_hours_is_paused_nevertheless(tmp_path: Path) -> None:
    with running(WRITES_FOR_HOURS, tmp_path / "store") as pid:
        pause(partial(send, pid))
        # After its time limit, `pause` sends the signal without waiting until the process is
        # paused.
        until(lambda: state_of(pid) == "T")
