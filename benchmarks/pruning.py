"""What pruning saves: the same sweep with the median pruner and without, for several seeds.

    uv run benchmarks/pruning.py

The notebook is the project's own digits CNN. Training time is that of all trials together; where
the first trials are alike, they are so because the same seed proposes them.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sweeper import Settings, Sweep
from sweeper.trials import TrialState

ROOT = Path(__file__).parent.parent
PRUNERS: dict[str, Any] = {"none": "none", "median": {"name": "median", "n_warmup_steps": 1}}


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Of one sweep: seconds of all trials, seconds on the clock, the best score, trials pruned."""

    training_s: float
    wall_s: float
    best: float
    pruned: int


def sweep(seed: int, pruner: str, *, trials: int, epochs: int, jobs: int) -> Outcome:
    """Run one study from nothing, everything logged."""
    settings = Settings.load(ROOT / "parameters" / "digits.yml")
    data = settings.as_told
    study = {"name": f"{pruner}{seed}", "seed": seed, "trials": trials, "pruner": PRUNERS[pruner]}
    data = {**data, "study": study, "fixed": {**data["fixed"], "epochs": epochs, "num_workers": 0}}
    with tempfile.TemporaryDirectory() as folder:
        # Where it stands, it finds the data set that it has made there.
        notebook = Path(folder) / "notebooks" / "digits.ipynb"
        notebook.parent.mkdir()
        shutil.copy(ROOT / "notebooks" / "digits.ipynb", notebook)
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
    parser.add_argument("--epochs", type=int, default=12)
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
