"""How soon a sweep has a good score: the loop that a user would write, and this engine.

    uv run benchmarks/headline.py --seeds 8
    uv run benchmarks/headline.py --seeds 1 --trials 4 --epochs 1

The loop is `study.optimize(n_jobs=2)` of Optuna's default sampler around papermill, with the score
read from the executed notebook and logged to MLflow by hand. This engine has its defaults, the
parameters file as it is, with its trial in `start`, and `pruner: median`. Both try the digits
notebook in its own space, on the same cores, in turns for each seed; clocks begin with the process,
so that imports count.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).parents[1]
NOTEBOOK = PROJECT / "notebooks" / "digits.ipynb"
PARAMETERS = PROJECT / "parameters" / "digits.yml"
JOBS = 2
CONTENDERS = ("loop", "engine")
#: The accuracy on validation data, as the notebook prints it after each epoch.
PRINTED = re.compile(r"top-1 [\d.]+ / ([\d.]+) \(training")


@dataclass(frozen=True, kw_only=True)
class Run:
    """One sweep: when it had which score, in seconds from its start.

    Attributes:
        scores: of the trials that completed, with the seconds at which they ended.
        wall_s: until everything was recorded.
        cells_s: of all cells of all trials together.
        trials: how many trials began.
    """

    scores: list[tuple[float, float]]
    wall_s: float
    cells_s: float
    trials: int

    def best_at(self, seconds: float) -> float:
        """The best score up to a time; 0 before the first."""
        return max((score for ended_s, score in self.scores if ended_s <= seconds), default=0.0)

    def reached(self, score: float) -> float | None:
        """The seconds until a score this good; None where there was none."""
        return min((ended_s for ended_s, found in self.scores if found >= score), default=None)


def cells_s(notebooks: Sequence[Path]) -> float:
    """The seconds that papermill has noted for the cells of executed notebooks."""
    total = 0.0
    for notebook in notebooks:
        for cell in json.loads(notebook.read_text("utf-8"))["cells"]:
            total += cell["metadata"].get("papermill", {}).get("duration") or 0.0
    return total


def loop(folder: Path, *, seed: int, trials: int, epochs: int) -> dict[str, Any]:
    """What a user would write around the notebook."""
    import optuna
    import papermill
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{folder}/mlflow.db")
    experiment = client.create_experiment("loop", str(folder / "artifacts"))
    scores: list[tuple[float, float]] = []

    def objective(trial: optuna.Trial) -> float:
        params: dict[str, Any] = {
            "lr": trial.suggest_float("lr", 1e-3, 0.3, log=True),
            "batch_size": trial.suggest_categorical("batch_size", [32, 64, 128]),
            "width": trial.suggest_int("width", 8, 40, step=8),
            "dropout": trial.suggest_float("dropout", 0.0, 0.5),
            "optimizer": trial.suggest_categorical("optimizer", ["sgd", "adam"]),
        }
        if params["optimizer"] == "sgd":
            params["momentum"] = trial.suggest_float("momentum", 0.8, 0.99)
        output = folder / f"{trial.number:04}.ipynb"
        node = papermill.execute_notebook(
            NOTEBOOK,
            output,
            parameters={**params, "epochs": epochs, "seed": trial.number},
            cwd=str(NOTEBOOK.parent),
            progress_bar=False,
        )
        printed = "".join(
            "".join(out.get("text", "")) for cell in node.cells for out in cell.get("outputs", [])
        )
        score = float(PRINTED.findall(printed)[-1])
        run = client.create_run(experiment)
        for name, value in params.items():
            client.log_param(run.info.run_id, name, value)
        client.log_metric(run.info.run_id, "val_acc", score)
        client.log_artifact(run.info.run_id, str(output))
        client.set_terminated(run.info.run_id)
        scores.append((time.time(), score))
        return score

    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed))
    study.optimize(objective, n_trials=trials, n_jobs=JOBS)
    return {"scores": scores, "cells_s": cells_s(sorted(folder.glob("*.ipynb"))), "trials": trials}


def engine(folder: Path, *, seed: int, trials: int, epochs: int) -> dict[str, Any]:
    """This engine, with a pruner; the rest is its default."""
    from sweeper import Settings, Sweep
    from sweeper.trials import TrialState

    stated = Settings.load(PARAMETERS).as_mapping
    study = {**stated["study"], "seed": seed, "trials": trials, "pruner": "median"}
    settings = Settings.from_mapping({**stated, "study": study, "fixed": {"epochs": epochs}})
    output = f"{folder}/{{run_id}}.ipynb"
    result = Sweep.from_settings(settings, notebook=NOTEBOOK, output=output, jobs=JOBS).run()
    scores = [
        (record.started_at_s + record.duration_s, record.scores["val_acc"])
        for record in result.records
        if record.state is TrialState.COMPLETED
    ]
    notebooks = [record.notebook for record in result.records]
    return {"scores": scores, "cells_s": cells_s(notebooks), "trials": len(result.records)}


def run(contender: str, *, seed: int, trials: int, epochs: int) -> Run:
    """One sweep in a process and a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="headline-") as folder:
        options = [f"--contender={contender}", f"--folder={folder}", f"--first={seed}"]
        sizes = [f"--trials={trials}", f"--epochs={epochs}"]
        began_s = time.time()
        command = [sys.executable, __file__, *options, *sizes]
        ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        wall_s = time.time() - began_s
    found = json.loads(ended.stdout.splitlines()[-1])
    scores = [(ended_s - began_s, score) for ended_s, score in found.pop("scores")]
    return Run(scores=sorted(scores), wall_s=wall_s, **found)


def in_words(values: Sequence[float | None], form: str) -> str:
    """Median and quartiles; None counts as later than any."""
    known = sorted(float("inf") if value is None else value for value in values)
    if len(known) == 1:
        known = known * 2
    low, middle, high = statistics.quantiles(known, n=4, method="inclusive")
    return " | ".join("not" if v == float("inf") else format(v, form) for v in (middle, low, high))


def compare(loops: Sequence[Run], engines: Sequence[Run]) -> dict[str, Any]:
    """Print the table; return its medians."""
    rows: list[tuple[str, Sequence[float | None], str]] = []
    for name, runs in zip(CONTENDERS, (loops, engines), strict=True):
        rows += [
            (f"{name}: wall time, s", [run.wall_s for run in runs], ".0f"),
            (f"{name}: best score", [run.best_at(run.wall_s) for run in runs], ".4f"),
            (f"{name}: seconds in cells", [run.cells_s for run in runs], ".0f"),
            (
                f"{name}: seconds of the slots outside of cells",
                [JOBS * run.wall_s - run.cells_s for run in runs],
                ".0f",
            ),
        ]
    pairs = list(zip(loops, engines, strict=True))
    finals = [one.best_at(one.wall_s) for one in loops]
    reached = [other.reached(best) for best, other in zip(finals, engines, strict=True)]
    shares = [
        None if at is None else at / one.wall_s for at, one in zip(reached, loops, strict=True)
    ]
    rows += [
        (
            "loop: best score when the engine has ended",
            [a.best_at(b.wall_s) for a, b in pairs],
            ".4f",
        ),
        ("engine: until the loop's final best, s", reached, ".0f"),
        ("the same as a share of the loop's wall time", shares, ".2f"),
        ("wall time, engine to loop", [b.wall_s / a.wall_s for a, b in pairs], ".2f"),
    ]
    print("| | median | lower quartile | upper |")
    print("|---|---|---|---|")
    for title, values, form in rows:
        print(f"| {title} | {in_words(values, form)} |")
    return {title: in_words(values, form).split(" | ")[0] for title, values, form in rows}


def draw(loops: Sequence[Run], engines: Sequence[Run], picture: Path) -> None:
    """Draw the best score over wall time: medians as lines, quartiles as bands."""
    import matplotlib.pyplot as plt
    import numpy as np

    figure, axes = plt.subplots(figsize=(7.2, 3.6), layout="constrained")
    seconds = np.linspace(0, max(run.wall_s for run in loops), 400)
    labels = ("a loop around papermill", "this engine")
    for runs, label, colour in zip((loops, engines), labels, ("#888888", "#c04a1a"), strict=True):
        best = np.array([[run.best_at(at) for at in seconds] for run in runs])
        low, middle, high = np.percentile(best, [25, 50, 75], axis=0)
        begun = low > 0
        axes.fill_between(seconds[begun], low[begun], high[begun], color=colour, alpha=0.2, lw=0)
        axes.plot(seconds[begun], middle[begun], color=colour, label=label)
    axes.set(xlabel="wall time, s", ylabel="best validation accuracy so far")
    axes.legend(loc="lower right", frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(picture, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--trials", type=int, default=24)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--picture", type=Path, help="where to draw the best score over wall time")
    parser.add_argument("--contender", choices=CONTENDERS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    sizes = {"trials": options.trials, "epochs": options.epochs}
    if options.contender is not None:
        one = loop if options.contender == "loop" else engine
        print(json.dumps(one(options.folder, seed=options.first, **sizes)))
        return
    loops, engines = [], []
    for seed in range(options.first, options.first + options.seeds):
        loops.append(run("loop", seed=seed, **sizes))
        engines.append(run("engine", seed=seed, **sizes))
        bests = [f"{found[-1].best_at(found[-1].wall_s):.4f}" for found in (loops, engines)]
        walls = [f"{found[-1].wall_s:.0f} s" for found in (loops, engines)]
        print(
            f"seed {seed}: loop {bests[0]} in {walls[0]}, engine {bests[1]} in {walls[1]}",
            file=sys.stderr,
            flush=True,
        )
    figures = compare(loops, engines)
    if options.picture is not None:
        draw(loops, engines, options.picture)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
