"""Test sweeps on a real GPU. Each test shows something that the simulated GPU cannot show.

The tests are skipped if torch finds no GPU, or if NVIDIA's driver does not answer.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import nbformat
import pytest
from studies import sweep_of

from sweeper.machine.nvml import Nvml
from sweeper.search.pruners import Curves, PredictivePruner, Verdict
from sweeper.testing import write_notebook
from sweeper.trials import Reason, SweepResult, TrialState

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.kernel,
    pytest.mark.slow,
    pytest.mark.usefixtures("started_kernels"),
]


@pytest.fixture(scope="session", autouse=True)
def gpu() -> None:
    """Skip without a GPU.

    A separate process checks this, because CUDA uses memory in each process.
    """
    if not Nvml().installed():
        pytest.skip("needs an NVIDIA GPU")
    code = "import torch; assert torch.cuda.is_available()"
    if subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode:
        pytest.skip("needs torch with CUDA")


TRAIN = """
sweeper.seed_everything(7)
torch.use_deterministic_algorithms(True, warn_only=True)
model = torch.nn.Sequential(torch.nn.Conv2d(3, 32, 3), torch.nn.ReLU(), torch.nn.Flatten(),
                            torch.nn.Linear(32 * 30 * 30, 10)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
for step in range(40):
    loss = torch.nn.functional.cross_entropy(model(images.cuda()), labels.cuda())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    sweeper.report(step, loss=loss.item())
weights = b"".join(v.detach().cpu().numpy().tobytes() for v in model.state_dict().values())
digest = float(int(hashlib.sha256(weights).hexdigest()[:12], 16))
"""
ON_THE_PROCESSOR = """
images = torch.randn(64, 3, 32, 32, generator=torch.Generator().manual_seed(1))
labels = torch.randint(0, 10, (64,), generator=torch.Generator().manual_seed(1))
"""


def run(
    folder: Path,
    *cells: str,
    jobs: int = 2,
    trials: int = 6,
    shared: int = 0,
    **settings: Any,
) -> SweepResult:
    notebook = write_notebook(
        folder / "nb.ipynb",
        "import hashlib, time\nimport torch\nimport sweeper",
        *cells,
        parameters="lr = 0.05\nsize = 0",
        shared=shared,
    )
    usual: dict[str, Any] = {
        "objective": {"digest": "maximize"},
        "space": {"lr": {"low": 0.01, "high": 0.1}},
        "study": {"trials": trials, "seed": 7},
    }
    return sweep_of(notebook, "gpu", jobs=jobs, **{**usual, **settings}).run()


def digests(result: SweepResult) -> Mapping[str, float]:
    assert result.counts["completed"] == len(result.records), result.records
    return {record.run_id: record.scores["digest"] for record in result.records}


def test_weights_trained_alone_in_fresh_kernels_equal_those_of_forked_kernels_on_a_shared_gpu(
    tmp_path: Path,
) -> None:
    """Trials first use CUDA after the fork, so a forked kernel trains like a started one."""
    alone = run(tmp_path / "1", ON_THE_PROCESSOR, TRAIN, jobs=1, trials=4, kernels="cold")
    beside = run(tmp_path / "4", ON_THE_PROCESSOR, TRAIN, jobs=4, trials=16)
    assert digests(alone).items() <= digests(beside).items()
    assert any(kernel.is_forked for kernel in beside.kernels), beside.findings


#: A training that also reports its longest pause between two steps, which shows a freeze.
STAND_STILL = (
    TRAIN.replace("for step", "last_s, longest_s = time.monotonic(), 0.0\nfor step").replace(
        "    sweeper.report",
        "    time.sleep(0.05)  # the pruner judges the report meanwhile\n"
        "    longest_s, last_s = max(longest_s, time.monotonic() - last_s), time.monotonic()\n"
        "    sweeper.report",
    )
    + "\nprint(f'stood still {longest_s:.2f} s, digest {digest:.0f}')"
)


@pytest.mark.parametrize("mps", ["off", "auto"])
def test_trials_that_are_frozen_and_continued_train_the_same_weights_bit_for_bit(
    tmp_path: Path, mps: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their CUDA contexts are paused while other trials compute on the same GPU."""
    if mps == "auto" and shutil.which("nvidia-cuda-mps-control") is None:
        pytest.skip("needs NVIDIA's MPS")

    def judge(_: PredictivePruner, curves: Curves, number: int, *, to_begin: int) -> Verdict:
        is_halfway = max(curves.by_number[number].values) == 20
        return Verdict.FREEZE if is_halfway and number else Verdict.GO_ON

    def thaw(_: PredictivePruner, curves: Curves, *, to_begin: int) -> int | None:
        frozen = [number for number, it in curves.by_number.items() if it.state == "frozen"]
        return None if to_begin else min(frozen, default=None)

    monkeypatch.setattr(PredictivePruner, "judge", judge)
    monkeypatch.setattr(PredictivePruner, "thaw", thaw)

    def found(pruner: str, jobs: int, **settings: Any) -> list[tuple[float, str]]:
        study = {"trials": 8, "seed": 7, "pruner": pruner}
        cells = (ON_THE_PROCESSOR, STAND_STILL)
        objective = {"loss": "minimize"}
        result = run(
            tmp_path / pruner, *cells, jobs=jobs, study=study, objective=objective, **settings
        )
        texts = [record.notebook.read_text() for record in result.records]
        ends = [re.search(r"stood still ([\d.]+) s, digest (\d+)", text) for text in texts]
        assert all(ends), result.records
        return [(float(end[1]), end[2]) for end in ends if end]

    going_on, frozen = found("none", 4), found("auto", 2, resources={"mps": mps})
    assert [digest for _, digest in frozen] == [digest for _, digest in going_on]
    assert sum(longest_s > 1 for longest_s, _ in frozen) >= 4, frozen


def test_cells_tagged_shared_that_use_the_gpu_run_in_every_trial_and_a_finding_says_so(
    tmp_path: Path,
) -> None:
    on_gpu = "there = torch.ones(1000, device='cuda')"
    result = run(tmp_path, ON_THE_PROCESSOR, on_gpu, TRAIN, jobs=1, trials=8, shared=3)
    digests(result)
    assert not any(kernel.shared_cells for kernel in result.kernels)
    assert any("CUDA cannot be forked" in finding for finding in result.findings)


def test_the_recorded_peak_of_a_trials_gpu_memory_is_torchs_peak_plus_the_cuda_context(
    tmp_path: Path,
) -> None:
    take = """
    block = torch.empty(int(size * 2**30), dtype=torch.uint8, device="cuda")
    time.sleep(3)
    digest = torch.cuda.max_memory_reserved()
    """.replace("\n    ", "\n")
    result = run(tmp_path, take, trials=6, space={"size": [1, 2]})
    for record in result.records:
        assert record.gpu is not None
        assert record.gpu.peak_bytes is not None
        assert record.scores["digest"] + 100e6 < record.gpu.peak_bytes < 2.5 * 2**30 + 1.5e9
    node = nbformat.read(result.records[0].notebook, as_version=4)
    assert node.metadata["sweeper"]["gpu"]["peak_bytes"] == result.records[0].gpu.peak_bytes  # type: ignore[union-attr]


#: A cell that allocates a share of the GPU's memory that depends on the param `size`.
TAKE = """
total = torch.cuda.get_device_properties(0).total_memory
for step in range(10):
    time.sleep(0.2)
    sweeper.report(step, digest=size)
block = torch.empty(int({fractions}[size] * total), dtype=torch.uint8, device="cuda")
time.sleep(2)
"""


def test_a_trial_out_of_memory_on_a_shared_gpu_runs_again_and_fails_only_if_it_lacks_memory_alone(
    tmp_path: Path,
) -> None:
    cell = TAKE.replace("{fractions}", "(0.1, 0.7, 1.2)")
    start = [{"size": size} for size in (0, 1, 2, 1)]
    result = run(tmp_path, cell, jobs=4, trials=8, space={"size": [0, 1, 2]}, start=start)
    for record in result.records:
        if record.params["size"] == 2:
            assert (record.state, record.reason) == (TrialState.FAILED, Reason.OUT_OF_MEMORY)
        else:
            assert record.state is TrialState.COMPLETED


def test_the_driver_reports_a_processs_gpu_memory_and_the_sweep_itself_uses_none() -> None:
    driver = Nvml()
    (gpu, *_) = driver.installed()
    assert gpu.uuid is not None
    code = "import torch; x = torch.ones(2**28, device='cuda'); print(1, flush=True); input()"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    taking = subprocess.Popen([sys.executable, "-c", code], **pipes)  # type: ignore[call-overload]
    before = driver.used_by(gpu.uuid).get(os.getpid())
    taking.stdout.readline()
    used, total = driver.used_by(gpu.uuid), driver.used_bytes(gpu.uuid)
    taking.communicate(b"\n")
    assert before is None
    assert os.getpid() not in used
    assert total is not None
    assert total > 2**30
    # In a container the driver reports other process ids, so the total memory is checked instead.
    assert used.get(taking.pid, total) >= 2**30
