"""The memory of a frozen (paused) trial leaves the simulated GPU and returns, or the trial ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from simulated_gpu import DEVICE_CELL, SimulatedCheckpoints, SimulatedGpus
from studies import until

from sweeper.machine.claims import Claims
from sweeper.machine.places import Places
from sweeper.notebook_api.messages import StopReason
from sweeper.settings.machines import Resources
from sweeper.trials import Control, Phase, RunningTrial, TrialSpec

pytestmark = pytest.mark.slow

GB = 10**9
#: Program that uses 18 GB of the GPU, and writes how often it has called `work`.
PROGRAM = """
device = Device(FOLDER)
device.take(18 * 10**9)
done = 0
while True:
    device.work(0.001)
    done += 1
    open(FILE, "w").write(str(done))
"""


class Trial:
    """A trial with a process on the simulated GPU.

    Attributes:
        running: The trial as its sweep controls it.
    """

    def __init__(self, folder: Path, gpus: SimulatedGpus, places: Places, spec: TrialSpec) -> None:
        self._file = folder / f"{spec.number}.txt"
        self._lease = ExitStack()
        self.running = RunningTrial()
        place = self._lease.enter_context(places.lease(spec, self.running))
        program = DEVICE_CELL + PROGRAM.replace("FOLDER", repr(str(gpus.folder)))
        self.process = subprocess.Popen(
            [sys.executable, "-c", program.replace("FILE", repr(str(self._file)))],
            env={**os.environ, **place.env},
            start_new_session=True,
        )
        self.running.points.note_kernel(self.process.pid)
        self.control.note_machine(places.machine_of(place))
        self.control.on_freeze(self._stand_still)
        until(lambda: self.done > 0)
        until(lambda: self.control._machine.can_leave_gpu())

    @property
    def control(self) -> Control:
        return self.running.control

    @property
    def done(self) -> int:
        """Number of calls of `work` that the process has made on the GPU."""
        try:
            return int(self._file.read_text() or 0)
        except FileNotFoundError:
            return 0

    def works(self) -> bool:
        before = self.done
        until(lambda: self.done > before)
        return True

    def end(self) -> None:
        self.control.on_freeze(None)
        self.process.kill()
        self.process.wait()
        self._lease.close()

    def _stand_still(self, is_still: bool) -> bool:
        self.process.send_signal(signal.SIGSTOP if is_still else signal.SIGCONT)
        return self.process.poll() is None


@pytest.fixture
def gpus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimulatedGpus]:
    """Simulate a GPU of 40 GB, on which two trials have room."""
    with SimulatedGpus(tmp_path_factory.mktemp("g"), memory_bytes=40 * GB) as simulated:
        yield simulated


@pytest.fixture
def checkpoints(gpus: SimulatedGpus) -> SimulatedCheckpoints:
    return SimulatedCheckpoints(gpus)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return the root of a file system without files that say how much host memory is free."""
    return tmp_path / "root"


@pytest.fixture
def begin(
    gpus: SimulatedGpus,
    checkpoints: SimulatedCheckpoints,
    root: Path,
    tmp_path: Path,
    make_spec: Callable[..., TrialSpec],
) -> Iterator[Callable[[int], Trial]]:
    """Return a function that begins a trial by its number. All trials are ended at the end."""
    places = Places(
        gpus.installed(),
        driver=gpus,
        claims=Claims(tmp_path / "claims"),
        resources=Resources(gpu_memory="18GB"),  # type: ignore[arg-type]  # read from a text
        checkpoints=checkpoints,
        root=root,
        look_s=0.02,
    )
    begun: list[Trial] = []

    def start(number: int) -> Trial:
        begun.append(Trial(tmp_path, gpus, places, make_spec(number=number)))
        return begun[-1]

    yield start
    for trial in begun:
        trial.end()


def test_a_frozen_trial_gives_its_gpu_memory_to_another_trial_and_continues_later(
    begin: Callable[[int], Trial], gpus: SimulatedGpus
) -> None:
    first, second = begin(0), begin(1)
    assert first.control.freeze()
    assert first.control.leave_gpu()
    assert gpus.used_bytes("GPU-0") == 18 * GB
    done = first.done
    third = begin(2)
    assert second.works() and third.works()
    assert first.control.thaw()
    until(lambda: "18.5 GB of a GPU" in first.control.waits_for)
    assert first.done == done
    assert first.control.phase is Phase.RUNNING
    assert not first.control.freeze(), "the trial is returning to its GPU"
    second.end()
    assert first.works()
    until(lambda: not first.control.is_off_gpu)
    assert gpus.state("GPU-0")["n_refused"] == 0
    assert first.control.waits_for == ""
    assert first.control.freeze() and first.control.leave_gpu(), "the trial can leave its GPU again"


@pytest.mark.parametrize("step", ["lock", "checkpoint"])
def test_a_frozen_trial_keeps_its_gpu_memory_after_the_driver_refused_once_to_move_it(
    begin: Callable[[int], Trial], checkpoints: SimulatedCheckpoints, step: str
) -> None:
    trial = begin(0)
    checkpoints.refused = {step}
    assert trial.control.freeze() and trial.control.can_leave_gpu()
    assert not trial.control.leave_gpu()
    assert not trial.control.can_leave_gpu()
    assert trial.control.phase is Phase.FROZEN
    assert trial.control.thaw() and trial.works()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.parametrize("step", ["lock", "checkpoint", "restore", "unlock"])
def test_gpu_memory_is_freed_if_a_process_dies_or_stops_while_its_memory_is_moved(
    begin: Callable[[int], Trial],
    checkpoints: SimulatedCheckpoints,
    gpus: SimulatedGpus,
    step: str,
    number: int,
) -> None:
    trial = begin(0)
    strikes = iter([None])

    def strike(name: str, pid: int) -> None:
        if name == step and next(strikes, 0) is None:
            os.kill(pid, number)
            until(lambda: _state(pid) in ("T", "Z", "gone"))

    checkpoints.before = strike
    assert trial.control.freeze()
    is_off = trial.control.leave_gpu()
    assert is_off == (step in ("restore", "unlock"))
    if is_off:
        assert trial.control.thaw()
        assert trial.process.wait(timeout=60) == -signal.SIGKILL
    elif step == "checkpoint":
        # The driver cannot undo the lock of a process that is gone or stopped.
        assert trial.process.wait(timeout=60) == -signal.SIGKILL
    trial.end()
    assert trial.control.phase is Phase.LOST
    until(lambda: gpus.used_bytes("GPU-0") == 0)
    begin(1).works()


def test_a_stop_ends_a_thawed_trials_wait_for_its_return_to_the_gpu(
    begin: Callable[[int], Trial],
) -> None:
    first = begin(0)
    assert first.control.freeze() and first.control.leave_gpu()
    begin(1), begin(2)
    assert first.control.thaw()
    until(lambda: first.control.waits_for)
    first.control.stop(StopReason.INTERRUPTED)
    until(lambda: first.control.waits_for == "")
    assert first.control.is_off_gpu, (
        "the trial has not returned, so its kernel cannot end by itself"
    )


def test_a_trial_stays_on_its_gpu_if_host_memory_has_no_room_for_a_copy(
    begin: Callable[[int], Trial], root: Path
) -> None:
    trial = begin(0)
    assert trial.control.freeze()
    file = root / "proc" / "meminfo"
    file.parent.mkdir(parents=True)
    for n_bytes, is_enough in ((18 * GB, False), (19 * GB, True)):
        file.write_text(f"MemAvailable: {n_bytes // 1024} kB\n")
        assert trial.control.can_leave_gpu() == is_enough


def _state(pid: int) -> str:
    """Return the state of a process as in `ps`, or `gone`."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "gone"
