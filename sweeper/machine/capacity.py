"""Cores and memory of this machine, and how many trials at once they carry."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from pathlib import Path

from ..errors import SettingsError

#: What a trial is taken to need, before any has run.
_MEMORY_PER_TRIAL_BYTES = 2 * 1024**3
#: One machine runs at most so many trials at once; a larger number is a slip of the hand.
_MOST_JOBS = 1000
_ROOT = Path("/")
#: A frozen trial holds 22 descriptors of the sweep's process (counted on Linux). A quarter of the
#: limit is left for trials that begin, which need as many at once in each slot.
_DESCRIPTORS_IN_USE = 0.75
#: What a sweep needs, and each of its slots: 61, 75, 132 and 226 in all were measured with 1, 2, 4
#: and 8 slots.
_DESCRIPTORS_OF_A_SWEEP, _DESCRIPTORS_OF_A_SLOT = 48, 24
#: More descriptors than a sweep of a thousand trials needs; some hard limits are no limit at all.
_MOST_DESCRIPTORS = 65_536


def read_jobs(jobs: int | str, threads: int, root: Path = _ROOT) -> tuple[int, str]:
    """How many trials there are to be at once.

    Args:
        jobs: a number, or `"auto"` for as many as this machine's cores and memory carry.
        threads: of each trial.
        root: of the file system that tells how much memory is free.

    Returns:
        one or more; and what decided it, for people, empty for a number that was asked for.

    Raises:
        SettingsError: it is neither.
    """
    if jobs != "auto":
        if not (str(jobs).isdecimal() and 0 < int(jobs) <= _MOST_JOBS):
            raise SettingsError(f"-j {jobs}: expected a number from 1 to {_MOST_JOBS}, or auto")
        return int(jobs), ""
    cores, n_bytes = usable_cores(), available_bytes(root)
    counts = [max(1, cores // threads)]
    each = "" if threads == 1 else f" with {threads} threads each"
    why = f"{cores} {'cores carry' if cores > 1 else 'core carries'} {counts[0]}{each}"
    if n_bytes is not None:
        counts.append(max(1, n_bytes // _MEMORY_PER_TRIAL_BYTES))
        why += f", {n_bytes / 1e9:.1f} GB of free memory carries {counts[1]}"
    return min(counts), why


def usable_cores() -> int:
    """Cores that this process may use: by its affinity, or fewer by a container's quota."""
    from joblib import cpu_count  # its import takes 0.2 s

    return int(cpu_count())


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


def available_bytes(root: Path = _ROOT) -> int | None:
    """Memory that new processes can have, within a container's limit; None if nobody says."""
    free = _number(root / "proc" / "meminfo", "MemAvailable:")
    found = [] if free is None else [1024 * free]
    for folder in _memory_groups(root):
        limit, used = _read(folder / "memory.max"), _read(folder / "memory.current")
        if limit.isdecimal() and used:
            # Files that were read count as used, and make room at once.
            files = _number(folder / "memory.stat", "inactive_file") or 0
            found.append(max(0, int(limit) - int(used) + files))
    return min(found, default=None)


def raise_descriptor_limit() -> None:
    """Raise this process's soft limit of open files as far as its hard limit lets it.

    The usual soft limit of 1,024 is for programs that call `select`.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _MOST_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def check_descriptors(jobs: int) -> None:
    """Refuse more trials at once than this process may open the files of.

    libzmq would abort the process as soon as no more can be opened.

    Raises:
        SettingsError: the hard limit is too low.
    """
    needed = _DESCRIPTORS_OF_A_SWEEP + _DESCRIPTORS_OF_A_SLOT * jobs
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY or hard >= needed:
        return
    fitting = (hard - _DESCRIPTORS_OF_A_SWEEP) // _DESCRIPTORS_OF_A_SLOT
    fewer = f"; or give -j {fitting}" if fitting > 0 else ""
    raise SettingsError(
        f"-j {jobs} needs {needed} open files, and this process may have {hard} (ulimit -Hn): "
        f"raise that limit where it is set (limits.conf, docker run --ulimit nofile={needed})"
        f"{fewer}"
    )


def has_descriptors() -> bool:
    """Whether this process may open the files of more trials than it has now."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    in_use = len(os.listdir("/dev/fd"))
    return limit == resource.RLIM_INFINITY or in_use < _DESCRIPTORS_IN_USE * limit


def oom_kills(root: Path = _ROOT) -> int:
    """How many processes the system has killed for want of memory: of this process's group.

    Its children are in the same group. Where no group counts, those of the whole machine do.
    """
    names = ("memory.events", "memory.oom_control")  # in version 2 of control groups, and in 1
    files = [folder / name for folder in _memory_groups(root) for name in names]
    counts = (_number(file, "oom_kill") for file in (*files, root / "proc" / "vmstat"))
    return next((count for count in counts if count is not None), 0)


def _number(file: Path, key: str) -> int | None:
    """The number behind a key, in a file with one of each in a line."""
    lines = (line.split() for line in _read(file).splitlines())
    return next((int(words[1]) for words in lines if words[:1] == [key]), None)


def _memory_groups(root: Path) -> Iterator[Path]:
    """The folders of this process's control groups of memory, the innermost first."""
    for line in _read(root / "proc" / "self" / "cgroup").splitlines():
        _, controller, path = line.split(":", 2)
        if controller in ("", "memory"):  # version 2 has no names of controllers
            mount = root / "sys" / "fs" / "cgroup" / controller
            folder = mount / path.strip("/")
            # In a container the path may be that on its host; its own group is then at the mount.
            yield from (
                parent for parent in (folder, *folder.parents) if parent.is_relative_to(mount)
            )


def _read(file: Path) -> str:
    """The text of a file; empty where it cannot be read."""
    try:
        return file.read_text().strip()
    except OSError:
        return ""
