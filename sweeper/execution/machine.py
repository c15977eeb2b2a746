"""Cores and memory of this machine, and how many trials at once they carry."""

from __future__ import annotations

import os
from pathlib import Path

from ..errors import SettingsError

_MEMORY_PER_TRIAL_BYTES = 2 * 1024**3


def memory_of(pid: int) -> int | None:
    """Memory of a process and all its children, in bytes; None when it cannot be known.

    Pages that several processes share count in equal parts (the kernel's PSS), so that forked
    kernels add up to what they really take.
    """
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
        kibibytes = next(int(line.split()[1]) for line in text.splitlines() if line[:4] == "Pss:")
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except (OSError, StopIteration, ValueError):
        return None
    return 1024 * kibibytes + sum(memory_of(int(child)) or 0 for child in children)


def usable_cores() -> int:
    """Cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def as_many_as_fit(threads: int) -> int:
    """Trials at once that this machine's cores and free memory carry; what `-j auto` means."""
    by_cores = usable_cores() // threads
    try:
        free_bytes = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):  # not told by this system
        return max(1, by_cores)
    return max(1, min(by_cores, free_bytes // _MEMORY_PER_TRIAL_BYTES))


def read_jobs(jobs: int | str, threads: int) -> int:
    """How many trials there are to be at once.

    Args:
        jobs: a number, or `"auto"` for as many as cores and memory carry.
        threads: of each trial.

    Raises:
        SettingsError: it is neither.
    """
    if jobs == "auto":
        return as_many_as_fit(threads)
    try:
        count = int(jobs)
    except ValueError:
        count = 0
    if count < 1:
        raise SettingsError(f"-j {jobs}: expected a whole number of 1 or more, or auto")
    return count
