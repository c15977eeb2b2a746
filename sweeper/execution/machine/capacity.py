"""Cores and memory of this machine, and how many trials at once they carry."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ...errors import SettingsError

#: What a trial is taken to need, before any has run.
_MEMORY_PER_TRIAL_BYTES = 2 * 1024**3
_ROOT = Path("/")


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


def usable_cores(root: Path = _ROOT) -> int:
    """Cores that this process may use: those it may run on, or fewer by a container's quota."""
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    for folder in _control_groups(root, "cpu"):
        quota, period = (_read(folder / "cpu.max") or "max 1").split()
        if quota == "max":
            quota = _read(folder / "cpu.cfs_quota_us") or "-1"
            period = _read(folder / "cpu.cfs_period_us") or "1"
        if int(quota) > 0:
            cores = min(cores, int(quota) // int(period))
    return max(1, cores)


def available_bytes(root: Path = _ROOT) -> int | None:
    """Memory that new processes can have, within a container's limit; None if nobody says."""
    found = []
    for line in (_read(root / "proc" / "meminfo") or "").splitlines():
        if line.startswith("MemAvailable:"):
            found.append(1024 * int(line.split()[1]))
    for folder in _control_groups(root, "memory"):
        limit = _read(folder / "memory.max") or _read(folder / "memory.limit_in_bytes")
        used = _read(folder / "memory.current") or _read(folder / "memory.usage_in_bytes")
        if limit is None or used is None or limit == "max":
            continue
        # Files that were read count as used, and make room at once.
        numbers = dict(line.split() for line in (_read(folder / "memory.stat") or "").splitlines())
        files = numbers.get("total_inactive_file", numbers.get("inactive_file", "0"))
        found.append(max(0, int(limit) - int(used) + int(files)))
    return min(found, default=None)


def oom_kills(root: Path = _ROOT) -> int:
    """How many processes the system has killed for want of memory: of this process's group.

    Its children are in the same group. Where no group counts, those of the whole machine do.
    """
    for folder in _control_groups(root, "memory"):
        for name in ("memory.events", "memory.oom_control"):
            found = _number(_read(folder / name), "oom_kill")
            if found is not None:
                return found
    return _number(_read(root / "proc" / "vmstat"), "oom_kill") or 0


def _number(text: str | None, key: str) -> int | None:
    """The number behind a key, in a file with one of each in a line."""
    lines = (line.split() for line in (text or "").splitlines())
    return next((int(words[1]) for words in lines if words[:1] == [key]), None)


def _control_groups(root: Path, controller: str) -> Iterator[Path]:
    """The folders of the groups that this process is in, whose limits all count."""
    for line in (_read(root / "proc" / "self" / "cgroup") or "").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        mount = root / "sys" / "fs" / "cgroup"
        mount = mount / controller if controllers else mount
        folder = mount / path.strip("/")
        # In a container the path may be that on its host; its own group is then at the mount.
        yield from (one for one in (folder, *folder.parents) if one.is_relative_to(mount))


def _read(file: Path) -> str | None:
    try:
        return file.read_text().strip()
    except OSError:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Jobs:
    """How many trials run at once.

    Attributes:
        count: one or more.
        why: what decided it, for people; empty for a number that was asked for.
    """

    count: int
    why: str = ""


def as_many_as_fit(threads: int, root: Path = _ROOT, *, workers: int = 0) -> Jobs:
    """As many trials as this machine's cores and memory carry; what `-j auto` means."""
    cores, n_bytes = usable_cores(root), available_bytes(root)
    by_cores = max(1, cores // (threads + workers))
    each = "" if threads == 1 else f" with {threads} threads each"
    if workers:
        many = "s" if threads > 1 else ""
        more = "s" if workers > 1 else ""
        each = f" with {threads} thread{many} and {workers} loader worker{more} each"
    words = [f"{cores} {'cores carry' if cores > 1 else 'core carries'} {by_cores}{each}"]
    counts = [by_cores]
    if n_bytes is not None:
        counts.append(max(1, n_bytes // _MEMORY_PER_TRIAL_BYTES))
        words.append(f"{n_bytes / 1e9:.1f} GB of free memory carries {counts[-1]}")
    return Jobs(count=min(counts), why=", ".join(words))


def read_jobs(jobs: int | str, threads: int, *, workers: int = 0) -> Jobs:
    """How many trials there are to be at once.

    Args:
        jobs: a number, or `"auto"` for as many as cores and memory carry.
        threads: of each trial.
        workers: processes of its DataLoaders.

    Raises:
        SettingsError: it is neither.
    """
    if jobs == "auto":
        return as_many_as_fit(threads, workers=workers)
    try:
        count = int(jobs)
    except ValueError:
        count = 0
    if count < 1:
        raise SettingsError(f"-j {jobs}: expected a whole number of 1 or more, or auto")
    return Jobs(count=count)
