"""Cores, memory and open files of this machine, and how many trials they allow at once."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from pathlib import Path

from ..errors import SettingsError

#: Before any trial has run, each trial is assumed to need this many bytes of memory (chosen, not
#: measured).
_MEMORY_PER_TRIAL_BYTES = 2 * 1024**3
#: One machine runs at most this many trials at once. A larger number is a typing error.
_MOST_JOBS = 1000
_ROOT = Path("/")
#: More trials may be frozen while less than this share of the limit of descriptors is in use. A
#: frozen trial holds 22 descriptors of the sweep's process (counted on Linux). The last quarter is
#: left for trials that begin, which need as many descriptors in each slot.
_DESCRIPTORS_IN_USE = 0.75
#: A sweep needs the first number of descriptors, and each slot adds the second number. Measured
#: with 1, 2, 4 and 8 slots: 61, 75, 132 and 226 descriptors in all.
_DESCRIPTORS_OF_A_SWEEP, _DESCRIPTORS_OF_A_SLOT = 48, 24
#: A sweep asks the system for at most this many descriptors. A sweep of a thousand trials needs
#: fewer, and a hard limit may be infinite.
_MOST_DESCRIPTORS = 65_536


def read_jobs(jobs: int | str, threads: int, root: Path = _ROOT) -> tuple[int, str]:
    """Return how many trials run at once, and why.

    Args:
        jobs: Number of trials, or `"auto"` for as many as this machine's cores and memory allow.
        threads: Number of threads of each trial.
        root: Root of the file system that says how much memory is free.

    Returns:
        The number of trials, and the reason in words. The reason is empty if `jobs` is a number.

    Raises:
        SettingsError: `jobs` is neither a number in the range nor `"auto"`.
    """
    if jobs != "auto":
        if not (str(jobs).isdecimal() and 0 < int(jobs) <= _MOST_JOBS):
            raise SettingsError(f"-j {jobs}: expected a number from 1 to {_MOST_JOBS}, or auto")
        return int(jobs), ""
    cores, n_bytes = usable_cores(), available_bytes(root)
    counts = [max(1, cores // threads)]
    each = "" if threads == 1 else f" with {threads} threads each"
    why = f"{cores} {'cores allow' if cores > 1 else 'core allows'} {counts[0]}{each}"
    if n_bytes is not None:
        counts.append(max(1, n_bytes // _MEMORY_PER_TRIAL_BYTES))
        why += f", {n_bytes / 1e9:.1f} GB of free memory allow {counts[1]}"
    return min(counts), why


def usable_cores() -> int:
    """Return how many cores this process may use, by its affinity and its container's quota."""
    from joblib import cpu_count  # its import takes 0.2 s

    return int(cpu_count())


def memory_of(pid: int) -> int | None:
    """Return the memory of a process and all its children in bytes, or None if it is not known.

    A page that several processes share counts in equal parts (Linux calls this PSS), so that the
    sum over forked kernels is what they really use.
    """
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
        kibibytes = next(int(line.split()[1]) for line in text.splitlines() if line[:4] == "Pss:")
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except (OSError, StopIteration, ValueError):
        return None
    return 1024 * kibibytes + sum(memory_of(int(child)) or 0 for child in children)


def available_bytes(root: Path = _ROOT) -> int | None:
    """Return how many bytes of memory new processes can use, or None if that is not known.

    The limit of a container counts.
    """
    free = _number(root / "proc" / "meminfo", "MemAvailable:")
    found = [] if free is None else [1024 * free]
    for folder in _memory_groups(root):
        limit, used = _read(folder / "memory.max"), _read(folder / "memory.current")
        if limit.isdecimal() and used:
            # Cached files count as used, but Linux frees their memory as soon as it is needed.
            files = _number(folder / "memory.stat", "inactive_file") or 0
            found.append(max(0, int(limit) - int(used) + files))
    return min(found, default=None)


def raise_descriptor_limit() -> None:
    """Raise this process's soft limit of open files as far as its hard limit allows.

    The usual soft limit of 1,024 only protects programs that call `select`.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _MOST_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def check_descriptors(jobs: int) -> None:
    """Check that this process may open the files that this many trials at once need.

    libzmq would abort the process when no more files can be opened.

    Raises:
        SettingsError: The hard limit of open files is too low.
    """
    needed = _DESCRIPTORS_OF_A_SWEEP + _DESCRIPTORS_OF_A_SLOT * jobs
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY or hard >= needed:
        return
    fitting = (hard - _DESCRIPTORS_OF_A_SWEEP) // _DESCRIPTORS_OF_A_SLOT
    fewer = f"; or give -j {fitting}" if fitting > 0 else ""
    raise SettingsError(
        f"-j {jobs} needs {needed} open files, but this process may have {hard} (ulimit -Hn): "
        f"raise that limit where it is set (limits.conf, docker run --ulimit nofile={needed})"
        f"{fewer}"
    )


def has_descriptors() -> bool:
    """Return whether this process can open the files of further trials."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    in_use = len(os.listdir("/dev/fd"))
    return limit == resource.RLIM_INFINITY or in_use < _DESCRIPTORS_IN_USE * limit


def oom_kills(root: Path = _ROOT) -> int:
    """Return how many processes the system has killed because memory ran out.

    Only processes in this process's control group count, which includes its children. If there is
    no such count, all processes of the machine count.
    """
    names = ("memory.events", "memory.oom_control")  # in version 2 of control groups, and in 1
    files = [folder / name for folder in _memory_groups(root) for name in names]
    counts = (_number(file, "oom_kill") for file in (*files, root / "proc" / "vmstat"))
    return next((count for count in counts if count is not None), 0)


def _number(file: Path, key: str) -> int | None:
    """Return the number of a key in a file with one key and one number on each line."""
    lines = (line.split() for line in _read(file).splitlines())
    return next((int(words[1]) for words in lines if words[:1] == [key]), None)


def _memory_groups(root: Path) -> Iterator[Path]:
    """Yield the folders of this process's memory control groups, the innermost first."""
    for line in _read(root / "proc" / "self" / "cgroup").splitlines():
        _, controller, path = line.split(":", 2)
        if controller in ("", "memory"):  # version 2 names no controllers
            mount = root / "sys" / "fs" / "cgroup" / controller
            folder = mount / path.strip("/")
            # In a container, the path may be the group's path on the host. Then the group's
            # files are at the mount point.
            yield from (
                parent for parent in (folder, *folder.parents) if parent.is_relative_to(mount)
            )


def _read(file: Path) -> str:
    """Return the text of a file, or an empty text if the file cannot be read."""
    try:
        return file.read_text().strip()
    except OSError:
        return ""
