"""Cores of a trial's own: who gets which, who waits, and what the kernel sees of it."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from studies import until

from sweeper.execution.machine.core_sets import CoreSets, neighbouring_cores, why_not
from sweeper.execution.machine.ledger import Ledger, StoppedWaiting
from sweeper.notebook_api.messages import StopReason
from sweeper.settings.machines import Resources
from sweeper.trials import RunningTrial

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are pinned on Linux")

Make = Callable[..., CoreSets]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Core sets of one sweep on a machine with four cores."""

    def made(per_trial: int = 2, patience_s: float = 60.0) -> CoreSets:
        ledger = Ledger(tmp_path / "claims")
        return CoreSets(per_trial, [0, 1, 2, 3], ledger=ledger, patience_s=patience_s)

    return made


class Asking(threading.Thread):
    """A trial that asks for cores on a thread of its own, and keeps them until `leave`."""

    def __init__(self, sets: CoreSets) -> None:
        super().__init__(daemon=True)
        self.running, self._leaves = RunningTrial(), threading.Event()
        self._sets = sets
        self.cores: list[int] = []
        self.start()

    def run(self) -> None:
        with suppress(StoppedWaiting), self._sets.lease(self.running) as cores:
            self.cores = list(cores)
            self._leaves.wait()

    def leave(self) -> None:
        self._leaves.set()
        self.join()


def test_trials_have_cores_of_their_own_and_the_next_one_waits_for_them(make: Make) -> None:
    sets = make()
    with sets.lease(RunningTrial()) as first, sets.lease(RunningTrial()) as second:
        assert (first, second) == ([0, 1], [2, 3])
        third = Asking(sets)
        until(lambda: third.running.waited_s > 0)
    until(lambda: third.cores == [0, 1])
    third.leave()


def test_a_stop_ends_the_wait_at_once(make: Make) -> None:
    sets = make(per_trial=4)
    with sets.lease(RunningTrial()):
        waiting = Asking(sets)
        until(lambda: waiting.running.waited_s > 0)
        waiting.running.stop(StopReason.INTERRUPTED)
        waiting.join()
        assert waiting.cores == []


def test_another_sweep_has_other_cores_and_those_of_a_killed_one_are_free(
    make: Make, tmp_path: Path
) -> None:
    program = (
        "import sys, time\nfrom pathlib import Path\n"
        "from sweeper.execution.machine.core_sets import CoreSets\n"
        "from sweeper.execution.machine.ledger import Ledger\n"
        "from sweeper.trials import RunningTrial\n"
        "sets = CoreSets(2, [0, 1, 2, 3], ledger=Ledger(Path(sys.argv[1])))\n"
        "with sets.lease(RunningTrial()) as cores:\n    print(cores, flush=True)\n"
        "    time.sleep(600)"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "claims")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "[0, 1]\n"
        with make().lease(RunningTrial()) as cores:
            assert cores == [2, 3]
        other.send_signal(signal.SIGKILL)
    with make().lease(RunningTrial()) as cores:
        assert cores == [0, 1]


def test_a_trial_that_has_long_waited_for_many_cores_goes_before_those_that_need_few(
    make: Make,
) -> None:
    small = make(per_trial=1)
    first, second = Asking(small), Asking(small)
    until(lambda: first.cores and second.cores)
    large = Asking(make(per_trial=4, patience_s=0.0))
    until(lambda: large.running.waited_s > 0.3)
    third = Asking(small)
    until(lambda: third.running.waited_s > 0.3)
    assert third.cores == [], "two cores are free, and the large trial has waited longer"
    first.leave()
    second.leave()
    until(lambda: large.cores == [0, 1, 2, 3])
    large.leave()
    until(lambda: third.cores == [0])
    third.leave()


def test_cores_of_one_chip_and_of_one_core_of_it_are_together(tmp_path: Path) -> None:
    cores = sorted(os.sched_getaffinity(0))
    for place, core in enumerate(cores):
        folder = tmp_path / f"sys/devices/system/cpu/cpu{core}/topology"
        folder.mkdir(parents=True)
        (folder / "physical_package_id").write_text("0\n")
        (folder / "core_id").write_text(f"{-place}\n")  # from the last to the first
    assert neighbouring_cores(tmp_path) == cores[::-1]
    assert neighbouring_cores(tmp_path / "nothing is known") == cores


def test_why_trials_cannot_have_cores_of_their_own_is_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    n_cores = len(os.sched_getaffinity(0))
    assert CoreSets.find(Resources(), workers=0) is None
    assert not caplog.messages
    asked = Resources(pin_cpus="auto")
    if why := why_not(1):
        pytest.skip(why)
    assert CoreSets.find(asked, workers=n_cores) is None
    found = CoreSets.find(asked, workers=0, jobs=n_cores + 1)
    assert found is not None
    assert found.per_trial == 1
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 2
    assert f"a trial needs {n_cores + 1} cores, and there are {n_cores}" in caplog.messages[0]
    assert f"the others of -j {n_cores + 1} wait" in caplog.messages[1]


def test_trials_run_where_no_claim_can_be_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "a file").touch()
    sets = CoreSets(1, [0, 1], ledger=Ledger(tmp_path / "a file" / "claims"))
    for _ in range(2):
        with sets.lease(RunningTrial()) as cores:
            assert cores == []
    (message,) = caplog.messages
    assert "trials are not pinned to cores" in message
