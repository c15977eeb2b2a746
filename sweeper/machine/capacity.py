"""Cores, memory, files and processes of this machine, and how many trials they allow at once."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from ..errors import SettingsError
from ..guard import stat_of

#: Bytes of memory that a trial is assumed to need, to choose the number of slots (chosen, not
#: measured).
_MEMORY_PER_TRIAL_BYTES = 2 * 1024**3
#: Largest number of trials that one machine may run at once (chosen, not measured). A larger number
#: is most likely a typing error.
_MOST_JOBS = 1000
_ROOT = Path("/")
#: Names for version 2 and for version 1 of Linux's control groups: the file with a group's memory
#: limit, the file with its used memory, and the keys of file caches in its `memory.stat`. Linux
#: frees file caches as soon as memory is needed, so they count as free.
_GROUP_FILES = (
    ("memory.max", "memory.current", ("inactive_file", "active_file", "slab_reclaimable")),
    (
        "memory.limit_in_bytes",
        "memory.usage_in_bytes",
        ("total_inactive_file", "total_active_file"),
    ),
)
#: If a group has no limit, version 1 states a number of bytes above this one.
_NO_LIMIT_BYTES = 2**62
#: Trials may be frozen (paused) while less than this share of the allowed file descriptors, and of
#: the allowed processes and threads, is in use (chosen, not measured). A frozen trial holds 22
#: descriptors of the sweep's process, and about 12 threads in its kernel (counted on Linux). The
#: last quarter is left for trials that begin, which need as many.
_MOST_IN_USE = 0.75
#: Index of the number of threads in the list that `stat_of` returns.
_THREADS_FIELD = 17
#: A sweep needs the first number of file descriptors, and each slot adds the second number. Both
#: were chosen so that the total is a little more than was measured: 61, 75, 132 and 226 descriptors
#: with 1, 2, 4 and 8 slots.
_DESCRIPTORS_OF_A_SWEEP, _DESCRIPTORS_OF_A_SLOT = 48, 24
#: A sweep asks the system for at most this many file descriptors (chosen, not measured). A thousand
#: trials at once need fewer, and the system's own limit may be infinite.
_MOST_DESCRIPTORS = 65_536


def read_jobs(jobs: int | str, threads: int, root: Path = _ROOT) -> tuple[int, str]:
    """Return how many trials run at once, and the reason for this number.

    Args:
        jobs: Number of trials, or `"auto"` for as many as this machine's cores and memory allow.
        threads: Number of threads of each trial.
        root: Root of the file system with `/proc` and `/sys`, from which the free memory is read.

    Returns:
        The number of trials, and the reason in words. The reason is empty if `jobs` is a number.

    Raises:
        SettingsError: `jobs` is neither a number from 1 to 1000 nor `"auto"`.
    """
    if jobs != "auto":
        if not (str(jobs).isdecimal() and 0 < int(jobs) <= _MOST_JOBS):
            raise SettingsError(f"-j {jobs}: expected a number from 1 to {_MOST_JOBS}, or auto")
        return int(jobs), ""
    cores = usable_cores()
    by_cores = max(1, cores // threads)
    each = "" if threads == 1 else f" with {threads} threads each"
    why = f"{cores} {'cores allow' if cores > 1 else 'core allows'} {by_cores}{each}"
    n_bytes = available_bytes(root)
    if n_bytes is None:
        return by_cores, why
    by_memory = max(1, n_bytes // _MEMORY_PER_TRIAL_BYTES)
    why += f", {n_bytes / 1e9:.1f} GB of free memory allow {by_memory}"
    return min(by_cores, by_memory), why


def usable_cores() -> int:
    """Return how many cores this process may use, by its affinity and its container's quota."""
    from joblib import cpu_count  # This import takes 0.2 s.

    return int(cpu_count())


def memory_of(pid: int) -> int | None:
    """Return the memory of a process and all its children in bytes, or None if it is not known.

    A memory page that several processes share is divided among them (Linux calls this PSS). So the
    sum over forked kernels is the memory that they really use.
    """
    n_bytes = own_memory_of(pid)
    if n_bytes is None:
        return None
    for child in _read(Path(f"/proc/{pid}/task/{pid}/children")).split():
        n_bytes += memory_of(int(child)) or 0
    return n_bytes


def own_memory_of(pid: int) -> int | None:
    """Return the memory of a process without its children in bytes, or None if it is not known."""
    n_kb = _number(Path(f"/proc/{pid}/smaps_rollup"), "Pss:")
    return None if n_kb is None else 1024 * n_kb


def available_bytes(root: Path = _ROOT) -> int | None:
    """Return how many bytes of memory new processes can use, or None if that is not known.

    This is the free memory of the machine, or less if a container's memory limit allows less.
    """
    return min((n_bytes for n_bytes, _ in _free_memory(root)), default=None)


def shares_memory_with(pid: int, root: Path = _ROOT) -> bool:
    """Return whether a process reduces the memory that `available_bytes` returns.

    If that memory is limited by a control group, as that of a container or of a Slurm job, only the
    group's own processes reduce it.
    """
    smallest = min(_free_memory(root), key=lambda free: free[0], default=None)
    group = None if smallest is None else smallest[1]
    return group is None or group in _control_groups(root, "memory", str(pid))


def _free_memory(root: Path) -> Iterator[tuple[int, Path | None]]:
    """Yield how many bytes the machine has free, then how many each memory limit leaves free.

    Each number comes with the folder of the control group that sets the limit. The folder is None
    for the whole machine.
    """
    free_kb = _number(root / "proc" / "meminfo", "MemAvailable:")
    if free_kb is not None:
        yield 1024 * free_kb, None
    for folder in _control_groups(root, "memory"):
        for limit_name, used_name, keys in _GROUP_FILES:
            limit = _read(folder / limit_name)
            used = _read(folder / used_name)
            if limit.isdecimal() and int(limit) < _NO_LIMIT_BYTES and used:
                cache = sum(_number(folder / "memory.stat", key) or 0 for key in keys)
                yield max(0, int(limit) - int(used) + cache), folder


def raise_descriptor_limit() -> None:
    """Raise this process's soft limit of open files to its hard limit, but not above 65,536.

    The usual soft limit of 1,024 only protects programs that call `select`, which sweeps do not.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _MOST_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def check_descriptors(jobs: int) -> None:
    """Check that this process may open enough files to run `jobs` trials at once.

    Otherwise, libzmq would abort the process as soon as it could open no further file.

    Raises:
        SettingsError: The system's hard limit of open files is too low.
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
    """Return whether this process has enough file descriptors left for freezing (pausing) a trial.

    It has enough while less than three quarters (`_MOST_IN_USE`) of the allowed descriptors are in
    use, or if there is no limit. The last quarter is for trials that begin.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    in_use = len(os.listdir("/dev/fd"))
    return limit == resource.RLIM_INFINITY or in_use < _MOST_IN_USE * limit


def has_tasks(root: Path = _ROOT) -> bool:
    """Return whether enough processes and threads are left for freezing (pausing) a trial.

    Enough are left while less than three quarters (`_MOST_IN_USE`) of the allowed number are in
    use. Control groups limit this number. `ulimit -u` limits it for each user except root.
    """
    for folder in _control_groups(root, "pids"):
        limit = _read(folder / "pids.max")
        in_use = _read(folder / "pids.current")
        is_limited = limit.isdecimal() and in_use.isdecimal()
        if is_limited and int(in_use) >= _MOST_IN_USE * int(limit):
            return False
    of_user, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    if of_user == resource.RLIM_INFINITY or os.geteuid() == 0:
        return True
    return _threads_of_user(root) < _MOST_IN_USE * of_user


def _threads_of_user(root: Path) -> int:
    """Return how many threads all processes of this user have. 0 if `/proc` does not state it."""
    count = 0
    for folder in (root / "proc").glob("[0-9]*"):
        with suppress(OSError):  # The process has ended.
            if folder.stat().st_uid == os.getuid():
                count += int(stat_of(int(folder.name))[_THREADS_FIELD])
    return count


def oom_kills(root: Path = _ROOT) -> int:
    """Return how many processes the system has killed so far because memory ran out.

    This is the count of the innermost control group of this process that has one. The group also
    contains the children of this process. Without such a group, it is the count of the machine.
    """
    for folder in _control_groups(root, "memory"):
        for name in ("memory.events", "memory.oom_control"):  # Versions 2 and 1 of control groups.
            count = _number(folder / name, "oom_kill")
            if count is not None:
                return count
    return _number(root / "proc" / "vmstat", "oom_kill") or 0


def _number(file: Path, key: str) -> int | None:
    """Return the number after a key, from a file with one key and one number on each line.

    Return None if the file cannot be read or does not contain the key.
    """
    for line in _read(file).splitlines():
        words = line.split()
        if words[:1] == [key]:
            return int(words[1])
    return None


def _control_groups(root: Path, wanted: str, pid: str = "self") -> Iterator[Path]:
    """Yield the folders of a process's control groups, the innermost first.

    Args:
        root: Root of the file system.
        wanted: What the groups control, such as `memory`. A group of version 2 controls everything.
        pid: Id of the process. Default: this process.
    """
    for line in _read(root / "proc" / pid / "cgroup").splitlines():
        _, controller, path = line.split(":", 2)
        if controller not in ("", wanted):  # Version 2 of control groups names no controllers.
            continue
        mount = root / "sys" / "fs" / "cgroup" / controller
        folder = mount / path.strip("/")
        # In a container, the path may be that of the group on the host. Then the files of the group
        # are at the mount point, which is one of the parents.
        for parent in (folder, *folder.parents):
            if parent.is_relative_to(mount):
                yield parent


def _read(file: Path) -> str:
    """Return the text of a file, or an empty text if the file cannot be read."""
    try:
        return file.read_text().strip()
    except OSError:
        return ""
