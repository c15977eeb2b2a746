"""Shared memory, through which the workers of a DataLoader hand batches to their trial."""

from __future__ import annotations

import os
import re
from pathlib import Path

_PLACE = Path("/dev/shm")
#: What a trial's workers may take: two batches each wait there for the trial. Docker's default,
#: 64 MB for all trials, is too little even for one whose pictures have a usual size.
_PER_TRIAL_BYTES = 256 * 1024**2
#: How torch and Python word that there is too little.
_SHORTAGE = re.compile(
    r"insufficient shared memory|is killed by signal: Bus error|out of shared memory"
    r"|shared memory ?\(shm\)|(unable to|cannot) .*</?torch_|No space left on device: '?/?psm_",
    re.IGNORECASE,
)
_SIGBUS = 7
_HOW = (
    "start a container with {size} or --ipc=host (in Kubernetes mount an emptyDir with "
    "`medium: Memory` there), or lower -j or num_workers"
)


def advice(workers: int, jobs: int, place: Path = _PLACE) -> str:
    """What to do where trials have workers and too little shared memory; empty for nothing.

    Args:
        workers: of a trial's DataLoaders.
        jobs: how many trials run at once.
        place: where the system keeps shared memory.
    """
    if not workers:
        return ""
    free = _free_bytes(place)
    if free is None or free >= jobs * _PER_TRIAL_BYTES:
        return ""
    trials = "a trial" if jobs == 1 else f"{jobs} trials at once"
    return (
        f"{place} has {free / 1e6:.0f} MB free, through which the workers of DataLoaders hand over "
        f"their batches; {trials} may need more, and then end with a bus error: {_how(jobs)}"
    )


def remedy(message: str, exit_code: int | None = None) -> str:
    """What to do about a trial that had too little shared memory; empty where it had enough.

    Args:
        message: why the trial failed.
        exit_code: of its kernel, if that died.
    """
    if exit_code != -_SIGBUS and not _SHORTAGE.search(message):
        return ""
    return f"; {_PLACE} is too small for the workers of DataLoaders: {_how(1)}"


def _how(jobs: int) -> str:
    return _HOW.format(size=f"--shm-size={max(1, jobs)}g")


def _free_bytes(place: Path) -> int | None:
    try:
        there = os.statvfs(place)
    except OSError:  # a system that keeps shared memory elsewhere
        return None
    return there.f_bavail * there.f_frsize
