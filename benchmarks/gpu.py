"""Measure how much faster a sweep is if trials share a real GPU, and whether any result changes.

    uv run benchmarks/gpu.py [--steps 600] [--modes slice,mps] [--budget-s 520] [--cpu]

The notebook trains a ResNet18 on random images of CIFAR's size. Sweeps of 12 trials with the same
params run with 1, 2, 4 and 8 trials at once (slots) and with `-j auto`, without and with NVIDIA's
MPS, with which a GPU works for several processes at the same time. Sweeps that do not fit into the
time budget are skipped and named at the end. Each trial's score is a hash of its weights. So all
sweeps must have the same scores to the last bit, no matter whether kernels were started or forked,
and which trials ran at the same time. `--cpu` tries the script itself, with few steps on the CPU.
The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sweeper import Settings, Sweep
from sweeper.machine.nvml import Nvml
from sweeper.testing import write_notebook
from sweeper.trials import SweepResult

TRIALS = 12
IMPORTS = """
import hashlib
import torch
from torch import nn
from torch.nn import functional as F
import sweeper
"""
#: This cell uses no GPU, so it may be shared: run once for all trials, whose kernels are then
#: forked.
DATA = """
draw = torch.Generator().manual_seed(1)
images = torch.randn({images}, 3, 32, 32, generator=draw)
labels = torch.randint(0, 10, ({images},), generator=draw)
"""
MODEL = """
sweeper.seed_everything(seed)
torch.use_deterministic_algorithms(True, warn_only=True)
torch.backends.cudnn.benchmark = False
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

class Block(nn.Module):
    def __init__(self, before, channels, stride):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(before, channels, 3, stride, 1, bias=False), nn.BatchNorm2d(channels),
            nn.ReLU(), nn.Conv2d(channels, channels, 3, 1, 1, bias=False),
            nn.BatchNorm2d(channels))
        self.beside = nn.Identity() if before == channels and stride == 1 else nn.Sequential(
            nn.Conv2d(before, channels, 1, stride, bias=False), nn.BatchNorm2d(channels))
    def forward(self, x):
        return F.relu(self.body(x) + self.beside(x))

def resnet18(width):
    before = width
    layers = [nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
    for channels, stride in ((width, 1), (2 * width, 2), (4 * width, 2), (8 * width, 2)):
        layers += [Block(before, channels, stride), Block(channels, channels, 1)]
        before = channels
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, 10))

model = resnet18({width}).to(device, memory_format=torch.channels_last)
optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
images, labels = images.to(device), labels.to(device)
"""
TRAIN = """
for step in range({steps}):
    begin = step * {batch} % (len(images) - {batch} + 1)
    x = images[begin : begin + {batch}].contiguous(memory_format=torch.channels_last)
    with torch.autocast(device.type, torch.bfloat16):
        loss = F.cross_entropy(model(x), labels[begin : begin + {batch}])
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    if step % 20 == 19:
        sweeper.report(step, loss=loss.item())
"""
HASH = """
weights = b"".join(v.detach().float().cpu().numpy().tobytes() for v in model.state_dict().values())
digest = float(int(hashlib.sha256(weights).hexdigest()[:12], 16))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The results of one sweep.

    Attributes:
        mode: How trials shared the GPU: `mps` with NVIDIA's MPS, `slice` in turns without it.
        slots: Number of trials at once, or `auto`.
        took_s: Seconds from the first trial's start to the last trial's end.
        completed: Number of completed trials.
        forked: Number of trials in forked kernels.
        peak_gb: Largest GPU memory of a trial, in GB.
        busy_share: Mean share of the trials' time in which the GPU computed, from 0 to 1. None if
            it is not known.
        hashes: Hashes of the final weights, by run id.
    """

    mode: str
    slots: str
    took_s: float
    completed: int
    forked: int
    peak_gb: float
    busy_share: float | None
    hashes: dict[str, float | None]


def sweep(
    folder: Path, *cells: str, jobs: int | str, mps: str = "off", **settings: Any
) -> SweepResult:
    """Run a sweep of a notebook with these cells. All sweeps have the same seed and params.

    Args:
        folder: Folder for this sweep only.
        *cells: Cells of the notebook.
        jobs: Number of trials at once, or `auto`.
        mps: Whether to use NVIDIA's MPS: `auto` or `off`.
        **settings: Further sections of the parameters file.
    """
    parameters = "lr = 0.05\nsize = 0\nseed = 0"
    notebook = write_notebook(folder / "nb.ipynb", *cells, parameters=parameters)
    data: dict[str, Any] = {
        "objective": {"digest": "maximize"},
        "resources": {"mps": mps},
        **settings,
        "study": {"name": "gpu", "sampler": "random", "seed": 7, **settings.get("study", {})},
    }
    return Sweep.from_settings(
        Settings.from_mapping(data),
        notebook=notebook,
        output=f"{folder}/out/{{run_id}}.ipynb",
        jobs=jobs,
    ).run()


def train(root: Path, *, mode: str, slots: str, options: argparse.Namespace) -> Run:
    """Sweep over the learning rate of a ResNet18, and return the measured results.

    Args:
        root: Folder for the folders of all sweeps.
        mode: `mps` or `slice`, as in `Run`.
        slots: Number of trials at once, or `auto`.
        options: Options of the command line.
    """
    names = {"steps": options.steps, "batch": options.batch}
    names |= {"images": 8 * options.batch, "width": options.width}
    result = sweep(
        root / f"{mode} {slots}",
        IMPORTS,
        *(_filled(cell, names) for cell in (DATA, MODEL, TRAIN, HASH)),
        jobs=slots if slots == "auto" else int(slots),
        mps="auto" if mode == "mps" else "off",
        space={"lr": {"low": 0.01, "high": 0.1, "log": True}},
        study={"trials": TRIALS},
    )
    records = result.records
    uses = [record.gpu for record in records if record.gpu is not None]
    busy_shares = [use.busy_share for use in uses if use.busy_share is not None]
    begins = [record.started_at_s for record in records]
    ends = [record.started_at_s + record.duration_s for record in records]
    return Run(
        mode=mode,
        slots=slots,
        took_s=max(ends) - min(begins),
        completed=result.counts["completed"],
        forked=sum(kernel.is_forked for kernel in result.kernels),
        peak_gb=max((use.peak_bytes or 0 for use in uses), default=0) / 1e9,
        busy_share=sum(busy_shares) / len(busy_shares) if busy_shares else None,
        hashes={record.run_id: record.scores.get("digest") for record in records},
    )


def _filled(cell: str, names: dict[str, int]) -> str:
    for name, value in names.items():
        cell = cell.replace("{" + name + "}", str(value))
    return cell


def _has_cuda() -> bool:
    """Return whether torch finds a GPU.

    Another process checks this, so that CUDA is not initialised in this process.
    """
    asking = [sys.executable, "-c", "import torch; assert torch.cuda.is_available()"]
    return subprocess.run(asking, capture_output=True, check=False).returncode == 0


def main() -> None:
    """Run the sweeps, print one table, and print all results as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--steps", type=int, default=600, help="steps of a trial (default: 600)")
    parser.add_argument("--batch", type=int, default=128, help="images in a step (default: 128)")
    parser.add_argument("--width", type=int, default=64, help="channels (default: 64)")
    parser.add_argument("--slots", default="1,2,4,8,auto", help="default: 1,2,4,8,auto")
    parser.add_argument("--modes", default="slice,mps", help="default: slice,mps")
    parser.add_argument("--budget-s", type=float, default=520.0, help="default: 520")
    parser.add_argument("--cpu", action="store_true", help="try the script itself, without a GPU")
    options = parser.parse_args()
    if options.cpu:
        options.steps, options.batch, options.width = 20, 8, 4
        options.slots, options.modes = "1,2", "slice"
    elif not _has_cuda():
        parser.exit(2, "torch finds no GPU on this machine; --cpu tries the script without one\n")
    os.environ.pop("MLFLOW_TRACKING_URI", None)
    began_s, runs, left_out = time.monotonic(), list[Run](), list[str]()
    models = ", ".join(gpu.model for gpu in Nvml().installed()) or "no GPU"
    print(f"{os.cpu_count()} cores, {models}\n")
    head = "mode slots seconds gain completed forked GB busy".split()
    print(f"| {' | '.join(head)} | same bits |\n" + "|---" * (len(head) + 1) + "|")
    with tempfile.TemporaryDirectory() as folder:
        for mode in options.modes.split(","):
            for slots in options.slots.split(","):
                if mode == "mps" and slots == "1":
                    continue
                passed_s = time.monotonic() - began_s
                if passed_s + 1.2 * max((one.took_s for one in runs), default=0) > options.budget_s:
                    left_out.append(f"{mode} {slots}")
                    continue
                one = train(Path(folder), mode=mode, slots=slots, options=options)
                runs.append(one)
                same = sum(one.hashes.get(k) == v for k, v in runs[0].hashes.items())
                print(
                    f"| {mode} | {slots} | {one.took_s:.1f} | {runs[0].took_s / one.took_s:.2f} "
                    f"| {one.completed} | {one.forked} | {one.peak_gb:.2f} "
                    f"| {one.busy_share or 0:.2g} | {same} of {TRIALS} |",
                    flush=True,
                )
    if left_out:
        print(f"\nno time for: {', '.join(left_out)}")
    print(json.dumps([asdict(one) for one in runs]))


if __name__ == "__main__":
    main()
