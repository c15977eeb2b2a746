"""Test sweeps on a simulated GPU that has no room for frozen trials.

A frozen trial is paused, so that another one gets its slot. Its GPU memory is moved to host memory
until it continues.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from simulated_gpu import DEVICE_CELL, SimulatedCheckpoints, SimulatedGpus
from studies import kernels_in, small_settings, until

from sweeper import Sweep
from sweeper.execution.local import LocalExecutor
from sweeper.machine.claims import Claims
from sweeper.machine.places import Places
from sweeper.testing import write_notebook
from sweeper.trials import SweepResult, TrialState

pytestmark = pytest.mark.kernel

GB = 10**9
SPACE = [0.1, 0.2, 0.3, 0.5, 0.6, 0.7, 0.8, 0.9]
#: A training of which two fill the GPU. Trials improve at different speeds, so that early scores do
#: not show the winner.
TRAIN = """
import math
device.take(18 * 10**9)
for epoch in range(12):
    device.work(0.15)
    pace = 2 + 4 * ((7 * x) % 1)
    sweeper.report(epoch, acc=(1 - abs(x - 0.7)) * (1 - math.exp(-(epoch + 1) / pace)))
"""


@pytest.fixture
def gpu(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimulatedGpus]:
    """Simulate one GPU of 40 GB."""
    with SimulatedGpus(tmp_path_factory.mktemp("g"), memory_bytes=40 * GB) as gpus:
        yield gpus


def sweep(gpus: SimulatedGpus, folder: Path, checkpoints: SimulatedCheckpoints) -> SweepResult:
    begin = f"{DEVICE_CELL}\nimport sweeper\ndevice = Device({str(gpus.folder)!r})"
    notebook = write_notebook(folder / "nb.ipynb", begin, TRAIN, parameters="x = 0.5")
    settings = small_settings(
        "off",
        study={"trials": len(SPACE), "sampler": {"name": "grid"}, "pruner": "auto"},
        objective={"acc": "maximize"},
        space={"x": SPACE},
        resources={"gpu_memory": "18GB", "frozen": "off_gpu"},
        kernels="cold",
    )
    # A simulated machine, because the real one may lack memory while tests run in parallel.
    places = Places(
        gpus.installed(),
        driver=gpus,
        claims=Claims(folder / "claims"),
        resources=settings.resources,
        checkpoints=checkpoints,
        root=folder / "no files that say how much memory is free",
        look_s=0.05,
    )
    return Sweep.from_settings(
        settings,
        notebook=notebook,
        output=f"{folder}/out/{{run_id}}.ipynb",
        executor=lambda workload: LocalExecutor(workload, places=places, jobs=2),
    ).run()


def assert_complete(result: SweepResult) -> None:
    assert {record.state for record in result.records} <= {TrialState.COMPLETED, TrialState.PRUNED}
    assert len(result.records) == len(SPACE)
    assert result.best[0].params == {"x": 0.6}


def test_frozen_trials_leave_a_full_gpu_and_the_winner_among_them_returns_and_completes(
    gpu: SimulatedGpus, tmp_path: Path
) -> None:
    checkpoints = SimulatedCheckpoints(gpu)
    result = sweep(gpu, tmp_path, checkpoints)
    assert_complete(result)
    assert result.best[0].attempt == 1
    assert "checkpoint" in checkpoints.done, "a trial was frozen without room for it"
    assert "restore" in checkpoints.done, "a frozen trial continued"
    state = gpu.state("GPU-0")
    assert state["peak_bytes"] == 36 * GB
    assert state["n_refused"] == 0
    assert state["used_by"] == {}
    assert not kernels_in(tmp_path)


def test_a_frozen_trial_whose_process_dies_on_its_return_to_the_gpu_runs_again(
    gpu: SimulatedGpus, tmp_path: Path
) -> None:
    checkpoints = SimulatedCheckpoints(gpu)
    killed: list[int] = []

    def before(name: str, pid: int) -> None:
        if name == "restore" and not killed:
            killed.append(pid)
            os.kill(pid, signal.SIGKILL)
            until(lambda: not _runs(pid))

    checkpoints.before = before
    result = sweep(gpu, tmp_path, checkpoints)
    assert killed, "no frozen trial continued"
    assert_complete(result)
    assert sum(record.attempt > 1 for record in result.records) == 1
    assert not kernels_in(tmp_path)


def _runs(pid: int) -> bool:
    """Return whether a process exists and is no zombie."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
