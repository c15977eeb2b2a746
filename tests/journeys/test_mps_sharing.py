"""Sweeps in real kernels that share a simulated GPU through a daemon of MPS, a stand-in's."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import mps_stand_in
import nbformat
import pytest
from simulated_gpu import DEVICE_CELL, SimulatedGpus
from studies import forked, run_until, until

from sweeper import Settings, Sweep
from sweeper.execution.claims import Claims
from sweeper.execution.local import LocalExecutor
from sweeper.execution.mps import Mps
from sweeper.execution.places import Places
from sweeper.execution.workload import Workload
from sweeper.settings.machines import Resources
from sweeper.testing import write_notebook
from sweeper.trials import Reason, SweepResult, TrialState

pytestmark = pytest.mark.kernel

GB = 10**9


@pytest.fixture
def gpu(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[SimulatedGpus]:
    """One GPU of 40 GB that runs the work of all processes at once, and a program for MPS."""
    programs = tmp_path / "bin"
    programs.mkdir()
    mps_stand_in.installed(programs)
    monkeypatch.setenv("PATH", str(programs), prepend=os.pathsep)
    folder = tmp_path_factory.mktemp("g")
    with SimulatedGpus(folder, memory_bytes=40 * GB, mode="mps") as gpus:
        yield gpus


def run(
    gpus: SimulatedGpus,
    folder: Path,
    cell: str,
    *,
    trials: int,
    kernels: str,
    log: list[str],
    enough: Callable[[list[Any]], bool] = lambda _: False,
) -> SweepResult:
    """A sweep over a cell that uses `device`; the daemon's log is appended to `log`."""
    begin = f"{DEVICE_CELL}\nimport sweeper\ndevice = Device({str(gpus.folder)!r})"
    notebook = write_notebook(folder / "nb.ipynb", begin, cell, parameters="x = 0.5")

    class Logged(Mps):
        def start(self, *arguments: Any, **options: Any) -> None:
            super().start(*arguments, **options)
            self.log = options["folder"] / "mps0" / "log" / "control.log"

        def close(self) -> None:
            super().close()
            until(lambda: "ended in order" in self.log.read_text())
            log.extend(self.log.read_text().splitlines())

    def executor(workload: Workload) -> LocalExecutor:
        places = Places(
            gpus.installed(),
            driver=gpus,
            claims=Claims(folder / "claims"),
            resources=Resources(gpu_memory=8 * GB),
            mps=Logged(),
            look_s=0.05,
            settled_s=0.3,
        )
        return LocalExecutor(workload, places=places, jobs=3)

    settings = Settings.from_mapping(
        {
            "study": {"name": "mps", "trials": trials, "sampler": "random"},
            "objective": {"val": "maximize"},
            "space": {"x": {"low": 0.0, "high": 1.0}},
            "resources": {"gpu_memory": "8GB", "mps": "auto"},
            "kernels": kernels,
        }
    )
    return run_until(
        enough,
        lambda observer: Sweep.from_settings(
            settings,
            notebook=notebook,
            output=f"{folder}/out/{{run_id}}.ipynb",
            executor=executor,
            observer=observer,
        ),
    )


TRAIN = """
import os
device.take(8 * 10**9)
for step in range(10):
    device.work(0.05)
    sweeper.report(step, val=x * step)
mps = "control" in os.listdir(os.environ["CUDA_MPS_PIPE_DIRECTORY"])
sweeper.score(is_mps=float(mps))
"""


def test_kernels_of_a_sweep_with_mps_are_forked_and_use_it(
    gpu: SimulatedGpus, tmp_path: Path
) -> None:
    log: list[str] = []
    result = run(gpu, tmp_path, TRAIN, trials=100, kernels="fork", log=log, enough=forked(1))
    done = [record for record in result.records if record.state is TrialState.COMPLETED]
    notebooks = [nbformat.read(record.notebook, as_version=4) for record in done]
    kernels = [node.metadata["sweeper"]["kernel"] for node in notebooks]
    assert "warm" in kernels
    assert {record.scores["is_mps"] for record in done} == {1.0}
    assert len([line for line in log if line.endswith("accepted")]) >= len(done)


#: Trial 1 has a fault when two others are there as well, or when it is alone.
FAULT = """
import pathlib, time
number, here = sweeper.trial().number, pathlib.Path("here")
if number < 3:
    device.take(8 * 10**9)
    here.mkdir(exist_ok=True)
    (here / str(number)).touch()
    end_s = time.monotonic() + 60
    while len(list(here.iterdir())) < 3 and time.monotonic() < end_s:
        time.sleep(0.01)
    if number == 1:
        device.fault()
    for step in range(10):
        device.work(0.05)
sweeper.score(val=x)
"""


def test_a_fault_costs_its_neighbours_only_another_run_and_its_trial_fails_alone(
    gpu: SimulatedGpus, tmp_path: Path
) -> None:
    log: list[str] = []
    result = run(gpu, tmp_path, FAULT, trials=4, kernels="cold", log=log)
    assert result.counts == {"completed": 3, "failed": 1, "pruned": 0, "stopped": 0}
    culprit = result.records[1]
    assert (culprit.state, culprit.reason) == (TrialState.FAILED, Reason.CELL_ERROR)
    assert "unspecified launch failure" in culprit.message
    assert culprit.attempt <= 3
    assert all(result.records[number].attempt > 1 for number in (0, 2))
    # The daemon has not seen the one that came without MPS.
    assert 1 <= log.count("fault") <= 2
