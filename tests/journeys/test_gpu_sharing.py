"""Test kernels that share simulated GPUs: in turns, or at once by a stand-in for NVIDIA's MPS."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import mps_stand_in
import nbformat
import pytest
from simulated_gpu import DEVICE_CELL, SimulatedGpus
from studies import forked, run_until, small_settings, until

from sweeper import Sweep
from sweeper.execution.local import LocalExecutor
from sweeper.machine.claims import Claims
from sweeper.machine.mps import Mps
from sweeper.machine.places import Places
from sweeper.testing import write_notebook
from sweeper.trials import Reason, SweepResult, TrialState

pytestmark = pytest.mark.kernel

GB = 10**9
#: Number of trials. Four of them, with 8.4 GB each, fit on the GPU at once.
TRIALS = 9
#: Settings of sweeps that end before all trials have run, once `enough` returns true.
MANY = {"trials": 100}


@pytest.fixture
def gpu(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimulatedGpus]:
    """Simulate one GPU of 40 GB."""
    folder = tmp_path_factory.mktemp("g")
    with SimulatedGpus(folder, memory_bytes=40 * GB) as gpus:
        yield gpus


def run(
    gpus: SimulatedGpus,
    folder: Path,
    cell: str,
    *,
    jobs: int = 5,
    mps: Mps | None = None,
    enough: Callable[[list[Any]], bool] = lambda _: False,
    **settings: Any,
) -> SweepResult:
    """Sweep a notebook with a cell that uses a simulated GPU through the variable `device`.

    No more trials start once `enough` is true for the metadata of the trials that have ended.
    """
    begin = f"{DEVICE_CELL}\nimport sweeper\ndevice = Device({str(gpus.folder)!r})"
    notebook = write_notebook(folder / "nb.ipynb", begin, cell, parameters="x = 0.5")
    read = small_settings("shared", **settings)
    places = Places(
        gpus.installed(),
        driver=gpus,
        claims=Claims(folder / "claims"),
        resources=read.resources,
        mps=mps,
        look_s=0.05,
        settled_s=0.3,
    )
    return run_until(
        enough,
        lambda observer: Sweep.from_settings(
            read,
            notebook=notebook,
            output=f"{folder}/out/{{run_id}}.ipynb",
            executor=lambda workload: LocalExecutor(workload, places=places, jobs=jobs),
            observer=observer,
        ),
    )


TRAIN = """
device.take(int({gb} * 10**9))
for step in range(10):
    device.work(0.05)
    sweeper.report(step, val=x * step)
"""


#: Cell in which some trials wait until a certain number of them has begun.
MEET = """
import pathlib, time
number, here = sweeper.trial().number, pathlib.Path("here")
if number {which}:
    here.mkdir(exist_ok=True)
    (here / str(number)).touch()
    end_s = time.monotonic() + 60
    while len(list(here.iterdir())) < {count} and time.monotonic() < end_s:
        time.sleep(0.01)
"""
#: The same for the trials from 0004 on. They begin when the memory peak of others is known.
MEET_LATER = MEET.format(which=">= 4", count=4)


def test_the_sweep_finds_out_by_itself_how_many_trials_fit_on_a_gpu(
    gpu: SimulatedGpus, tmp_path: Path
) -> None:
    result = run(gpu, tmp_path, TRAIN.format(gb=8.4) + MEET_LATER, study={"trials": TRIALS})
    state = gpu.state("GPU-0")
    assert result.counts["completed"] == TRIALS
    assert state["peak_bytes"] == 4 * 8_400_000_000
    assert state["n_refused"] == 0
    assert all(record.attempt == 1 for record in result.records)
    node = nbformat.read(result.records[0].notebook, as_version=4)
    assert node.metadata["sweeper"]["gpu"]["peak_bytes"] == 8_400_000_000
    for trial in result.to_json()["trials"]:
        assert 0 < trial["gpu_busy_share"] <= 1
        assert trial["gpu_peak_bytes"] == 8_400_000_000


def test_a_trial_that_runs_out_of_memory_on_a_shared_gpu_is_run_again_and_completes(
    gpu: SimulatedGpus, tmp_path: Path
) -> None:
    cell = f"{TRAIN.format(gb=6)}{MEET_LATER}    device.take(9 * 10**9)\n"
    result = run(gpu, tmp_path, cell, study={"trials": 8})
    assert result.counts["completed"] == 8
    again = [record for record in result.records if record.attempt > 1]
    assert again
    assert all(record.number >= 4 for record in again)


def test_a_trial_that_does_not_fit_alone_fails_without_affecting_other_trials(
    gpu: SimulatedGpus, tmp_path: Path
) -> None:
    cell = TRAIN.format(gb="(60 if sweeper.trial().number == 3 else 10)")
    result = run(gpu, tmp_path, cell, jobs=3, study={"trials": 5})
    assert result.counts == {"completed": 4, "failed": 1, "pruned": 0, "stopped": 0}
    failed = result.records[3]
    assert (failed.state, failed.reason) == (TrialState.FAILED, Reason.OUT_OF_MEMORY)
    assert "CUDA out of memory" in failed.message
    assert failed.message.startswith("does not fit on this GPU, even alone")
    assert [record.number for record in result.records if record.is_infeasible] == [3]
    assert 2 <= failed.attempt <= 3


# Start kernels afresh: those that the tests usually fork ignore the folder in PYTHONPATH.
@pytest.mark.usefixtures("started_kernels_here")
def test_a_module_that_reads_the_visible_gpus_at_import_sees_the_trials_gpu_in_a_forked_kernel(
    gpu: SimulatedGpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = tmp_path / "site-packages"
    installed.mkdir()
    (installed / "decides.py").write_text("import os\nGPU = os.environ['CUDA_VISIBLE_DEVICES']\n")
    monkeypatch.setenv("PYTHONPATH", str(installed), prepend=os.pathsep)
    cell = "import decides, time\ntime.sleep(0.5)\nval = x * bool(decides.GPU)"
    result = run(gpu, tmp_path, cell, jobs=1, kernels="fork", enough=forked(1), study=MANY)
    assert any(kernel.is_forked for kernel in result.kernels), result.kernels
    assert [it.scores["val"] for it in result.records] == [it.params["x"] for it in result.records]


# --- with MPS ------------------------------------------------------------------------------------

MPS: dict[str, Any] = {"jobs": 3, "resources": {"gpu_memory": "8GB", "mps": "auto"}}


@pytest.fixture
def crowded_gpu(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[SimulatedGpus]:
    """Simulate one GPU of 40 GB that runs several processes at once, with a program for MPS."""
    programs = tmp_path / "bin"
    programs.mkdir()
    mps_stand_in.installed(programs)
    monkeypatch.setenv("PATH", str(programs), prepend=os.pathsep)
    folder = tmp_path_factory.mktemp("g")
    with SimulatedGpus(folder, memory_bytes=40 * GB, mode="mps") as gpus:
        yield gpus


class LoggedMps(Mps):
    """Keeps the lines of its daemon's log. The log itself is removed with the sweep's folder."""

    log: list[str]

    def start(self, *arguments: Any, **options: Any) -> None:
        super().start(*arguments, **options)
        self._file = options["folder"] / "mps0" / "log" / "control.log"

    def close(self) -> None:
        super().close()
        until(lambda: "ended in order" in self._file.read_text())
        self.log = self._file.read_text().splitlines()


IS_MPS = """
import os
sweeper.score(is_mps="control" in os.listdir(os.environ["CUDA_MPS_PIPE_DIRECTORY"]))
"""
#: A cell in which trial 1 causes a GPU fault, either next to two other trials or alone.
FAULT = """
if number == 1:
    device.fault()
device.work(0.5)
val = x
"""


def test_kernels_of_a_sweep_with_mps_are_forked_and_use_mps(
    crowded_gpu: SimulatedGpus, tmp_path: Path
) -> None:
    mps, cell = LoggedMps(), TRAIN.format(gb=8) + IS_MPS
    options = {"kernels": "fork", "study": MANY, **MPS}
    result = run(crowded_gpu, tmp_path, cell, mps=mps, enough=forked(1), **options)
    done = [record for record in result.records if record.state is TrialState.COMPLETED]
    assert any(kernel.is_forked for kernel in result.kernels)
    assert {record.scores["is_mps"] for record in done} == {1.0}
    assert len([line for line in mps.log if line.endswith("accepted")]) >= len(done)


def test_a_gpu_fault_fails_only_the_trial_that_caused_it_and_others_on_the_gpu_run_again(
    crowded_gpu: SimulatedGpus, tmp_path: Path
) -> None:
    mps, cell = LoggedMps(), MEET.format(which="< 3", count=3) + FAULT
    result = run(crowded_gpu, tmp_path, cell, mps=mps, study={"trials": 4}, kernels="cold", **MPS)
    assert result.counts == {"completed": 3, "failed": 1, "pruned": 0, "stopped": 0}
    culprit = result.records[1]
    assert (culprit.state, culprit.reason) == (TrialState.FAILED, Reason.CELL_ERROR)
    assert "unspecified launch failure" in culprit.message
    assert culprit.attempt <= 3
    assert all(result.records[number].attempt > 1 for number in (0, 2))
    # The daemon logs only faults of clients of MPS. A trial that runs alone does not use MPS.
    assert 1 <= mps.log.count("fault") <= 2
