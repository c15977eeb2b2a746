"""What a trial costs beyond its cells: plain papermill against this engine, interleaved in one run.

    uv run benchmarks/overhead.py [--trials 8] [--jobs 1,2]

Each round runs one batch of trials with every contender, in turns, so that a change of the
machine's load meets all of them. Overhead per trial is the batch's wall time times the trials at
once, divided by the trials, less the time that the cells themselves took; "all" is both together,
which is what a user waits for.
"""

from __future__ import annotations

import argparse
import functools
import logging
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import nbformat
import papermill
from joblib import Parallel, delayed

from sweeper import Settings, Sweep
from sweeper.testing import write_notebook

NOTEBOOKS = {
    "two lines": ("y = x * 2", "val = y"),
    "imports": ("import numpy, pandas, sklearn.linear_model, torch", "val = x"),
}
Batch = Callable[[str, Path, int, int], float]


def plain_papermill(name: str, folder: Path, trials: int, jobs: int) -> float:
    """What a user would write: `papermill.execute_notebook` in joblib processes."""
    source = folder / f"{name}.ipynb"

    def run(number: int) -> None:
        papermill.execute_notebook(
            str(source), str(folder / f"{number}.ipynb"), {"x": 0.1 * number}, progress_bar=False
        )

    Parallel(n_jobs=jobs)(delayed(lambda: None)() for _ in range(jobs))  # workers are up
    started = time.monotonic()
    Parallel(n_jobs=jobs)(delayed(run)(number) for number in range(trials))
    return time.monotonic() - started


def this_engine(name: str, folder: Path, trials: int, jobs: int, kernels: str = "cold") -> float:
    """A whole sweep: Optuna, the same notebook, scores, MLflow with artifacts."""
    data = {
        "objective": {"val": "maximize"},
        "space": {"x": {"low": 0.0, "high": 1.0}},
        "execution": {"kernels": kernels},
        "study": {"name": f"bench-{time.monotonic_ns()}", "trials": trials, "sampler": "random"},
    }
    sweep = Sweep.from_settings(
        Settings.from_mapping(data),
        notebook=folder / f"{name}.ipynb",
        output=f"{folder}/{{study}}.{{run_id}}.ipynb",
        jobs=jobs,
    )
    result = sweep.run()
    assert result.counts["completed"] == trials, result.records
    ended = max(record.started_at_s + record.duration_s for record in result.records)
    return ended - min(record.started_at_s for record in result.records)


CONTENDERS: dict[str, Batch] = {
    "papermill": plain_papermill,
    "this engine": this_engine,
    "this engine, warm": functools.partial(this_engine, kernels="warm"),
}


def cells_s(folder: Path) -> float:
    """Median over the executed notebooks in a folder of the time that their cells took."""
    took = []
    for path in folder.glob("*.ipynb"):
        cells = nbformat.read(path, as_version=4).cells
        told = [cell.metadata.get("papermill", {}).get("duration") for cell in cells]
        if any(told):
            took.append(sum(duration or 0.0 for duration in told))
    return statistics.median(took)


def main() -> None:
    """Measure and print one table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--trials", type=int, default=8, help="trials a batch (default: 8)")
    parser.add_argument("--jobs", default="1,2", help="trials at once (default: 1,2)")
    parser.add_argument("--rounds", type=int, default=3, help="batches each (default: 3)")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    os.environ.pop("MLFLOW_TRACKING_URI", None)
    print("| notebook | at once | contender | cells s | overhead s | all s | papermill / it |")
    print("|---|---|---|---|---|---|---|")
    for name, cells in NOTEBOOKS.items():
        for jobs in map(int, options.jobs.split(",")):
            walls: dict[str, list[float]] = {contender: [] for contender in CONTENDERS}
            spent: dict[str, list[float]] = {contender: [] for contender in CONTENDERS}
            with tempfile.TemporaryDirectory() as root:
                for turn in range(options.rounds):
                    for contender, run in CONTENDERS.items():
                        folder = (
                            Path(root)
                            / contender
                            / (str(turn) if contender == "papermill" else "out")
                        )
                        write_notebook(folder / f"{name}.ipynb", *cells)
                        wall = run(name, folder, options.trials, jobs)
                        walls[contender].append(wall * jobs / options.trials)
                        spent[contender].append(cells_s(folder))
            overhead = {
                c: statistics.median(w - s for w, s in zip(walls[c], spent[c], strict=True))
                for c in CONTENDERS
            }
            whole = {c: statistics.median(walls[c]) for c in CONTENDERS}
            for contender in CONTENDERS:
                print(
                    f"| {name} | {jobs} | {contender} | {statistics.median(spent[contender]):.2f} "
                    f"| {overhead[contender]:.2f} | {whole[contender]:.2f} "
                    f"| {whole['papermill'] / whole[contender]:.1f} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
