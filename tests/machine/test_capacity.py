"""Test how many trials a machine or a container can run at once."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from sweeper.errors import SettingsError
from sweeper.machine.capacity import (
    available_bytes,
    check_descriptors,
    has_descriptors,
    has_tasks,
    memory_of,
    oom_kills,
    raise_descriptor_limit,
    read_jobs,
    shares_memory_with,
    usable_cores,
)

GIB = 1024**3


def machine(root: Path, groups: str, **files: str) -> Path:
    """Write the files of a simulated machine with 24 GiB of free memory. Return their root.

    Args:
        root: Root of the simulated file system.
        groups: Content of `/proc/self/cgroup`.
        **files: Contents of files below `/sys/fs/cgroup`. In a name, `__` stands for `/`.
    """
    texts = {
        "proc/meminfo": f"MemFree: 10 kB\nMemAvailable: {24 * 1024**2} kB\n",
        "proc/self/cgroup": groups,
        **{f"sys/fs/cgroup/{name.replace('__', '/')}": text for name, text in files.items()},
    }
    for name, text in texts.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text + "\n")
    return root


def test_a_machine_runs_as_many_trials_as_it_has_cores_and_at_least_one() -> None:
    cores = usable_cores()
    assert 1 <= cores <= (os.cpu_count() or cores)
    assert 1 <= read_jobs("auto", 1)[0] <= cores
    assert read_jobs("auto", cores + 1)[0] == 1
    assert (available_bytes() or 0) > 0
    assert (memory_of(os.getpid()) or 0) > 0


OWN = {
    "memory.max": str(8 * GIB),
    "memory.current": str(5 * GIB),
    # Cached files count as free, because the system can drop them.
    "memory.stat": f"anon 7\ninactive_file {GIB // 2}\nactive_file {GIB // 4}\n"
    f"slab_reclaimable {GIB // 4}",
}
VERSION_1 = {
    # Version 1 states this number if there is no limit.
    "memory__memory.limit_in_bytes": "9223372036854771712",
    "memory__memory.usage_in_bytes": str(90 * GIB),
    "memory__job__memory.limit_in_bytes": str(8 * GIB),
    "memory__job__memory.usage_in_bytes": str(5 * GIB),
    "memory__job__memory.stat": f"inactive_file 9\ntotal_inactive_file {GIB // 2}\n"
    f"total_active_file {GIB // 2}",
}
NESTED = {
    "job__memory.max": str(6 * GIB),
    "job__memory.current": str(1 * GIB),
    "job__task__memory.max": "max",
    "job__task__memory.current": "0",
}


@pytest.mark.parametrize(
    ("groups", "limits", "gib"),
    [
        ("0::/", {}, 24),
        ("0::/", OWN, 4),
        ("0::/docker/of/its/host", OWN, 4),
        ("0::/job/task", NESTED, 5),
        ("4:memory:/job\n0::/", VERSION_1, 4),
        ("4:memory:/", VERSION_1, 24),
    ],
)
def test_free_memory_is_the_smallest_amount_that_the_machine_or_any_control_group_leaves(
    tmp_path: Path, groups: str, limits: dict[str, str], gib: int
) -> None:
    root = machine(tmp_path, groups, **limits)
    assert available_bytes(root) == gib * GIB
    count, why = read_jobs("auto", 1, root)
    assert count == min(gib // 2, usable_cores())
    assert why.endswith(f", {gib * GIB / 1e9:.1f} GB of free memory allow {gib // 2}")


@pytest.mark.parametrize(
    ("groups", "limits", "other", "is_shared"),
    [
        ("0::/job/task", NESTED, "0::/job/another", True),
        ("0::/job/task", NESTED, "0::/job_2", False),
        ("4:memory:/job\n0::/", VERSION_1, "4:memory:/\n0::/", False),
        # No group has a limit, so the machine's memory is shared.
        ("0::/user/one", {}, "0::/user/two", True),
    ],
)
def test_a_process_reduces_the_free_memory_unless_it_is_outside_of_the_control_group_that_limits_it(
    tmp_path: Path, groups: str, limits: dict[str, str], other: str, is_shared: bool
) -> None:
    root = machine(tmp_path, groups, **limits)
    (root / "proc" / "7").mkdir()
    (root / "proc" / "7" / "cgroup").write_text(f"{other}\n")
    assert shares_memory_with(7, root) is is_shared


def test_the_number_of_slots_depends_only_on_cores_if_the_free_memory_is_unknown(
    tmp_path: Path,
) -> None:
    assert available_bytes(tmp_path) is None
    assert oom_kills(tmp_path) == 0
    assert read_jobs("auto", 1, tmp_path)[0] == usable_cores()


def test_the_option_jobs_refuses_everything_but_auto_and_numbers_from_1_to_1000() -> None:
    assert read_jobs(7, 1) == (7, "")
    assert read_jobs("3", 1) == (3, "")
    for wrong in ("0", "-1", "1001", "many", ""):
        with pytest.raises(SettingsError, match="expected a number from 1 to 1000, or auto"):
            read_jobs(wrong, 1)


@pytest.mark.parametrize(
    ("groups", "files"),
    [
        ("0::/job/task", {"job__task__memory.events": "oom 9\noom_kill 4\noom_group_kill 0"}),
        ("0::/on/its/host", {"memory.events": "low 0\noom_kill 4"}),
        ("5:cpu:/\n4:memory:/job\n0::/", {"memory__job__memory.oom_control": "oom_kill 4"}),
        ("0::/", {"cgroup.procs": "1"}),  # the root group has no counter
        ("", {}),
    ],
)
def test_out_of_memory_kills_are_read_from_the_innermost_control_group_with_a_counter(
    tmp_path: Path, groups: str, files: dict[str, str]
) -> None:
    root = machine(tmp_path, groups, **files)
    counts = any("oom_kill" in text for text in files.values())
    (root / "proc" / "vmstat").write_text(f"pgfault 3\noom_kill {99 if counts else 4}\n")
    assert oom_kills(root) == 4


@pytest.fixture
def usual_limit() -> Iterator[int]:
    """Set the soft limit of open files to 1024, which is usual, and yield it."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, before[1]))
    yield 1024
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_the_soft_limit_of_open_files_is_raised_to_the_hard_limit(usual_limit: int) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    raise_descriptor_limit()
    soft, after = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert after == hard
    assert soft == min(hard, 65_536) > usual_limit


def test_no_trial_is_frozen_if_only_a_quarter_of_the_descriptors_is_left(
    usual_limit: int,
) -> None:
    assert has_descriptors()
    with ExitStack() as opened:
        while has_descriptors():  # Earlier tests may have left some files open.
            opened.enter_context(open(os.devnull))
        n_open = len(os.listdir("/dev/fd"))
        assert n_open == pytest.approx(usual_limit * 3 / 4, abs=9)
    assert has_descriptors()


@pytest.mark.parametrize(
    ("groups", "limits", "is_enough"),
    [
        ("0::/", {}, True),
        ("0::/pod", {"pod__pids.max": "max", "pod__pids.current": "90000"}, True),
        ("0::/pod", {"pod__pids.max": "4096", "pod__pids.current": "3071"}, True),
        ("0::/pod", {"pod__pids.max": "4096", "pod__pids.current": "3072"}, False),
        ("0::/pod/job", {"pod__pids.max": "4096", "pod__pids.current": "4000"}, False),
        ("5:pids:/pod", {"pids__pod__pids.max": "99", "pids__pod__pids.current": "98"}, False),
        ("5:cpu:/pod", {"cpu__pod__pids.max": "99", "cpu__pod__pids.current": "98"}, True),
    ],
)
def test_no_trial_is_frozen_if_only_a_quarter_of_the_processes_and_threads_is_left(
    tmp_path: Path,
    groups: str,
    limits: dict[str, str],
    is_enough: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY,) * 2)
    assert has_tasks(machine(tmp_path, groups, **limits)) == is_enough


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="the system counts no threads")
def test_the_limit_of_a_users_processes_includes_threads_and_does_not_apply_to_root(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1, 1))
    monkeypatch.setattr(os, "geteuid", lambda: 1)
    assert not has_tasks()
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert has_tasks()


def test_more_jobs_than_the_limit_of_open_files_allows_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (64, 150))
    check_descriptors(4)
    with pytest.raises(SettingsError, match=r"-j 8 .* 240 .* 150 .*nofile=240.* -j 4$"):
        check_descriptors(8)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (64, 64))
    with pytest.raises(SettingsError, match=r"-j 1 .* 72 .* 64 .*nofile=72\)$"):
        check_descriptors(1)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (64, resource.RLIM_INFINITY))
    check_descriptors(1000)
