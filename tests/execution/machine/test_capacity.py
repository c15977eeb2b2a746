"""How many trials at once a machine or a container carries."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sweeper.errors import SettingsError
from sweeper.execution.machine.capacity import (
    as_many_as_fit,
    available_bytes,
    memory_of,
    oom_kills,
    read_jobs,
    usable_cores,
)

GIB = 1024**3


def machine(root: Path, groups: str, **files: str) -> Path:
    """A machine with 24 GiB free, whose control groups have these files; `__` stands for `/`."""
    texts = {
        "proc/meminfo": f"MemFree: 10 kB\nMemAvailable: {24 * 1024**2} kB\n",
        "proc/self/cgroup": groups,
        **{f"sys/fs/cgroup/{name.replace('__', '/')}": text for name, text in files.items()},
    }
    for name, text in texts.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text + "\n")
    return root


def test_a_machine_carries_as_many_trials_as_its_cores_and_never_none() -> None:
    cores = usable_cores()
    assert 1 <= cores <= (os.cpu_count() or cores)
    assert 1 <= as_many_as_fit(1).count <= cores
    assert as_many_as_fit(cores + 1).count == 1
    free_bytes = available_bytes()
    assert free_bytes is not None
    assert free_bytes > 0
    assert (memory_of(os.getpid()) or 0) > 0


def test_workers_of_loaders_take_cores_as_trials_do() -> None:
    jobs = as_many_as_fit(1, workers=usable_cores())
    assert jobs.count == 1
    assert f"with 1 thread and {usable_cores()} loader worker" in jobs.why


def test_memory_that_holds_files_is_free(tmp_path: Path) -> None:
    root = machine(tmp_path, "0::/")
    assert available_bytes(root) == 24 * GIB
    assert as_many_as_fit(1, root).why.endswith("25.8 GB of free memory carries 12")


@pytest.mark.parametrize("path", ["/", "/docker/of/its/host"])
def test_a_container_has_the_cores_and_the_memory_that_it_was_given(
    tmp_path: Path, path: str
) -> None:
    limits = {
        "cpu.max": "150000 100000",
        "memory.max": str(8 * GIB),
        "memory.current": str(5 * GIB),
        "memory.stat": f"anon 7\ninactive_file {1 * GIB}",
    }
    root = machine(tmp_path, f"0::{path}", **limits)
    assert usable_cores(root) == 1
    assert available_bytes(root) == 4 * GIB
    carried = as_many_as_fit(1, root)
    assert carried.count == 1
    assert carried.why == "1 core carries 1, 4.3 GB of free memory carries 2"


def test_the_least_limit_of_all_groups_counts(tmp_path: Path) -> None:
    limits = {
        "job__memory.max": str(6 * GIB),
        "job__memory.current": str(1 * GIB),
        "job__task__memory.max": "max",
        "job__task__memory.current": "0",
        "job__task__cpu.max": "max 100000",
    }
    root = machine(tmp_path, "0::/job/task", **limits)
    assert available_bytes(root) == 5 * GIB
    assert usable_cores(root) == usable_cores()


def test_limits_of_older_systems_count(tmp_path: Path) -> None:
    limits = {
        "cpu__cpu.cfs_quota_us": "100000",
        "cpu__cpu.cfs_period_us": "100000",
        "memory__memory.limit_in_bytes": str(4 * GIB),
        "memory__memory.usage_in_bytes": str(3 * GIB),
        "memory__memory.stat": f"inactive_file 1\ntotal_inactive_file {2 * GIB}",
    }
    root = machine(tmp_path, "4:memory:/a\n1:cpu,cpuacct:/a\n0::/", **limits)
    assert usable_cores(root) == 1
    assert available_bytes(root) == 3 * GIB


def test_a_system_that_says_nothing_carries_what_its_cores_do(tmp_path: Path) -> None:
    assert available_bytes(tmp_path) is None
    assert as_many_as_fit(1, tmp_path).count == usable_cores()


def test_a_number_is_taken_as_it_is_and_anything_else_is_refused() -> None:
    assert read_jobs(7, 1).count == 7
    assert read_jobs("3", 1).why == ""
    assert read_jobs("auto", 1).why
    for wrong in ("0", "-1", "many", ""):
        with pytest.raises(SettingsError, match="expected a whole number of 1 or more, or auto"):
            read_jobs(wrong, 1)


@pytest.mark.parametrize(
    ("groups", "files"),
    [
        ("0::/job/task", {"job__task__memory.events": "oom 9\noom_kill 4\noom_group_kill 0"}),
        ("0::/on/its/host", {"memory.events": "low 0\noom_kill 4"}),
        ("4:memory:/a\n0::/", {"memory__a__memory.oom_control": "under_oom 0\noom_kill 4"}),
        ("0::/", {"cgroup.procs": "1"}),  # the root group counts nothing
        ("", {}),
    ],
)
def test_kills_for_want_of_memory_are_those_of_the_innermost_group_that_counts(
    tmp_path: Path, groups: str, files: dict[str, str]
) -> None:
    root = machine(tmp_path, groups, **files)
    counts = any("oom_kill" in text for text in files.values())
    (root / "proc" / "vmstat").write_text(f"pgfault 3\noom_kill {99 if counts else 4}\n")
    assert oom_kills(root) == 4


def test_a_system_that_counts_no_kills_has_none(tmp_path: Path) -> None:
    assert oom_kills(tmp_path) == 0
    assert oom_kills() >= 0
