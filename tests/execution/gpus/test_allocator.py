"""Which GPU a trial gets, when, and what it is seen to take of it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from gpu_drivers import GIB, StatedDriver
from studies import PATIENCE_S, until

from sweeper.execution.gpus import Gpu, GpuAllocator, Lease
from sweeper.execution.machine.ledger import Ledger, StoppedWaiting
from sweeper.notebook_api.messages import StopReason
from sweeper.testing import trial_spec
from sweeper.trials import GpuNeed, RunningTrial

THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)
ALONE = GpuNeed(is_alone=True)

Make = Callable[..., GpuAllocator]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Makes an allocator of a machine of its own, which looks at its GPUs all the time."""

    def make(*names: str, driver: StatedDriver | None = None, **options: object) -> GpuAllocator:
        driver = driver or StatedDriver(*names)
        defaults = {"look_s": 0.01, "settled_s": 0.1, "unused_s": 0.3}
        return GpuAllocator(
            driver.gpus,
            threads=1,
            driver=driver,
            ledger=Ledger(tmp_path / "claims"),
            **{**defaults, **options},  # type: ignore[arg-type]
        )

    return make


def share(
    gpus: GpuAllocator,
    need: GpuNeed = ALONE,
    running: RunningTrial | None = None,
) -> AbstractContextManager[Lease]:
    return gpus.allocate(trial_spec(gpu_need=need), running or RunningTrial())


def gib(n_gib: float) -> GpuNeed:
    return GpuNeed(memory_bytes=round(n_gib * GIB))


@contextmanager
def waiting(gpus: GpuAllocator, need: GpuNeed) -> Iterator[threading.Event]:
    """Another trial asks for a share; the event is set when it has one, which it gives back."""
    has_share, ended, running = threading.Event(), threading.Event(), RunningTrial()

    def wait() -> None:
        with suppress(StoppedWaiting), share(gpus, need, running):
            has_share.set()
            ended.wait(PATIENCE_S)

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    try:
        yield has_share
    finally:
        ended.set()
        running.stop(StopReason.INTERRUPTED)
        thread.join(PATIENCE_S)


def has_to_wait(has_share: threading.Event) -> bool:
    return not has_share.wait(0.2)


def test_a_closed_gpu_takes_no_trial_until_it_is_open_again(make: Make) -> None:
    gpus, closed = make("GPU-a"), {"GPU-a"}
    gpus.closed = closed
    with waiting(gpus, gib(1)) as has_share:
        assert has_to_wait(has_share)
        closed.clear()
        assert has_share.wait(PATIENCE_S)


# --- the environment of kernels ------------------------------------------------------------------


def test_without_gpus_a_kernel_sees_none() -> None:
    gpus = GpuAllocator.find("none", threads=2)
    assert gpus.gpus == []
    assert gpus.env["CUDA_VISIBLE_DEVICES"] == ""
    with share(gpus) as lease:
        assert lease.gpu is None
        assert lease.env == {}


def test_a_gpu_that_nobody_could_tell_us_of_is_not_hidden() -> None:
    gpus = GpuAllocator.find("auto", threads=1, driver=StatedDriver())
    assert gpus.gpus == []
    assert "CUDA_VISIBLE_DEVICES" not in gpus.env


def test_a_lease_states_the_threads_for_every_library_that_counts_them() -> None:
    env = GpuAllocator((), threads=3).env
    assert {name: env[name] for name in THREAD_VARIABLES} == dict.fromkeys(THREAD_VARIABLES, "3")


def test_libraries_that_would_take_most_of_a_gpu_take_what_they_need(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XLA_PYTHON_CLIENT_PREALLOCATE", raising=False)
    monkeypatch.setenv("TF_FORCE_GPU_ALLOW_GROWTH", "false")  # a user's own word counts
    env = make("GPU-a").env
    assert env["XLA_PYTHON_CLIENT_PREALLOCATE"] == "false"
    assert env["TF_FORCE_GPU_ALLOW_GROWTH"] == "false"
    assert "XLA_PYTHON_CLIENT_PREALLOCATE" not in GpuAllocator((), threads=1).env


# --- who gets a share ----------------------------------------------------------------------------


def test_as_many_trials_share_a_gpu_as_its_memory_holds(make: Make) -> None:
    gpus = make("GPU-a")
    with share(gpus, gib(9)), share(gpus, gib(9)), share(gpus, gib(9)) as third:
        assert third.gpu == "GPU-a"
        with share(gpus, gib(9)), waiting(gpus, gib(9)) as fifth:
            assert has_to_wait(fifth), "five trials of 9 GiB fill 40 GiB"
        with share(gpus, gib(9)):
            pass


def test_who_has_waited_longest_gets_the_next_share(make: Make) -> None:
    gpus = make("GPU-a")
    order: list[int] = []

    def is_waiting(count: int) -> bool:
        return gpus.waiting == count

    def wait(number: int) -> None:
        with share(gpus):
            order.append(number)
            time.sleep(0.01)

    threads = []
    with share(gpus):
        for number in range(5):
            threads.append(threading.Thread(target=wait, args=[number]))
            threads[-1].start()
            until(partial(is_waiting, number + 1))
    # Who comes later does not overtake those that wait already.
    wait(5)
    for thread in threads:
        thread.join(PATIENCE_S)
    assert order == [0, 1, 2, 3, 4, 5]


def test_a_stop_wakes_who_waits_for_a_share_and_those_behind_it_move_up(make: Make) -> None:
    gpus = make("GPU-a", look_s=30.0)  # nothing but the stop wakes anybody
    stopped, behind = RunningTrial(), RunningTrial()
    ended: list[str] = []

    def wait(running: RunningTrial) -> None:
        try:
            with share(gpus, ALONE, running):
                ended.append("had a share")
        except StoppedWaiting:
            ended.append("was stopped")

    with share(gpus):
        first = threading.Thread(target=wait, args=[stopped])
        first.start()
        until(lambda: gpus.waiting == 1)
        second = threading.Thread(target=wait, args=[behind])
        second.start()
        until(lambda: gpus.waiting == 2)
        stopped.stop(StopReason.INTERRUPTED)
        first.join(PATIENCE_S)
        assert ended == ["was stopped"]
    second.join(PATIENCE_S)
    assert ended == ["was stopped", "had a share"]
    assert behind.waited_s > 0


def test_a_trial_that_was_stopped_before_takes_no_share(make: Make) -> None:
    gpus = make("GPU-a")
    running = RunningTrial()
    running.stop(StopReason.INTERRUPTED)
    with share(gpus), pytest.raises(StoppedWaiting), share(gpus, ALONE, running):
        pass


def test_each_trial_gets_the_gpu_with_the_fewest_trials(make: Make) -> None:
    gpus, need = make("GPU-a", "GPU-b"), gib(3)
    with share(gpus, need) as first, share(gpus, need) as second, share(gpus, need) as third:
        assert (first.gpu, second.gpu, third.gpu) == ("GPU-a", "GPU-b", "GPU-a")
        assert first.env["CUDA_VISIBLE_DEVICES"] == "GPU-a"
        with share(gpus, need) as fourth:
            assert fourth.gpu == "GPU-b"


def test_a_share_is_given_back_even_by_a_trial_that_breaks(make: Make) -> None:
    gpus = make("GPU-a", "GPU-b")
    with pytest.raises(ZeroDivisionError), share(gpus):
        _ = 1 / 0
    with share(gpus) as lease:
        assert lease.gpu == "GPU-a"


def test_a_trial_that_has_to_be_alone_is(make: Make) -> None:
    gpus = make("GPU-a")
    with share(gpus, gib(1)), waiting(gpus, ALONE) as alone:
        assert has_to_wait(alone)
    with share(gpus, ALONE), waiting(gpus, gib(1)) as other:
        assert has_to_wait(other)


def test_a_trial_that_needs_more_than_there_is_is_tried_alone(make: Make) -> None:
    gpus = make("GPU-a")
    with share(gpus, gib(1)), waiting(gpus, gib(50)) as large:
        assert has_to_wait(large)
    with share(gpus, gib(50)), waiting(gpus, gib(1)) as other:
        assert has_to_wait(other)


def test_what_others_use_of_a_gpu_is_not_given_away(make: Make) -> None:
    driver = StatedDriver("GPU-a")
    driver.used["GPU-a"] = 30 * GIB
    driver.by_process["GPU-a"] = {os.getppid(): 30 * GIB}  # a notebook that is open in Jupyter
    gpus = make(driver=driver)
    with share(gpus, gib(5)), waiting(gpus, gib(5)) as second:
        assert has_to_wait(second)
        driver.used["GPU-a"], driver.by_process["GPU-a"] = 0, {}
        assert second.wait(PATIENCE_S), "nobody gave a share back, and yet there is room now"


def test_a_program_that_came_into_our_container_from_outside_is_one_of_the_others(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = StatedDriver("GPU-a")
    driver.used["GPU-a"] = 30 * GIB
    driver.by_process["GPU-a"] = {1: 30 * GIB}
    # What `docker exec` starts has session 0; one could only be made here by an administrator.
    monkeypatch.setattr(os, "getsid", lambda _: 0)
    gpus = make(driver=driver)
    with share(gpus, gib(5)), waiting(gpus, gib(5)) as second:
        assert has_to_wait(second)


def test_a_wait_that_only_others_can_end_is_reported_once(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    driver = StatedDriver("GPU-a")
    driver.used["GPU-a"] = 50 * GIB
    gpus = make(driver=driver)
    with share(gpus, gib(0)):
        pass  # a notebook that takes nothing has room on any GPU
    with waiting(gpus, gib(5)) as trial:
        until(lambda: "other programs or sweeps use the memory of GPU-a" in caplog.text)
        assert has_to_wait(trial)
    assert caplog.text.count("trials wait because") == 1


def test_trials_of_unknown_memory_share_a_gpu_of_unknown_memory(make: Make) -> None:
    driver = StatedDriver("GPU-a", memory_bytes=None)
    gpus = make(driver=driver)
    with share(gpus, GpuNeed()), share(gpus, GpuNeed()), share(gpus, gib(90)) as third:
        assert third.gpu == "GPU-a"
        with waiting(gpus, ALONE) as alone:
            assert has_to_wait(alone)


def test_a_trial_gets_as_many_gpus_as_it_takes_for_itself(make: Make) -> None:
    gpus = make("GPU-a", "GPU-b", "GPU-c", per_trial=2)
    with share(gpus, gib(1)) as first:
        assert first.env == {"CUDA_VISIBLE_DEVICES": "GPU-a,GPU-b"}
        with waiting(gpus, gib(1)) as second:
            assert has_to_wait(second), "one GPU is left"
    with share(gpus, gib(1)):
        pass


# --- trials whose need nobody knows --------------------------------------------------------------


@pytest.fixture
def kernel() -> Iterator[subprocess.Popen[bytes]]:
    """A process that stands for a kernel: it leads a session, to which a process of its belongs."""
    program = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'input()'])"
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, start_new_session=True
    )
    yield process
    process.communicate()


@pytest.mark.slow
def test_a_trial_of_unknown_need_is_alone_until_it_has_not_grown_for_a_while(
    make: Make, kernel: subprocess.Popen[bytes]
) -> None:
    driver = StatedDriver("GPU-a")
    gpus = make(driver=driver, settled_s=1.5)  # the machine may be busy between two steps below
    first = RunningTrial()
    first.pid = kernel.pid
    with share(gpus, GpuNeed(), first) as lease, waiting(gpus, GpuNeed()) as second:
        assert has_to_wait(second)
        for n_gib in range(1, 9):  # it grows
            driver.by_process["GPU-a"] = {kernel.pid: n_gib * GIB}
            driver.used["GPU-a"] = n_gib * GIB
            time.sleep(0.05)
            assert not second.is_set()
        assert second.wait(PATIENCE_S)
        assert lease.peak_bytes == 8 * GIB
        # The second one is expected to take as much, 8 GiB and a quarter more: two more fit.
        with waiting(gpus, GpuNeed()) as third, waiting(gpus, GpuNeed()) as fourth:
            assert third.wait(PATIENCE_S) or fourth.wait(PATIENCE_S)
            assert has_to_wait(third) or has_to_wait(fourth)


def test_trials_that_are_known_to_take_nothing_are_not_counted(make: Make) -> None:
    gpus = make("GPU-a", look_s=30.0)  # claims stay as they are made
    with ExitStack() as many:
        for _ in range(4):
            many.enter_context(share(gpus, gib(0)))
        with share(gpus, gib(37)):
            pass


def test_processes_that_a_kernel_has_started_count_as_its_own(
    make: Make, kernel: subprocess.Popen[bytes]
) -> None:
    driver = StatedDriver("GPU-a")
    gpus = make(driver=driver)
    running = RunningTrial()
    running.pid = kernel.pid
    children = Path(f"/proc/{kernel.pid}/task/{kernel.pid}/children")
    until(lambda: children.read_text().split())
    child = int(children.read_text().split()[0])
    driver.by_process["GPU-a"] = {kernel.pid: 2 * GIB, child: 3 * GIB, os.getpid(): 7 * GIB}
    with share(gpus, gib(5), running) as lease:
        until(lambda: lease.peak_bytes)
        assert lease.peak_bytes == 5 * GIB


def test_a_notebook_that_does_not_use_the_gpu_keeps_nobody_from_it(make: Make) -> None:
    gpus = make("GPU-a")
    with share(gpus, GpuNeed()), waiting(gpus, GpuNeed()) as second:
        assert has_to_wait(second)
        assert second.wait(PATIENCE_S)
        with waiting(gpus, GpuNeed()) as third:
            assert third.wait(PATIENCE_S)


def test_trials_that_wait_for_the_first_one_share_the_gpu_when_it_has_ended(make: Make) -> None:
    gpus = make("GPU-a", settled_s=30.0, unused_s=30.0)
    with ExitStack() as first:
        first.enter_context(share(gpus, GpuNeed()))
        with waiting(gpus, GpuNeed()) as second, waiting(gpus, GpuNeed()) as third:
            assert has_to_wait(second)
            gpus.learn(15 * GIB)  # the first one has run to its end
            first.close()
            assert second.wait(PATIENCE_S)
            assert third.wait(PATIENCE_S)
            with waiting(gpus, GpuNeed()) as fourth:
                assert has_to_wait(fourth), "three trials of 16.5 GiB take more than 40"


def test_in_a_container_what_trials_use_is_covered_by_their_claims(make: Make) -> None:
    driver = StatedDriver("GPU-a")
    gpus = make(driver=driver)
    running = RunningTrial()
    running.pid = os.getpid()
    with share(gpus, gib(9), running), share(gpus, gib(9)):
        driver.used["GPU-a"] = 17 * GIB
        driver.by_process["GPU-a"] = {2**22 + 1: 9 * GIB, 2**22 + 2: 8 * GIB}
        with share(gpus, gib(9)), share(gpus, gib(9)), waiting(gpus, gib(9)) as fifth:
            assert has_to_wait(fifth)


def test_in_a_container_a_trial_that_is_alone_is_measured_by_the_whole_gpu(make: Make) -> None:
    driver = StatedDriver("GPU-a")
    driver.used["GPU-a"] = 3 * GIB  # before
    driver.by_process["GPU-a"] = {2**22 + 1: 3 * GIB}  # no process of this machine
    gpus = make(driver=driver)
    running = RunningTrial()
    running.pid = os.getpid()
    with share(gpus, GpuNeed(), running) as lease:
        driver.used["GPU-a"] = 11 * GIB
        until(lambda: lease.peak_bytes == 8 * GIB)


# --- several sweeps on one machine ---------------------------------------------------------------

HOLD = """
import sys, time
from functools import partial
from pathlib import Path
from sweeper.execution.machine.ledger import Claim, Ledger
with Ledger(Path(sys.argv[1])).gate():
    held = Ledger(Path(sys.argv[1])).add(Claim(device="GPU-a", memory_bytes=int(sys.argv[2])))
print("held", flush=True)
time.sleep(600)
"""


def test_sweeps_of_one_machine_share_its_gpus(make: Make, tmp_path: Path) -> None:
    one, other = make("GPU-a"), make("GPU-a")
    with share(one, gib(20)), waiting(other, gib(20)) as second:
        assert has_to_wait(second)
    with share(other, gib(20)):
        pass


def test_a_sweep_that_is_killed_leaves_its_memory_to_the_others(make: Make, tmp_path: Path) -> None:
    gpus = make("GPU-a")
    command = [sys.executable, "-c", HOLD, str(tmp_path / "claims"), str(30 * GIB)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as killed:
        assert killed.stdout is not None
        assert killed.stdout.readline() == b"held\n"
        with waiting(gpus, gib(20)) as other:
            assert has_to_wait(other)
            killed.kill()
            killed.wait()
            assert other.wait(PATIENCE_S)


def test_a_machine_without_a_place_for_claims_shares_its_gpus_within_a_sweep(
    make: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "claims").write_text("a file")
    gpus = make("GPU-a")
    with share(gpus, gib(20)), waiting(gpus, gib(20)) as second:
        assert has_to_wait(second)
    assert caplog.text.count("other sweeps of this machine are not considered") == 1


def test_gpus_that_cuda_alone_can_tell_apart_are_shared_all_the_same(make: Make) -> None:
    driver = StatedDriver("GPU-a", "GPU-b")
    driver.gpus = [Gpu(name=name, uuid=None, memory_bytes=40 * GIB) for name in ("0", "1")]
    gpus = make(driver=driver)
    with share(gpus, gib(30)) as first, share(gpus, gib(30)) as second:
        assert (first.gpu, second.gpu) == ("0", "1")
        with waiting(gpus, gib(30)) as third:
            assert has_to_wait(third)


# --- the order of trials that wait ---------------------------------------------------------------


def test_a_small_trial_goes_before_a_large_one_that_does_not_fit_yet(make: Make) -> None:
    gpus = make("GPU-a")
    with share(gpus, gib(20)), waiting(gpus, gib(30)) as large:
        assert has_to_wait(large)
        with share(gpus, gib(10)):
            pass


def test_a_large_trial_is_passed_a_few_times_only(make: Make) -> None:
    gpus = make("GPU-a")
    with share(gpus, gib(20)), waiting(gpus, gib(30)) as large:
        assert has_to_wait(large)
        for _ in range(8):
            with share(gpus, gib(10)):
                pass
        with waiting(gpus, gib(10)) as ninth:
            assert has_to_wait(ninth)
            assert has_to_wait(large)


def test_smaller_trials_that_fill_the_memory_do_not_go_before_a_larger_one_that_fits(
    make: Make,
) -> None:
    gpus = make("GPU-a")  # of whose 40 GiB two stay free
    first = ExitStack()
    first.enter_context(share(gpus, gib(18)))
    with share(gpus, gib(20)), waiting(gpus, gib(15)) as longest:
        assert has_to_wait(longest)
        with waiting(gpus, gib(9.5)) as one, waiting(gpus, gib(8.5)) as other:
            assert has_to_wait(one)
            assert has_to_wait(other)
            first.close()
            assert longest.wait(PATIENCE_S), "two smaller ones fill 18 GiB, and find room later"
            assert has_to_wait(one)
            assert has_to_wait(other)


def test_of_trials_that_fill_the_memory_a_large_one_goes_before_small_ones(make: Make) -> None:
    gpus = make("GPU-a")  # of whose 40 GiB two stay free
    first = ExitStack()
    first.enter_context(share(gpus, gib(18)))
    with share(gpus, gib(20)), waiting(gpus, gib(6)) as small:
        assert has_to_wait(small)
        with waiting(gpus, gib(12)) as another, waiting(gpus, gib(18)) as large:
            assert has_to_wait(another)
            assert has_to_wait(large)
            first.close()
            assert large.wait(PATIENCE_S), "small ones find room later, too"
            assert has_to_wait(small)
            assert has_to_wait(another)


def test_trials_that_need_nearly_the_same_keep_their_order(make: Make) -> None:
    gpus = make("GPU-a")
    first = ExitStack()
    first.enter_context(share(gpus, gib(18)))
    with share(gpus, gib(20)), waiting(gpus, gib(10)) as longer:
        assert has_to_wait(longer)
        with waiting(gpus, gib(10.5)) as later:
            assert has_to_wait(later)
            first.close()
            assert longer.wait(PATIENCE_S)
            assert has_to_wait(later)


def test_a_small_trial_does_not_take_the_place_of_a_large_one_that_is_about_to_fit(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sweeper.execution.gpus.measures.ends._ABOUT", 1.0)  # whenever it is known
    gpus = make("GPU-a")  # of whose 40 GiB two stay free
    for _ in range(2):
        with share(gpus, gib(20), in_its_last_cell(steps=5)):
            pass
    ending, first = ExitStack(), ExitStack()
    ending.enter_context(share(gpus, gib(12), in_its_last_cell(steps=4)))
    first.enter_context(share(gpus, gib(10)))
    with share(gpus, gib(16)), waiting(gpus, gib(14)) as large:
        assert has_to_wait(large)
        with waiting(gpus, gib(10)) as small:
            assert has_to_wait(small)
            first.close()
            assert has_to_wait(small), "it would fit, and then the large one would not"
            ending.close()
            assert large.wait(PATIENCE_S)
            assert has_to_wait(small)


@pytest.mark.parametrize("busy_share", [0.9, 0.1])
def test_a_third_trial_waits_for_two_to_be_watched_only_where_one_keeps_the_gpu_busy(
    make: Make, busy_share: float
) -> None:
    driver = StatedDriver("GPU-a")
    driver.busy["GPU-a"] = busy_share
    gpus = make("GPU-a", driver=driver, holds_back=True, window_s=0.5)
    first, second, stop = RunningTrial(), RunningTrial(), threading.Event()

    def step(*those: RunningTrial) -> None:
        while not stop.wait(0.01):
            for one in those:
                one.steps, one.stepped_at_s = one.steps + 1, time.monotonic()

    with ExitStack() as stack:
        stack.callback(stop.set)
        stack.enter_context(share(gpus, gib(1), first))
        threading.Thread(target=step, args=[first], daemon=True).start()
        until(lambda: first.steps > 20)  # alone
        stack.enter_context(share(gpus, gib(1), second))
        has_share = stack.enter_context(waiting(gpus, gib(1)))
        assert has_to_wait(has_share) == (busy_share == 0.9)
        threading.Thread(target=step, args=[second], daemon=True).start()
        assert has_share.wait(PATIENCE_S)


def in_its_last_cell(*, steps: int) -> RunningTrial:
    """A trial that makes a step long after it has got its share."""
    running = RunningTrial()
    running.cell = running.cells = 1
    running.steps, running.stepped_at_s = steps, time.monotonic() + PATIENCE_S
    return running


# --- what is expected of a trial changes ---------------------------------------------------------


def test_a_trial_that_waits_gets_its_share_when_it_is_expected_to_need_less(make: Make) -> None:
    gpus, need = make("GPU-a"), gib(30)
    waits = RunningTrial(gpu_need=lambda: need)
    leases: list[Lease] = []

    def wait() -> None:
        with share(gpus, GpuNeed(), waits) as lease:
            leases.append(lease)

    with share(gpus, gib(20)):
        thread = threading.Thread(target=wait)
        thread.start()
        until(lambda: gpus.waiting == 1)
        time.sleep(0.1)
        assert leases == []
        need = gib(10)
        thread.join(PATIENCE_S)
        assert [lease.need for lease in leases] == [gib(10)]


def test_a_running_trial_claims_what_it_is_expected_to_need_by_now_but_all_that_it_takes(
    make: Make, kernel: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    driver, ledger = StatedDriver("GPU-a"), Ledger(tmp_path / "claims")
    gpus = make(driver=driver)
    need = replace(gib(30), is_estimate=True)
    running = RunningTrial(gpu_need=lambda: need)
    running.pid = kernel.pid

    def claims(n_gib: float) -> bool:
        with ledger.gate():
            return [claim.memory_bytes for claim in ledger.claims()] == [round(n_gib * GIB)]

    with share(gpus, GpuNeed(), running) as lease:
        assert lease.memory_fraction is None, "it may take more than was estimated"
        driver.by_process["GPU-a"] = {kernel.pid: 25 * GIB}
        driver.used["GPU-a"] = 25 * GIB
        until(lambda: running.gpu_memory is not None)
        assert running.gpu_memory is not None
        assert running.gpu_memory.first_bytes == 25 * GIB
        assert claims(30)
        need = replace(gib(10), is_estimate=True)
        until(lambda: claims(25))
        need = replace(gib(28), is_estimate=True)
        until(lambda: claims(28))


def test_the_claim_of_a_running_trial_falls_but_never_rises_once_trials_have_ended(
    make: Make, kernel: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    driver, ledger = StatedDriver("GPU-a"), Ledger(tmp_path / "claims")
    gpus, need = make(driver=driver), gib(30)
    running = RunningTrial(gpu_need=lambda: need)
    running.pid = kernel.pid

    def claimed_gib() -> float:
        with ledger.gate():
            return sum(claim.memory_bytes for claim in ledger.claims()) / GIB

    with share(gpus, need, running) as lease:
        driver.by_process["GPU-a"] = {kernel.pid: 15 * GIB}
        driver.used["GPU-a"] = 15 * GIB
        need = gib(20)
        until(lambda: claimed_gib() == 20)
        need = gib(12)
        until(lambda: claimed_gib() == 15)  # which it is seen to take
        need = gib(25)
        time.sleep(0.1)
        assert claimed_gib() == 15
        assert lease.memory_fraction is not None, "more than that torch would refuse"


# --- what a trial may take at most ---------------------------------------------------------------


def test_a_trial_of_predicted_need_may_take_as_much_and_others_may_take_all(make: Make) -> None:
    gpus, context_gib = make("GPU-a"), 0.5
    with share(gpus, gib(10 + context_gib)) as predicted, share(gpus, gib(0)) as nothing:
        assert predicted.memory_fraction == pytest.approx(1.05 * 10 / 40)
        assert nothing.memory_fraction is None
    for need in (GpuNeed(), ALONE, gib(60)):
        with share(gpus, need) as lease:
            assert lease.memory_fraction is None
    assert gpus.waiting == 0


def test_trials_with_gpus_of_their_own_may_take_all_of_them(make: Make) -> None:
    with share(make("GPU-a", "GPU-b", per_trial=2), gib(10)) as lease:
        assert lease.memory_fraction is None


# --- several sweeps ------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_sweep_of_small_trials_lets_one_begin_that_needs_more_room(make: Make) -> None:
    driver = StatedDriver("GPU-a")
    small, other = make(driver=driver), make(driver=driver, patience_s=0.3)
    first = ExitStack()
    first.enter_context(share(small, gib(10)))
    with waiting(other, GpuNeed()) as unknown:  # it has to begin on an empty GPU
        with share(small, gib(10)):
            assert has_to_wait(unknown), "there are trials of the first sweep"
        time.sleep(0.5)
        with waiting(small, gib(10)) as next_small:
            assert has_to_wait(next_small), "the other sweep has waited for long"
            first.close()
            assert unknown.wait(PATIENCE_S)
            assert has_to_wait(next_small), "nobody knows yet what the other one will take"
    with share(small, gib(10)):
        pass


def test_a_trial_that_has_waited_longer_goes_before_one_of_another_sweep(make: Make) -> None:
    driver = StatedDriver("GPU-a")
    gpus, other = (make(driver=driver, patience_s=0.0) for _ in range(2))
    first = ExitStack()
    first.enter_context(share(gpus, gib(20)))
    with waiting(gpus, gib(25)) as longer:
        assert has_to_wait(longer)
        with waiting(other, ALONE) as later:
            assert has_to_wait(later)
            first.close()
            assert longer.wait(PATIENCE_S)
            assert has_to_wait(later)


def test_a_trial_that_others_memory_keeps_away_holds_up_no_sweep(make: Make) -> None:
    driver = StatedDriver("GPU-a")
    driver.used["GPU-a"] = 20 * GIB
    driver.by_process["GPU-a"] = {os.getppid(): 20 * GIB}  # a notebook that is open in Jupyter
    gpus, other = make(driver=driver), make(driver=driver, patience_s=0.0)
    with waiting(other, gib(30)) as large:
        assert has_to_wait(large)
        with share(gpus, gib(10)):
            pass
