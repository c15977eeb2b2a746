"""Test when a trial begins on a machine, on which GPU, and how its memory is measured."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, Literal

import pytest
from gpu_drivers import GIB, StatedDriver
from studies import PATIENCE_S, assert_says, until

from sweeper.machine.claims import Claims
from sweeper.machine.faults import Fault
from sweeper.machine.nvml import CONTEXT_BYTES
from sweeper.machine.place import Place
from sweeper.machine.places import NoGpuLeftError, Places, StoppedWaiting
from sweeper.machine.suspension import CudaCheckpoints
from sweeper.notebook_api.messages import Point, StopReason
from sweeper.settings.machines import Resources
from sweeper.testing import trial_spec
from sweeper.trials import (
    AloneOn,
    Blocked,
    Control,
    Reason,
    RunningTrial,
    TrialOutcome,
    TrialState,
)

Make = Callable[..., Places]
COMPLETED = TrialOutcome(state=TrialState.COMPLETED)
FAILED = TrialState.FAILED


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Return a function that makes the `Places` of a machine, which give each trial its GPUs."""

    def make(
        *names: str,
        driver: StatedDriver | None = None,
        checkpoints: CudaCheckpoints | None = None,
        **resources: int,
    ) -> Places:
        driver = driver or StatedDriver(*names)
        return Places(
            driver.gpus,
            resources=Resources(**resources),  # type: ignore[arg-type]
            driver=driver,
            claims=Claims(tmp_path / "claims"),
            checkpoints=checkpoints,
            root=tmp_path / "no files that say how much host memory is free",
            look_s=0.01,
            settled_s=0.1,
        )

    return make


class Trial:
    """A trial in a thread. It waits for its GPU, and has it until `end` or the end of the test."""

    all: ClassVar[list[Trial]] = []

    def __init__(self, places: Places, alone_on: AloneOn | None = None, *, number: int = 0) -> None:
        self.asked: list[Blocked] = []
        self.running = RunningTrial(control=Control(self._make_room))
        self.place, self.error = None, None
        self.told: list[str] = []
        self._places, self._may_end = places, threading.Event()
        self._spec = trial_spec(number=number, alone_on=alone_on)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self.all.append(self)
        until(lambda: self.place or self.error or self.running.control.waits_for)

    place: Place | None
    error: Exception | None

    def _run(self) -> None:
        try:
            with self._places.lease(self._spec, self.running, self.told.append) as self.place:
                self._may_end.wait()
        except (StoppedWaiting, NoGpuLeftError) as error:
            self.error = error

    def _make_room(self, blocked: Blocked) -> None:
        self.asked.append(blocked)

    @property
    def waits(self) -> bool:
        return self.place is None and self.error is None

    def asks(self, *frozen: Trial) -> bool:
        """Return whether the trial waits and asks exactly these frozen trials to free resources."""
        assert self.has_to_wait()
        return list(self.asked[-1].by) == [trial.running.control for trial in frozen]

    def freeze(self) -> None:
        """Freeze the trial, as if it had a kernel that can be paused."""
        place, control = self.begun(), self.running.control
        control.on_freeze(lambda _: True)
        assert control.freeze()
        control.note_machine(self._places.machine_of(place))

    def begun(self) -> Place:
        until(lambda: self.place is not None)
        assert self.place is not None
        return self.place

    def has_to_wait(self) -> bool:
        time.sleep(0.2)
        return self.waits

    def shows(self, driver: StatedDriver, gib: float, gpu: str = "GPU-a") -> None:
        """Let the driver state that the trial uses `gib` GiB. Let the trial report two steps."""
        pid = self.running.points.pid or os.getpid()
        self.running.points.note_kernel(pid)
        driver.by_process[gpu][pid] = round(gib * GIB)
        driver.used[gpu] = sum(driver.by_process[gpu].values())
        for step in range(2):
            self.running.points.publish(Point(metrics={"val": 0.0}, step=step))

    def end(self) -> None:
        self._may_end.set()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()


@pytest.fixture(autouse=True)
def all_trials_end() -> Iterator[None]:
    yield
    while Trial.all:
        Trial.all.pop(0).end()


@contextmanager
def process() -> Iterator[int]:
    """Start a process that leads a session, as a kernel does."""
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as one:
        yield one.pid
        one.kill()


def names(place: Place) -> str:
    """Return the GPUs that a kernel sees with this place, a trial's device assignment."""
    return place.env["CUDA_VISIBLE_DEVICES"]


def learned(places: Places, gib: float) -> Places:
    """Complete a trial with a measured memory peak of `gib` GiB. Return the places."""
    with places.lease(trial_spec(), RunningTrial()) as place:
        places.settle(place, COMPLETED, torch_bytes=round(gib * GIB) - CONTEXT_BYTES)
    return places


# --- the environment of kernels ------------------------------------------------------------------


@pytest.mark.parametrize(("gpus", "visible"), [("none", ""), ("auto", None)])
def test_kernels_see_no_gpu_with_the_setting_gpus_none_and_all_gpus_if_the_driver_lists_none(
    gpus: Literal["none", "auto"], visible: str | None
) -> None:
    places = Places.of_machine(Resources(gpus=gpus), jobs=1, driver=StatedDriver())
    assert places.env.get("CUDA_VISIBLE_DEVICES") == visible
    with places.lease(trial_spec(), RunningTrial()) as place:
        assert (place.gpus, place.env) == ([], {})


def test_the_environment_of_kernels_fixes_threads_hash_seed_and_cublas_for_equal_results() -> None:
    env = Places(resources=Resources(cpus_per_trial=3)).env
    assert list(env.values()).count("3") == 5
    assert (env["OMP_NUM_THREADS"], env["PYTHONHASHSEED"]) == ("3", "0")
    assert env["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"


def test_environment_variables_keep_libraries_from_reserving_most_of_a_gpu_in_advance(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XLA_PYTHON_CLIENT_PREALLOCATE", raising=False)
    # A variable that the user has set is kept.
    monkeypatch.setenv("TF_FORCE_GPU_ALLOW_GROWTH", "false")
    env = make("GPU-a").env
    assert env["XLA_PYTHON_CLIENT_PREALLOCATE"] == "false"
    assert env["TF_FORCE_GPU_ALLOW_GROWTH"] == "false"
    assert Places().env["XLA_PYTHON_CLIENT_PREALLOCATE"] == "false", "AMD's GPUs are not listed"


# --- the memory of the machine -------------------------------------------------------------------


def test_trials_without_gpus_run_at_the_same_time_and_record_whether_they_were_alone() -> None:
    places = Places()
    first = Trial(places)
    assert first.begun().is_alone
    second = Trial(places)
    assert not first.begun().is_alone
    first.end()
    assert not second.begun().is_alone, "the first trial ran at the same time"
    second.end()
    last = Trial(places)
    assert last.begun().is_alone


def test_a_trial_that_must_be_alone_waits_for_all_others_and_later_ones_wait_for_it() -> None:
    places = Places(look_s=0.01)
    others = [Trial(places, number=0), Trial(places, number=1)]
    alone = Trial(places, AloneOn.MACHINE, number=2)
    after = Trial(places, number=3)
    assert (
        alone.running.control.waits_for == "the end of 0000, 0001: 0002 runs alone on this machine"
    )
    assert after.running.control.waits_for == "its turn, behind 0002"
    others[0].end()
    assert alone.has_to_wait()
    assert after.waits
    others[1].end()
    assert alone.begun().is_alone
    assert after.has_to_wait()
    assert after.running.control.waits_for == "the end of 0002: 0002 runs alone on this machine"
    alone.end()
    after.begun()


def test_a_stop_ends_a_trials_wait_for_an_empty_machine_and_lets_later_trials_begin() -> None:
    places = Places(look_s=10)
    _, alone = Trial(places), Trial(places, AloneOn.MACHINE)
    after = Trial(places)
    alone.running.control.stop(StopReason.INTERRUPTED)
    alone.end()
    assert isinstance(alone.error, StoppedWaiting)
    after.begun()


def test_a_trial_ran_short_of_memory_only_if_an_out_of_memory_kill_followed_its_start(
    tmp_path: Path,
) -> None:
    (tmp_path / "proc").mkdir()
    counts = tmp_path / "proc" / "vmstat"
    counts.write_text("oom_kill 3\n")
    places = Places(root=tmp_path)
    with ExitStack() as stack:
        before = stack.enter_context(places.lease(trial_spec(), RunningTrial()))
        assert not places.ran_short(before)
        counts.write_text("oom_kill 4\n")
        assert places.ran_short(before)
        later = stack.enter_context(places.lease(trial_spec(), RunningTrial()))
        assert not places.ran_short(later)


# --- the memory of GPUs --------------------------------------------------------------------------


def test_as_many_trials_share_a_gpu_as_their_stated_memory_allows(make: Make) -> None:
    places = make("GPU-a", gpu_memory=9 * GIB)
    trials = [Trial(places, number=number) for number in range(5)]
    for trial in trials[:4]:
        place = trial.begun()
        assert (names(place), place.claim_bytes) == ("GPU-a", 9 * GIB + CONTEXT_BYTES)
        assert place.memory_fraction == pytest.approx(1.05 * 9 / 40)
    alone = Trial(places, AloneOn.GPU, number=5)
    assert trials[4].has_to_wait()
    trials[0].end()
    trials[4].begun()
    for trial in trials[1:]:
        trial.end()
    assert alone.begun().memory_fraction is None


def test_a_trial_reserves_the_largest_gpu_memory_peak_of_earlier_trials_plus_a_tenth(
    make: Make,
) -> None:
    places = learned(learned(make("GPU-a"), 10), 4)
    trials = [Trial(places, number=number) for number in range(4)]
    assert [trial.begun().claim_bytes for trial in trials[:3]] == [11 * GIB] * 3
    assert trials[3].has_to_wait()
    assert trials[3].running.control.waits_for == (
        "11.8 GB of a GPU: GPU-a has 6.4 GB free (0000 11.8 GB, 0001 11.8 GB, 0002 11.8 GB)"
    )


def test_a_trial_gets_the_gpu_with_the_most_free_memory(make: Make) -> None:
    driver = StatedDriver("GPU-a", "GPU-b", "GPU-c")
    driver.used.update({"GPU-a": 5 * GIB, "GPU-c": 20 * GIB})  # memory used by other programs
    places = learned(make(driver=driver), 10)
    trials = [Trial(places, number=number) for number in range(7)]
    found = [names(trial.begun()) for trial in trials]
    assert found[:3] == ["GPU-b", "GPU-a", "GPU-b"]
    assert sorted(found) == ["GPU-a"] * 3 + ["GPU-b"] * 3 + ["GPU-c"]


def test_a_trial_begins_at_once_on_a_smaller_free_gpu_if_it_fits_there(make: Make) -> None:
    driver = StatedDriver("GPU-big", "GPU-small")
    driver.gpus[1] = replace(driver.gpus[1], memory_bytes=4 * GIB)
    places = make(driver=driver)
    first, second = Trial(places), Trial(places, number=1)
    assert names(first.begun()) == "GPU-big"
    assert names(second.begun()) == "GPU-small"
    second.end()
    again = Trial(places, AloneOn.GPU, number=1)
    assert again.has_to_wait(), "the trial ran out of memory on the smaller GPU"
    first.end()
    assert names(again.begun()) == "GPU-big"
    again.end()
    large = learned(make(driver=driver), 30)
    assert names(Trial(large, number=2).begun()) == "GPU-big"
    assert Trial(large, number=3).has_to_wait()
    small = learned(make(driver=driver), 3)
    driver.used["GPU-big"] = 39 * GIB
    assert names(Trial(small, number=4).begun()) == "GPU-small"
    driver.used["GPU-big"] = 0


@pytest.mark.parametrize("alone_on", [None, AloneOn.GPU])
def test_a_trial_uses_a_small_free_gpu_and_does_not_wait_for_a_larger_one_in_use(
    make: Make, alone_on: AloneOn | None
) -> None:
    driver = StatedDriver("GPU-big", "GPU-small")
    driver.gpus[1] = replace(driver.gpus[1], memory_bytes=20 * GIB)
    driver.used["GPU-big"] = 39 * GIB
    assert names(Trial(make(driver=driver), alone_on).begun()) == "GPU-small"


def test_a_trial_waits_if_other_programs_use_the_gpu_memory_that_it_would_reserve(
    make: Make,
) -> None:
    driver = StatedDriver("GPU-a")
    places = learned(make(driver=driver), 10)
    driver.used["GPU-a"] = 31 * GIB
    trial = Trial(places)
    assert trial.has_to_wait()
    assert "other programs 33.3 GB" in trial.running.control.waits_for
    driver.used["GPU-a"] = 10 * GIB
    assert not trial.begun().is_alone_on_gpu


def test_a_trial_begins_next_to_a_desktop_program_if_both_fit_on_the_gpu(
    make: Make,
) -> None:
    driver = StatedDriver("GPU-a", memory_bytes=8 * GIB)
    driver.used["GPU-a"] = round(0.7 * GIB)
    places = learned(make(driver=driver), 6)
    first, second = Trial(places), Trial(places)
    assert first.begun().claim_bytes == round(1.1 * 6 * GIB)
    driver.used["GPU-a"] = round(2.1 * GIB)
    first.end()
    assert second.has_to_wait(), "other programs use more memory than a trial leaves free"
    driver.used["GPU-a"] = round(0.7 * GIB)
    second.begun()


def test_the_first_trial_is_alone_on_a_gpu_until_its_memory_peak_is_known_then_others_join(
    make: Make,
) -> None:
    driver = StatedDriver("GPU-a")
    places = make(driver=driver)
    first, second, third = (Trial(places, number=number) for number in range(3))
    with process() as one, process() as other:
        first.running.points.note_kernel(one)
        second.running.points.note_kernel(other)
        assert second.has_to_wait()
        driver.by_process["GPU-a"][one] = driver.used["GPU-a"] = 8 * GIB
        assert second.has_to_wait(), "a trial that has not reported may need more memory"
        first.shows(driver, 8)
        assert second.begun().claim_bytes == round(1.1 * 8 * GIB)
        until(lambda: first.begun().claim_bytes == round(1.1 * 8 * GIB))
        assert third.has_to_wait(), "the peak of the second trial is unknown"
        assert "when the memory peaks of these trials are known" in third.running.control.waits_for
        second.shows(driver, 9)
        assert third.begun().claim_bytes == round(1.1 * 9 * GIB)


def test_the_memory_peak_of_a_trial_without_reports_is_known_when_its_gpu_is_busy(
    make: Make,
) -> None:
    driver = StatedDriver("GPU-a")
    places = make(driver=driver)
    _, second = Trial(places), Trial(places)
    driver.used["GPU-a"] = 8 * GIB
    assert second.has_to_wait(), "a trial that may still load data can need more GPU memory later"
    driver.busy["GPU-a"] = 0.9
    assert second.begun().claim_bytes == round(1.1 * 8 * GIB)


def test_a_memory_reservation_grows_with_the_memory_that_its_trial_uses(make: Make) -> None:
    driver = StatedDriver("GPU-a")
    places = learned(make(driver=driver), 10)
    with process() as pid:
        trial = Trial(places)
        trial.running.points.note_kernel(pid)
        trial.shows(driver, 30)
        until(lambda: trial.begun().claim_bytes == 30 * GIB)


def test_a_memory_peak_that_could_not_be_measured_does_not_change_later_reservations(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    places = make("GPU-a")
    with places.lease(trial_spec(), RunningTrial()) as place:
        for _ in range(2):
            places.settle(place, COMPLETED)
        assert Trial(places).has_to_wait()
    assert caplog.text.count("the memory that trials use on GPU-a cannot be measured") == 1


@pytest.mark.parametrize(("busy_share", "peak_bytes"), [(0.5, None), (None, None), (0.0, 0)])
def test_a_measured_peak_of_zero_bytes_is_believed_only_if_the_gpu_did_no_work(
    make: Make, busy_share: float | None, peak_bytes: int | None
) -> None:
    driver = StatedDriver("GPU-a")
    driver.busy["GPU-a"] = busy_share
    places = make(driver=driver)
    with places.lease(trial_spec(), RunningTrial()) as place:
        time.sleep(0.1)
        settled = places.settle(place, COMPLETED)
        assert settled.gpu is not None
        assert settled.gpu.peak_bytes == peak_bytes
    if peak_bytes == 0:  # now the peak is known, so other trials may share the GPU
        trials = [Trial(places) for _ in range(9)]
        assert [trial.begun().claim_bytes for trial in trials] == [0] * 9


def test_a_trial_that_ran_out_of_gpu_memory_runs_again_on_an_empty_gpu_without_a_memory_limit(
    make: Make,
) -> None:
    places = learned(make("GPU-a"), 10)
    beside, alone = Trial(places), Trial(places, AloneOn.GPU)
    after = Trial(places)
    assert alone.has_to_wait()
    assert "an empty GPU: GPU-a" in alone.running.control.waits_for
    assert after.waits
    beside.end()
    place = alone.begun()
    assert place.claim_bytes is None
    assert place.is_alone_on_gpu
    assert after.has_to_wait()
    alone.end()
    after.begun()


def test_a_trial_predicted_to_need_more_memory_than_any_gpu_has_gets_a_gpu_alone(
    make: Make,
) -> None:
    places = learned(make("GPU-a"), 39)
    first = Trial(places)
    first.begun()
    second = Trial(places)
    assert second.has_to_wait()


def test_trials_with_several_gpus_share_none_of_them(make: Make) -> None:
    places = make("GPU-a", "GPU-b", "GPU-c", gpus_per_trial=2)
    first = Trial(places)
    assert names(first.begun()) == "GPU-a,GPU-b"
    second = Trial(places)
    assert second.has_to_wait()
    first.end()
    second.begun()


def test_a_gpu_that_allows_only_one_process_gets_one_trial_at_a_time(make: Make) -> None:
    driver = StatedDriver("GPU-a")
    driver.gpus = [replace(gpu, is_exclusive=True) for gpu in driver.gpus]
    places = learned(make(driver=driver), 1)
    first, second = Trial(places), Trial(places)
    assert second.has_to_wait()
    assert "EXCLUSIVE_PROCESS" in second.running.control.waits_for
    first.end()
    second.begun()


def test_a_trials_gpu_memory_peak_is_the_larger_of_the_values_of_driver_and_torch(
    make: Make,
) -> None:
    driver = StatedDriver("GPU-a")
    places = make(driver=driver)
    with places.lease(trial_spec(), RunningTrial()) as place:
        driver.used["GPU-a"] = 9 * GIB
        for torch_bytes, peak_bytes in ((8 * GIB, 9 * GIB), (9 * GIB, 9 * GIB + CONTEXT_BYTES)):
            gpu = places.settle(place, COMPLETED, torch_bytes=torch_bytes).gpu
            assert gpu is not None
            assert gpu.peak_bytes == peak_bytes


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        (Reason.OUT_OF_MEMORY, "does not fit on this GPU, even alone: why"),
        (Reason.OUT_OF_HOST_MEMORY, "does not fit into this machine's memory, even with no other"),
    ],
)
def test_a_trial_is_infeasible_only_if_no_other_trial_used_the_memory_that_ran_out(
    make: Make, reason: Reason, words: str
) -> None:
    outcome = TrialOutcome(state=FAILED, reason=reason, message="why")
    places = learned(make("GPU-a"), 1)
    with places.lease(trial_spec(alone_on=AloneOn.GPU), RunningTrial()) as place:
        alone = places.settle(place, outcome)
        assert alone.is_infeasible
        assert alone.message.startswith(words)
    with ExitStack() as stack:
        leases = [places.lease(trial_spec(), RunningTrial()) for _ in range(2)]
        for place in [stack.enter_context(lease) for lease in leases]:
            settled = places.settle(place, outcome)
            assert (settled.is_infeasible, settled.message) == (False, "why")


def test_lack_of_host_memory_next_to_other_dask_workers_does_not_make_a_trial_infeasible(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    outcome = TrialOutcome(state=FAILED, reason=Reason.OUT_OF_HOST_MEMORY, message="why")
    places = Places.of_machine(Resources(gpus="none"), jobs=1, shares_machine=True)
    # Each Dask worker marks its kernels by another value of an environment variable, so to this
    # worker the others look like other sweeps.
    monkeypatch.setattr(places, "_is_next_to_sweep", lambda: True)
    with places.lease(trial_spec(alone_on=AloneOn.MACHINE), RunningTrial()) as place:
        assert places.settle(place, outcome) == outcome


@pytest.mark.parametrize(
    ("mark", "free_kb", "alone_on", "is_infeasible", "state"),
    [
        ("ours-1", 10, AloneOn.MACHINE, True, FAILED),
        ("another", 10**7, AloneOn.MACHINE, True, FAILED),
        ("another", 10, None, False, FAILED),
        ("another", 10, AloneOn.MACHINE, False, TrialState.STOPPED),
    ],
)
def test_a_lone_trial_out_of_host_memory_next_to_another_sweep_is_stopped_and_not_failed(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    mark: str,
    free_kb: int,
    alone_on: AloneOn | None,
    is_infeasible: bool,
    state: TrialState,
) -> None:
    outcome = TrialOutcome(state=FAILED, reason=Reason.OUT_OF_HOST_MEMORY, message="why")
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc" / "meminfo").write_text(f"MemAvailable: {free_kb} kB\n")
    places = Places(root=tmp_path)
    with (
        places.opened(folder=tmp_path, token="ours"),
        process() as pid,
        places.lease(trial_spec(alone_on=alone_on), RunningTrial()) as place,
    ):
        monkeypatch.setattr("sweeper.machine.places.marked_processes", lambda _: {pid: mark})
        settled = places.settle(place, outcome)
    assert (settled.is_infeasible, settled.state) == (is_infeasible, state)


def test_a_sweep_in_another_batch_job_is_not_blamed_for_lack_of_memory_in_this_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome = TrialOutcome(state=FAILED, reason=Reason.OUT_OF_HOST_MEMORY, message="why")
    with process() as other:
        for file, text in {
            "proc/self/cgroup": "0::/job_1",
            f"proc/{other}/cgroup": "0::/job_2",
            "sys/fs/cgroup/job_1/memory.max": "10000",
            "sys/fs/cgroup/job_1/memory.current": "9990",
        }.items():
            (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / file).write_text(f"{text}\n")
        monkeypatch.setattr("sweeper.machine.places.marked_processes", lambda _: {other: "another"})
        places = Places(root=tmp_path)
        with places.lease(trial_spec(alone_on=AloneOn.MACHINE), RunningTrial()) as place:
            assert places.settle(place, outcome).is_infeasible


def test_a_trial_out_of_memory_is_not_infeasible_if_another_sweep_or_program_used_its_gpu(
    make: Make,
) -> None:
    outcome = TrialOutcome(state=FAILED, reason=Reason.OUT_OF_MEMORY, message="why")
    driver = StatedDriver("GPU-a")
    places, another_sweep = (learned(make(driver=driver), 1) for _ in range(2))
    first = Trial(places)
    place = first.begun()
    with process() as pid:
        first.running.points.note_kernel(pid)
        first.shows(driver, 20)
        assert places.settle(place, outcome).is_infeasible
        driver.used["GPU-a"] = 38 * GIB
        assert not places.settle(place, outcome).is_infeasible
        driver.used["GPU-a"] = 20 * GIB
        assert not places.settle(place, outcome).is_infeasible, (
            "a program that has ended since may have used the memory"
        )
        first.end()
    driver.used["GPU-a"] = 0
    driver.by_process["GPU-a"] = {}
    second = Trial(places)
    place = second.begun()
    assert places.settle(place, outcome).is_infeasible
    Trial(another_sweep).begun()
    assert not places.settle(place, outcome).is_infeasible


def test_gpu_memory_used_by_a_shell_command_of_the_trial_counts_as_the_trials_own(
    make: Make,
) -> None:
    outcome = TrialOutcome(state=FAILED, reason=Reason.OUT_OF_MEMORY, message="why")
    driver = StatedDriver("GPU-a")
    places = learned(make(driver=driver), 1)
    trial = Trial(places)
    place = trial.begun()
    code = "setsid sleep 60 & echo $!; wait"  # a shell command of a notebook has its own session
    kernel = subprocess.Popen(["sh", "-c", code], stdout=subprocess.PIPE, start_new_session=True)
    with kernel, process() as other:
        assert kernel.stdout is not None
        command = int(kernel.stdout.readline())
        until(lambda: os.getsid(command) == command)
        trial.running.points.note_kernel(kernel.pid)
        driver.by_process["GPU-a"] = {kernel.pid: GIB, command: 30 * GIB}
        driver.used["GPU-a"] = 31 * GIB
        assert places.settle(place, outcome).is_infeasible
        assert place.use().peak_bytes == 31 * GIB
        driver.by_process["GPU-a"] = {kernel.pid: GIB, other: 30 * GIB}
        assert not places.settle(place, outcome).is_infeasible
        os.kill(command, signal.SIGKILL)


def test_a_gpu_library_that_fails_to_start_counts_as_out_of_memory_only_on_a_shared_gpu(
    make: Make,
) -> None:
    outcome = TrialOutcome(state=FAILED, reason=Reason.OUT_OF_MEMORY, message="oh")
    places = make("GPU-a")
    with places.lease(trial_spec(), RunningTrial()) as place:
        fault = Fault.MAYBE_GPU_MEMORY
        settled = places.settle(place, outcome, fault=fault)
        assert settled == replace(outcome, reason=Reason.CELL_ERROR, gpu=settled.gpu)
        place.is_alone_on_gpu = False
        assert places.settle(place, outcome, fault=fault).reason is Reason.OUT_OF_MEMORY


def test_without_a_known_gpu_an_out_of_memory_error_counts_as_lack_of_host_memory() -> None:
    """XLA raises this error for host memory too. GPUs other than NVIDIA's are not listed."""
    places = Places()
    message = "XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory allocating 8 bytes."
    outcome = TrialOutcome(state=FAILED, reason=Reason.OUT_OF_MEMORY, message=message)
    with places.lease(trial_spec(), RunningTrial()) as place:
        settled = places.settle(place, outcome)
        assert (settled.reason, settled.is_infeasible) == (Reason.OUT_OF_HOST_MEMORY, True)


# --- frozen trials whose memory other trials need ------------------------------------------------


class NoCheckpoints(CudaCheckpoints):
    """A driver that accepts each call to move GPU memory to host memory or back."""

    def _accept(self, pid: int) -> None:
        """Do nothing."""

    lock = checkpoint = restore = unlock = _accept


def test_a_trial_that_needs_the_machine_alone_asks_frozen_trials_to_end_if_no_other_runs() -> None:
    places = Places(look_s=0.01)
    first, second = Trial(places, number=0), Trial(places, number=1)
    first.freeze()
    alone, after = Trial(places, AloneOn.MACHINE, number=2), Trial(places, number=3)
    assert alone.has_to_wait()
    assert alone.asked == [], "another trial runs, so an end of the frozen one would not help yet"
    second.end()
    assert alone.asks(first)
    assert not alone.asked[-1].lacks_gpu
    assert after.asked == [], "a trial that waits for its turn asks nobody"
    assert places.waiting == 2
    first.end()
    assert alone.begun().is_alone


def test_a_waiting_trial_asks_frozen_trials_to_leave_a_gpu_only_if_it_could_then_begin_there(
    make: Make,
) -> None:
    places = make("GPU-a", "GPU-b", gpu_memory=18 * GIB)
    trials = [Trial(places, number=number) for number in range(4)]
    on_a = [trial for trial in trials if names(trial.begun()) == "GPU-a"]
    on_b = [trial for trial in trials if trial not in on_a]
    for trial in (*on_a, on_b[0]):
        trial.freeze()
    alone = Trial(places, AloneOn.GPU, number=4)
    assert alone.asks(*on_a), "on the other GPU, a trial still runs"
    assert alone.asked[-1].lacks_gpu
    alone.running.control.stop(StopReason.INTERRUPTED)
    alone.end()
    other = Trial(places, number=5)
    assert other.has_to_wait()
    assert set(other.asked[-1].by) == {t.running.control for t in (*on_a, on_b[0])}


def test_a_trial_that_needs_an_empty_gpu_asks_the_frozen_trials_on_the_gpu_with_fewest_trials(
    make: Make,
) -> None:
    places = make("GPU-a", "GPU-b", gpu_memory=18 * GIB)
    trials = [Trial(places, number=number) for number in range(4)]
    on_b = [trial for trial in trials if names(trial.begun()) == "GPU-b"]
    for trial in trials:
        trial.freeze()
    on_b[0].end()
    assert Trial(places, AloneOn.GPU, number=4).asks(on_b[1])


def test_a_trial_that_needs_an_empty_gpu_asks_no_frozen_trial_to_leave_while_another_runs_there(
    make: Make,
) -> None:
    places = make("GPU-a", gpu_memory=18 * GIB)
    frozen, beside = Trial(places), Trial(places)
    frozen.freeze()
    alone = Trial(places, AloneOn.GPU)
    assert alone.has_to_wait()
    assert alone.asked == []
    beside.end()
    assert alone.asks(frozen)


def test_no_frozen_trial_is_asked_to_leave_a_gpu_that_other_sweeps_or_programs_fill(
    make: Make,
) -> None:
    driver = StatedDriver("GPU-a")
    places = make(driver=driver, gpu_memory=18 * GIB)
    with process() as pid:
        frozen = Trial(places)
        frozen.running.points.note_kernel(pid)
        frozen.shows(driver, 4)
        frozen.freeze()
        driver.used["GPU-a"] = 30 * GIB
        waiting = Trial(places)
        assert waiting.has_to_wait()
        assert waiting.asked == []
        driver.used["GPU-a"] = 16 * GIB
        assert waiting.asks(frozen)


def test_no_frozen_trial_is_asked_to_leave_while_an_ending_kernel_will_free_enough_memory(
    make: Make,
) -> None:
    places = make("GPU-a", gpu_memory=18 * GIB)
    frozen, completed = Trial(places), Trial(places)
    frozen.freeze()
    places.settle(completed.begun(), COMPLETED)
    following = Trial(places)
    assert following.has_to_wait()
    assert following.asked == []
    completed.end()
    following.begun()
    running = following.begun()
    assert places.machine_of(running).blocked() == Blocked(
        by=[frozen.running.control], lacks_gpu=True
    )
    frozen.running.control.stop(StopReason.PRUNED)
    assert places.machine_of(running).blocked() == Blocked(), "the frozen trial is ending already"


def test_the_memory_peak_of_a_trial_that_was_frozen_at_its_first_report_becomes_known(
    make: Make,
) -> None:
    driver = StatedDriver("GPU-a")
    places = make(driver=driver)
    with process() as pid:
        first = Trial(places)
        first.running.points.note_kernel(pid)
        driver.by_process["GPU-a"][pid] = driver.used["GPU-a"] = 8 * GIB
        first.running.points.publish(Point(metrics={"val": 0.0}, step=0))
        second = Trial(places, number=1)
        assert second.has_to_wait()
        first.freeze()
        assert second.begun().claim_bytes == round(1.1 * 8 * GIB)
        assert second.asked == []


def test_a_running_trial_can_be_frozen_for_a_waiting_one_if_its_memory_can_leave_the_gpu(
    make: Make,
) -> None:
    driver = StatedDriver("GPU-a")
    places = make(driver=driver, checkpoints=NoCheckpoints(), gpu_memory=18 * GIB)
    with process() as pid:
        first, _, third = (Trial(places, number=number) for number in range(3))
        first.running.points.note_kernel(pid)
        first.shows(driver, 18)
        machine = places.machine_of(first.begun())
        until(lambda: machine.blocked() is None)
        assert third.waits
        alone = Trial(places, AloneOn.MACHINE, number=3)
        third.running.control.stop(StopReason.INTERRUPTED)
        third.end()
        assert alone.has_to_wait()
        assert machine.blocked() == Blocked(), (
            "the waiting trial needs the machine alone, so a freeze would not help"
        )


def test_a_running_trial_whose_memory_cannot_leave_the_gpu_is_not_frozen_while_others_wait(
    make: Make,
) -> None:
    places = make("GPU-a", gpu_memory=18 * GIB)
    first, _, third = (Trial(places, number=number) for number in range(3))
    assert third.has_to_wait()
    assert places.machine_of(first.begun()).blocked() == Blocked()


def test_a_trial_whose_memory_stays_on_the_gpu_is_not_frozen_while_another_frozen_trial_is_there(
    make: Make,
) -> None:
    driver = StatedDriver("GPU-a")
    places = make(driver=driver, checkpoints=NoCheckpoints(), gpu_memory=18 * GIB)
    with process() as pid, process() as other_pid:
        frozen, stays = (Trial(places, number=number) for number in range(2))
        for trial, kernel in ((frozen, pid), (stays, other_pid)):
            trial.running.points.note_kernel(kernel)
            trial.shows(driver, 17)
        frozen.freeze()
        until(lambda: frozen.running.control.can_leave_gpu())
        stays.begun().stays = True
        blocked = places.machine_of(stays.begun()).blocked()
        assert blocked == Blocked(by=[frozen.running.control], lacks_gpu=True)


def test_a_trial_that_needs_the_machine_alone_waits_for_thawed_trials_that_return_to_their_gpu(
    make: Make,
) -> None:
    driver = StatedDriver("GPU-a")
    places = make(driver=driver, checkpoints=NoCheckpoints(), gpu_memory=18 * GIB)
    with process() as pid:
        first = Trial(places, number=0)
        first.running.points.note_kernel(pid)
        first.shows(driver, 18)
        first.freeze()
        assert first.running.control.leave_gpu()
        alone = Trial(places, AloneOn.MACHINE, number=1)
        assert alone.asks(first), "the GPU memory of the frozen trial is in host memory now"
        assert not alone.asked[-1].lacks_gpu
        assert first.running.control.thaw()
        until(lambda: not first.running.control.is_off_gpu)
        assert alone.has_to_wait()
        assert "the end of 0000" in alone.running.control.waits_for
        first.end()
        assert alone.begun().is_alone


# --- other sweeps, and GPUs that fail ------------------------------------------------------------


def test_a_wait_for_a_gpu_of_another_sweep_is_logged_once_with_that_sweeps_process(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    other = Trial(make("GPU-a"))
    other.begun()
    places = make("GPU-a")
    waiting = [Trial(places, number=number) for number in range(2)]
    until(lambda: caplog.text)
    assert all(trial.has_to_wait() for trial in waiting)
    (said,) = [record.getMessage() for record in caplog.records]
    assert_says(said, "0000 waits for", "another sweep", f"process {os.getpid()}")


def test_a_wait_for_a_gpu_that_trials_of_the_same_sweep_use_is_not_logged(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    places = make("GPU-a")
    Trial(places).begun()
    assert Trial(places, number=1).has_to_wait()
    assert not caplog.text


def test_sweeps_of_one_user_respect_each_others_memory_reservations(make: Make) -> None:
    other = Trial(make("GPU-a", gpu_memory=30 * GIB))
    large = Trial(make("GPU-a", gpu_memory=10 * GIB))
    assert large.has_to_wait()
    assert "another sweep 32.7 GB" in large.running.control.waits_for
    small = Trial(make("GPU-a", gpu_memory=4 * GIB))
    small.begun()
    other.end()
    large.begun()


def test_a_gpu_that_does_not_answer_is_no_longer_used_and_its_trial_ends_as_stopped(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    driver = StatedDriver("GPU-a", "GPU-b")
    places = learned(make(driver=driver), 1)
    trial = Trial(places)
    place = trial.begun()
    driver.lost.add(names(place))
    failed = TrialOutcome(state=FAILED, reason=Reason.CELL_ERROR, message="oh")
    settled = places.settle(place, failed)
    assert (settled.state, settled.reason) == (TrialState.STOPPED, Reason.GPU_FAULT)
    others = [Trial(places) for _ in range(3)]
    assert {names(other.begun()) for other in others} == {"GPU-a", "GPU-b"} - {names(place)}
    assert caplog.text.count(f"{names(place)} runs no more trials of this sweep") == 1


def test_a_gpu_with_an_uncorrectable_error_is_no_longer_used(make: Make) -> None:
    places = make("GPU-a")
    with places.lease(trial_spec(), RunningTrial()) as place:
        failed = TrialOutcome(state=FAILED, reason=Reason.CELL_ERROR, message="oh")
        assert places.settle(place, failed).state is FAILED
        assert places.settle(place, failed, fault=Fault.DEVICE).reason is Reason.GPU_FAULT
    with pytest.raises(NoGpuLeftError):
        places.lease(trial_spec(), RunningTrial()).__enter__()


def test_the_reason_for_which_a_trial_waits_is_logged_once(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    places = learned(make("GPU-a"), 30)
    with caplog.at_level(logging.INFO, logger="sweeper"):
        first, second = Trial(places, number=0), Trial(places, number=1)
        assert second.has_to_wait()
        for trial in (first, second):
            trial.end()
    assert caplog.text.count("trial 0001 waits for 35.4 GB of a GPU: GPU-a has") == 1
    assert len(second.told) == 1
