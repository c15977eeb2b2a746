"""Which GPU and how many threads a trial gets."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from sweeper.errors import SettingsError
from sweeper.execution.gpus import GpuAllocator, Lease, LeastLoaded, StoppedWaiting
from sweeper.execution.machine import as_many_as_fit, usable_cores
from sweeper.notebook_api.messages import StopReason
from sweeper.testing import trial_spec
from sweeper.trials import RunningTrial

THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)


@pytest.fixture
def make_tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Makes a machine whose driver tool is a shell script, and nobody chooses among its GPUs."""

    def make(script: str) -> None:
        tool = tmp_path / "nvidia-smi"
        tool.write_text(f"#!/bin/sh\n{script}\n")
        tool.chmod(0o755)

    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.delenv("CUDA_DEVICE_ORDER", raising=False)
    return make


@pytest.fixture
def two_gpus(make_tool: Callable[[str], None]) -> None:
    """A machine whose driver tool knows two GPUs."""
    make_tool("echo GPU-a, 40960\necho GPU-b, 40960")


def share(gpus: GpuAllocator, running: RunningTrial | None = None) -> AbstractContextManager[Lease]:
    return gpus.allocate(trial_spec(), running or RunningTrial())


def until_waiting(gpus: GpuAllocator, count: int) -> None:
    """Return when so many trials wait for a share."""
    end_s = time.monotonic() + 5
    while gpus.waiting != count:
        assert time.monotonic() < end_s
        time.sleep(0.002)


def test_without_gpus_a_kernel_sees_none() -> None:
    gpus = GpuAllocator.find("none", threads=2)
    assert gpus.gpus == []
    assert gpus.env["CUDA_VISIBLE_DEVICES"] == ""
    with share(gpus) as lease:
        assert lease.gpu is None
        assert lease.env == {}


def test_a_gpu_that_nobody_could_tell_us_of_is_not_hidden(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    gpus = GpuAllocator.find("auto", threads=1)
    assert gpus.gpus == []
    assert "CUDA_VISIBLE_DEVICES" not in gpus.env


def test_a_lease_states_the_threads_for_every_library_that_counts_them() -> None:
    env = GpuAllocator((), threads=3).env
    assert {name: env[name] for name in THREAD_VARIABLES} == dict.fromkeys(THREAD_VARIABLES, "3")


@pytest.mark.usefixtures("two_gpus")
def test_a_stated_memory_lets_no_more_trials_onto_a_gpu_than_fit() -> None:
    gpus = GpuAllocator.find([0], threads=1, memory_bytes=15 * 10**9)
    began = threading.Event()

    def third() -> None:
        with share(gpus):
            began.set()

    with share(gpus), share(gpus) as second:
        assert second.gpu == "GPU-a"
        waiting = threading.Thread(target=third)
        waiting.start()
        assert not began.wait(0.2), "two trials of 15 GB fill 40 GiB"
    assert began.wait(5)
    waiting.join()


def test_who_has_waited_longest_gets_the_next_share() -> None:
    gpus = GpuAllocator(("GPU-a",), threads=1, policy=LeastLoaded({"GPU-a": 1}))
    order: list[int] = []

    def wait(number: int) -> None:
        with share(gpus):
            order.append(number)
            time.sleep(0.01)

    waiting = []
    with share(gpus):
        for number in range(5):
            waiting.append(threading.Thread(target=wait, args=[number]))
            waiting[-1].start()
            until_waiting(gpus, number + 1)
    # Who comes later does not overtake those that wait already.
    wait(5)
    for thread in waiting:
        thread.join(5)
    assert order == [0, 1, 2, 3, 4, 5]


def test_a_stop_wakes_who_waits_for_a_share_and_those_behind_it_move_up() -> None:
    gpus = GpuAllocator(("GPU-a",), threads=1, policy=LeastLoaded({"GPU-a": 1}))
    stopped, behind = RunningTrial(), RunningTrial()
    ended: list[str] = []

    def wait(running: RunningTrial) -> None:
        try:
            with share(gpus, running):
                ended.append("had a share")
        except StoppedWaiting:
            ended.append("was stopped")

    with share(gpus):
        first = threading.Thread(target=wait, args=[stopped])
        first.start()
        until_waiting(gpus, 1)
        second = threading.Thread(target=wait, args=[behind])
        second.start()
        until_waiting(gpus, 2)
        stopped.stop(StopReason.INTERRUPTED)
        first.join(5)
        assert ended == ["was stopped"]
    second.join(5)
    assert ended == ["was stopped", "had a share"]
    assert behind.waited_s > 0


def test_a_trial_that_was_stopped_before_takes_no_share() -> None:
    gpus = GpuAllocator(("GPU-a",), threads=1, policy=LeastLoaded({"GPU-a": 1}))
    running = RunningTrial()
    running.stop(StopReason.INTERRUPTED)
    with share(gpus), pytest.raises(StoppedWaiting), share(gpus, running):
        pass


@pytest.mark.usefixtures("two_gpus")
def test_a_trial_that_no_gpu_can_hold_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"resources\.gpu_memory.*GPU-a has 42\.9 GB"):
        GpuAllocator.find([0], threads=1, memory_bytes=50 * 10**9)


def test_each_trial_gets_the_gpu_with_the_fewest_trials() -> None:
    gpus = GpuAllocator(("GPU-a", "GPU-b"), threads=1)
    with share(gpus) as first, share(gpus) as second, share(gpus) as third:
        assert (first.gpu, second.gpu, third.gpu) == ("GPU-a", "GPU-b", "GPU-a")
        assert first.env["CUDA_VISIBLE_DEVICES"] == "GPU-a"
        with share(gpus) as fourth:
            assert fourth.gpu == "GPU-b"


def test_a_share_is_given_back_even_by_a_trial_that_breaks() -> None:
    gpus = GpuAllocator(("GPU-a", "GPU-b"), threads=1)
    with pytest.raises(ZeroDivisionError), share(gpus):
        _ = 1 / 0
    with share(gpus) as lease:
        assert lease.gpu == "GPU-a"


@pytest.mark.usefixtures("two_gpus")
def test_numbers_of_a_parameters_file_count_among_the_gpus_that_are_visible(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,0")
    gpus = GpuAllocator.find([0], threads=1)
    with share(gpus) as lease:
        assert lease.env == {"CUDA_VISIBLE_DEVICES": "1"}
    with pytest.raises(SettingsError, match="there is no GPU 2"):
        GpuAllocator.find([2], threads=1)


@pytest.mark.usefixtures("two_gpus")
@pytest.mark.parametrize("visible", ["1", "GPU-b", "GPU", "0"])
def test_a_stated_memory_counts_on_gpus_however_they_are_named(
    monkeypatch: pytest.MonkeyPatch, visible: str
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    with pytest.raises(SettingsError, match=r"resources\.gpu_memory.*42\.9 GB"):
        GpuAllocator.find("auto", threads=1, memory_bytes=50 * 10**9)


def test_a_number_among_different_gpus_is_asked_for_more_exactly_where_memory_counts(
    make_tool: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    make_tool("echo GPU-small, 8192; echo GPU-large, 81920")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert GpuAllocator.find("auto", threads=1).gpus == ["1"]
    with pytest.raises(SettingsError, match=r"number 1 of .*CUDA_DEVICE_ORDER=PCI_BUS_ID"):
        GpuAllocator.find("auto", threads=1, memory_bytes=20 * 10**9)
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    assert GpuAllocator.find("auto", threads=1, memory_bytes=20 * 10**9).gpus == ["1"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    with pytest.raises(SettingsError, match=r"0 has 8\.6 GB"):
        GpuAllocator.find("auto", threads=1, memory_bytes=20 * 10**9)


def test_a_gpu_that_shares_the_machines_memory_has_room_for_what_that_holds(
    make_tool: Callable[[str], None],
) -> None:
    make_tool("echo 'GPU-a, [N/A]'")
    machine_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert GpuAllocator.find("auto", threads=1).gpus == ["GPU-a"]
    assert GpuAllocator.find([0], threads=1, memory_bytes=machine_bytes // 2).gpus == ["GPU-a"]
    with pytest.raises(SettingsError, match=r"resources\.gpu_memory.*GPU-a has"):
        GpuAllocator.find([0], threads=1, memory_bytes=machine_bytes)


@pytest.mark.parametrize(
    ("printed", "gpus"),
    [
        ("No gpus were found", []),
        ("WARNING: infoROM is corrupted at gpu 0000:02:00.0, 1\nGPU-a, 40960", ["GPU-a"]),
        ("GPU-a, [Unknown Error]\nGPU-b, 40960", ["GPU-a", "GPU-b"]),
        ("GPU-a", ["GPU-a"]),
        ("", []),
    ],
)
def test_whatever_the_driver_tool_writes_the_gpus_are_read_out_of_it(
    make_tool: Callable[[str], None], printed: str, gpus: list[str]
) -> None:
    make_tool(f"printf '%s\\n' '{printed}'")
    assert GpuAllocator.find("auto", threads=1).gpus == gpus
    assert GpuAllocator.find("auto", threads=1, memory_bytes=10**9).gpus == gpus


@pytest.mark.usefixtures("two_gpus")
def test_auto_means_every_gpu_of_the_machine() -> None:
    assert GpuAllocator.find("auto", threads=1).gpus == ["GPU-a", "GPU-b"]


@pytest.mark.usefixtures("two_gpus")
def test_numbers_choose_among_the_gpus() -> None:
    assert GpuAllocator.find([1], threads=1).gpus == ["GPU-b"]
    assert GpuAllocator.find((1, 0), threads=1).gpus == ["GPU-b", "GPU-a"]


@pytest.mark.usefixtures("two_gpus")
def test_a_gpu_that_is_not_there_is_refused_with_those_that_are() -> None:
    with pytest.raises(SettingsError, match=r"resources\.gpus: there is no GPU 2 .*: 0 to 1$"):
        GpuAllocator.find([0, 2], threads=1)


def test_on_a_machine_without_gpus_auto_is_none_and_numbers_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert GpuAllocator.find("auto", threads=1).gpus == []
    with pytest.raises(SettingsError, match="there is no GPU 0 on this machine; there are: none"):
        GpuAllocator.find([0], threads=1)


@pytest.mark.parametrize("script", ["exit 9", "echo broken >&2; exit 1"])
def test_a_driver_tool_that_fails_means_no_gpu(
    make_tool: Callable[[str], None], script: str
) -> None:
    make_tool(script)
    assert GpuAllocator.find("auto", threads=1).gpus == []


@pytest.mark.usefixtures("two_gpus")
@pytest.mark.parametrize(
    ("visible", "gpus"),
    [
        ("1", ["1"]),  # which GPU that is, only CUDA knows: it counts the fastest first
        ("1,0", ["1", "0"]),
        (" 0 , 1 ", ["0", "1"]),
        ("GPU-b", ["GPU-b"]),
        ("MIG-x", ["MIG-x"]),
        ("", []),
        ("-1", []),
        ("0,-1,1", ["0"]),  # CUDA sees nothing after an index that does not exist
        ("0,5,1", ["0"]),
    ],
)
def test_only_gpus_that_this_process_may_see_are_used(
    monkeypatch: pytest.MonkeyPatch, visible: str, gpus: list[str]
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert GpuAllocator.find("auto", threads=1).gpus == gpus


def test_as_many_trials_fit_as_cores_carry_and_never_none() -> None:
    cores = usable_cores()
    assert 1 <= cores <= (os.cpu_count() or cores)
    assert 1 <= as_many_as_fit(1) <= cores
    assert as_many_as_fit(cores + 1) == 1
