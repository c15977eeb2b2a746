"""Compare how soon a good score is found: by this project, and by a loop that a user would write.

    uv run benchmarks/headline.py --seeds 8 --runs runs.jsonl
    uv run benchmarks/headline.py --seeds 1 --trials 4 --epochs 1
    uv run --with wordfreq benchmarks/headline.py --notebook languages --pruners auto

The loop is `study.optimize(n_jobs=2)` with Optuna's default sampler around papermill. It reads the
score from the executed notebook and logs it to MLflow. It has `OMP_NUM_THREADS=1`, which a careful
user sets. The engine, which is this project, runs with its defaults and the parameters file, which
states a first trial in `start`. It runs once with each of `--pruners`, for as long as the loop of
the same seed took. All contenders have the same notebook, search space and cores, and take turns
for each seed. Their times include the start of their processes and imports.

`digits` is this project's example notebook, where most params give good scores. With `languages`,
few params do, and the loop also begins with the notebook's original values.

The file of `--runs` has one line for each sweep. Sweeps that are in the file are not run again.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).parents[1]
JOBS = 2
LOOP = "loop"
#: Within the loop's time, the engine may run at most this many times the loop's number of trials.
_MORE = 4
#: Options of this script that set params which are the same in all trials, by these params.
_OPTIONS = {"epochs": "epochs", "per_language": "words"}


@dataclass(frozen=True, kw_only=True)
class Research:
    """A notebook, its parameters file, and what a user would write for it in the loop.

    Attributes:
        notebook: Path of the notebook.
        parameters: Path of the parameters file.
        printed: Pattern of the accuracy on validation data that the notebook prints.
        suggest: Function that returns the params of an Optuna trial.
        begins_with_start: Whether the loop also begins with the trials in `start` of the file.
    """

    notebook: Path
    parameters: Path
    printed: re.Pattern[str]
    suggest: Callable[[Any], dict[str, Any]]
    begins_with_start: bool = False


def suggest_for_digits(trial: Any) -> dict[str, Any]:
    params: dict[str, Any] = {
        "lr": trial.suggest_float("lr", 1e-3, 0.3, log=True),
        "batch_size": trial.suggest_categorical("batch_size", [32, 64, 128]),
        "width": trial.suggest_int("width", 8, 40, step=8),
        "dropout": trial.suggest_float("dropout", 0.0, 0.5),
        "optimizer": trial.suggest_categorical("optimizer", ["sgd", "adam"]),
    }
    if params["optimizer"] == "sgd":
        params["momentum"] = trial.suggest_float("momentum", 0.8, 0.99)
    return params


def suggest_for_languages(trial: Any) -> dict[str, Any]:
    params: dict[str, Any] = {
        "lr": trial.suggest_float("lr", 1e-5, 1.0, log=True),
        "batch_size": trial.suggest_categorical("batch_size", [32, 64, 128, 256]),
        "embedding": trial.suggest_int("embedding", 4, 48, step=4),
        "width": trial.suggest_int("width", 16, 96, step=16),
        "reach": trial.suggest_categorical("reach", [3, 5]),
        "dropout": trial.suggest_float("dropout", 0.0, 0.6),
        "weight_decay": trial.suggest_float("weight_decay", 1e-6, 0.1, log=True),
        "optimizer": trial.suggest_categorical("optimizer", ["sgd", "adam"]),
    }
    if params["optimizer"] == "sgd":
        params["momentum"] = trial.suggest_float("momentum", 0.0, 0.99)
    return params


RESEARCH = {
    "digits": Research(
        notebook=PROJECT / "notebooks" / "digits.ipynb",
        parameters=PROJECT / "parameters" / "digits.yml",
        printed=re.compile(r"top-1 [\d.]+ / ([\d.]+) \(training"),
        suggest=suggest_for_digits,
    ),
    "languages": Research(
        notebook=PROJECT / "benchmarks" / "notebooks" / "languages.ipynb",
        parameters=PROJECT / "benchmarks" / "notebooks" / "languages.yml",
        printed=re.compile(r"accuracy on held-out words ([\d.]+)"),
        suggest=suggest_for_languages,
        begins_with_start=True,
    ),
}


@dataclass(frozen=True, kw_only=True)
class Run:
    """The scores and times of one sweep. All times are in seconds from its start.

    Attributes:
        scores: For each completed trial, the time of its end and its final score.
        ends_s: Times at which trials ended, in any state.
        wall_s: Time at which all results were recorded and the process had ended.
        trials_s: Seconds that trials ran, as sums by the trials' states at the end of the sweep.
    """

    scores: list[tuple[float, float]]
    ends_s: list[float]
    wall_s: float
    trials_s: dict[str, float]

    def best_at(self, seconds: float) -> float:
        """Return the best score up to a time. 0 if no trial had completed."""
        return max((score for ended_s, score in self.scores if ended_s <= seconds), default=0.0)

    def share_of(self, state: str) -> float:
        """Return the share of the slots' time in which trials ran that ended in this state."""
        return self.trials_s.get(state, 0.0) / (JOBS * self.wall_s)

    @property
    def idle(self) -> float:
        """Share of the slots' time in which no trial ran, from 0 to 1."""
        return 1 - sum(self.trials_s.values()) / (JOBS * self.wall_s)

    def reached(self, score: float) -> float | None:
        """Return the time of the first score that is at least this good. None if there is none."""
        return min((ended_s for ended_s, found in self.scores if found >= score), default=None)


def run_notebook(research: Research, output: Path, params: Mapping[str, Any]) -> float:
    """Run the notebook with papermill, as a user does in a loop, and return its accuracy."""
    import papermill

    node = papermill.execute_notebook(
        research.notebook,
        output,
        parameters=params,
        cwd=str(research.notebook.parent),
        progress_bar=False,
    )
    printed = "".join(
        "".join(out.get("text", "")) for cell in node.cells for out in cell.get("outputs", [])
    )
    return float(research.printed.findall(printed)[-1])


def loop(
    research: Research, folder: Path, *, seed: int, trials: int, fixed: Mapping[str, int]
) -> dict[str, Any]:
    """Run the loop that a user would write, in this process.

    Returns:
        The scores, the times of all ends, and the seconds of trials. Times are in seconds since
        1970.
    """
    import optuna
    from mlflow import MlflowClient

    from sweeper import Settings

    client = MlflowClient(f"sqlite:///{folder}/mlflow.db")
    experiment = client.create_experiment("loop", str(folder / "artifacts"))
    scores: list[tuple[float, float]] = []
    took_s: list[float] = []

    def objective(trial: optuna.Trial) -> float:
        began_s = time.time()
        params = research.suggest(trial)
        output = folder / f"{trial.number:04}.ipynb"
        score = run_notebook(research, output, {**params, **fixed, "seed": trial.number})
        run = client.create_run(experiment)
        for name, value in params.items():
            client.log_param(run.info.run_id, name, value)
        client.log_metric(run.info.run_id, "val_acc", score)
        client.log_artifact(run.info.run_id, str(output))
        client.set_terminated(run.info.run_id)
        scores.append((time.time(), score))
        took_s.append(time.time() - began_s)
        return score

    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed))
    for params in Settings.load(research.parameters).start if research.begins_with_start else ():
        study.enqueue_trial(dict(params))
    study.optimize(objective, n_trials=trials, n_jobs=JOBS)
    ends = [ended for ended, _ in scores]
    return {"scores": scores, "ends": ends, "trials_s": {"completed": sum(took_s)}}


def engine(
    research: Research,
    folder: Path,
    *,
    pruner: str,
    seed: int,
    trials: int,
    fixed: Mapping[str, int],
    until: float,
) -> dict[str, Any]:
    """Run a sweep of this project in this process, with its defaults except for the pruner.

    Args:
        research: The notebook and its parameters file.
        folder: Folder for the outputs.
        pruner: Name of the pruner.
        seed: Seed of the study.
        trials: Number of trials of the loop. The sweep may have more trials in the same time.
        fixed: Params that are the same in all trials.
        until: Time at which the sweep ends, in seconds since 1970.

    Returns:
        The same values as those of `loop`.
    """
    from sweeper import Settings, Sweep
    from sweeper.trials import TrialState

    stated = Settings.load(research.parameters).as_mapping
    study = {**stated["study"], "seed": seed, "trials": _MORE * trials, "pruner": pruner}
    settings = Settings.from_mapping({**stated, "study": study, "fixed": {**fixed}})
    output = f"{folder}/{{run_id}}.ipynb"
    result = Sweep.from_settings(
        settings,
        notebook=research.notebook,
        output=output,
        jobs=JOBS,
        timeout_s=until - time.time(),
    ).run()
    scores = [
        (record.started_at_s + record.duration_s, record.scores["val_acc"])
        for record in result.records
        if record.state is TrialState.COMPLETED
    ]
    ended = [record for record in result.records if record.is_final]
    ends = [record.started_at_s + record.duration_s for record in ended]
    trials_s = defaultdict[str, float](float)
    for record in result.records:
        trials_s[str(record.state)] += record.duration_s
    return {"scores": scores, "ends": ends, "trials_s": trials_s}


def run(
    contender: str,
    *,
    notebook: str,
    seed: int,
    trials: int,
    fixed: Mapping[str, int],
    limit_s: float,
) -> Run:
    """Run one sweep of a contender in a new process and a new folder.

    Args:
        contender: `loop`, or `engine, ` and the name of a pruner.
        notebook: Name of the notebook in `RESEARCH`.
        seed: Seed of the sampler.
        trials: Number of trials of the loop.
        fixed: Params that are the same in all trials.
        limit_s: Seconds after which the engine ends, counted from the start of its process. The
            loop ignores it.
    """
    began_s = time.time()
    options = [f"--notebook={notebook}", f"--first={seed}", f"--trials={trials}"]
    options.append(f"--until={began_s + limit_s}")
    options += [f"--{_OPTIONS[name]}={value}" for name, value in fixed.items()]
    found = _in_process(contender, *options)
    wall_s = time.time() - began_s
    scores = [(ended_s - began_s, score) for ended_s, score in found.pop("scores")]
    ends_s = sorted(ended_s - began_s for ended_s in found.pop("ends"))
    return Run(scores=sorted(scores), ends_s=ends_s, wall_s=wall_s, **found)


def _in_process(contender: str, *options: str) -> Any:
    """Run a contender in a new process with a temporary folder.

    Returns:
        The JSON in the last line that the process prints.
    """
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    if contender == LOOP:
        environment["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory(prefix="headline-") as folder:
        ended = subprocess.run(
            [sys.executable, __file__, f"--contender={contender}", f"--folder={folder}", *options],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            env=environment,
        )
    return json.loads(ended.stdout.splitlines()[-1])


def read_runs(path: Path | None) -> dict[str, Run]:
    """Return the sweeps in a file of `--runs`, by a text that describes each sweep."""
    if path is None or not path.exists():
        return {}
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    return {
        line["what"]: Run(
            **{**line["run"], "scores": [tuple(one) for one in line["run"]["scores"]]}
        )
        for line in lines
    }


def in_words(values: Sequence[float | None], form: str) -> str:
    """Return median, lower and upper quartile as cells of a table.

    Args:
        values: Values, where None (never reached) counts as larger than any number.
        form: Format of a number.
    """
    known = sorted(float("inf") if value is None else value for value in values)
    if len(known) == 1:
        known = known * 2
    low, middle, high = statistics.quantiles(known, n=4, method="inclusive")
    return " | ".join("not" if v == float("inf") else format(v, form) for v in (middle, low, high))


def compare(runs: dict[str, list[Run]]) -> dict[str, Any]:
    """Print the table that compares the contenders. Return its medians by the titles of rows."""
    rows: list[tuple[str, Sequence[float | None], str]] = []
    loops = runs[LOOP]
    for name, found in runs.items():
        rows += [
            (f"{name}: wall time, s", [one.wall_s for one in found], ".0f"),
            (f"{name}: trials in that time", [len(one.ends_s) for one in found], ".0f"),
            (f"{name}: best score", [one.best_at(one.wall_s) for one in found], ".4f"),
        ]
        states = sorted({state for one in found for state in one.trials_s})
        for state in states:
            shares_of_state = [one.share_of(state) for one in found]
            rows.append((f"{name}: slots' time in {state} trials", shares_of_state, ".2f"))
        rows.append((f"{name}: slots' time without a trial", [one.idle for one in found], ".2f"))
        if name == LOOP:
            continue
        pairs = list(zip(loops, found, strict=True))
        reached = [other.reached(one.best_at(one.wall_s)) for one, other in pairs]
        shares = [at and at / one.wall_s for at, one in zip(reached, loops, strict=True)]
        rows += [
            (f"{name}: until the loop's final best, s", reached, ".0f"),
            (f"{name}: that, of the loop's wall time", shares, ".2f"),
        ]
    print("| | median | lower quartile | upper |")
    print("|---|---|---|---|")
    for title, values, form in rows:
        print(f"| {title} | {in_words(values, form)} |")
    return {title: in_words(values, form).split(" | ")[0] for title, values, form in rows}


def draw(runs: dict[str, list[Run]], picture: Path) -> None:
    """Draw the number of trials and the best score over wall time.

    Lines are medians over the seeds, and bands are quartiles.
    """
    import matplotlib.pyplot as plt
    import numpy as np

    figure, (ended, scores) = plt.subplots(ncols=2, figsize=(9.6, 3.4), layout="constrained")
    seconds = np.linspace(0, max(one.wall_s for one in runs[LOOP]), 240)
    # The axis of scores fits the time after `soon_s`, because the first scores may be far lower.
    soon_s, ends = seconds[-1] / 6, []
    colours = ("#888888", "#c04a1a", "#2a6f97", "#4a7a3a")
    for (name, found), colour in zip(runs.items(), colours, strict=False):
        pruner = name.removeprefix("engine, ")
        label = "a loop around papermill" if name == LOOP else f"notebook-hpo, pruner: {pruner}"
        numbers = np.array([np.searchsorted(one.ends_s, seconds, "right") for one in found])
        best = np.array([[one.best_at(at) for at in seconds] for one in found])
        for axes, values in ((ended, numbers), (scores, best)):
            low, middle, high = np.percentile(values, [25, 50, 75], axis=0)
            begun = low > 0
            axes.fill_between(
                seconds[begun], low[begun], high[begun], color=colour, alpha=0.2, lw=0
            )
            axes.plot(seconds[begun], middle[begun], color=colour, label=label)
        ends += [*middle[seconds >= soon_s]]
    ended.set(xlabel="wall time, s", ylabel="trials that have ended", ylim=(0, None))
    scores.set(xlabel="wall time, s", ylabel="best validation accuracy so far")
    margin = 0.1 * (max(ends) - min(ends))
    scores.set_ylim(min(ends) - margin, max(ends) + 2 * margin)
    ended.legend(loc="upper left", frameon=False)
    for axes in (ended, scores):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(picture, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--notebook", choices=RESEARCH, default="digits")
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--trials", type=int, default=24)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument(
        "--words", type=int, help="words of each language in `languages`: more data"
    )
    parser.add_argument("--pruners", nargs="+", default=["median"])
    parser.add_argument("--runs", type=Path, help="a file that keeps what was measured")
    parser.add_argument("--picture", type=Path, help="where to draw the best score over wall time")
    parser.add_argument("--contender", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--until", type=float, help=argparse.SUPPRESS)
    options = parser.parse_args()
    fixed = {"epochs": options.epochs}
    if options.words is not None:
        fixed["per_language"] = options.words
    sizes: dict[str, Any] = {"trials": options.trials, "fixed": fixed}
    if options.contender is not None:
        print(json.dumps(contend(options, sizes)))
        return
    names = (LOOP, *(f"engine, {pruner}" for pruner in options.pruners))
    kept = read_runs(options.runs)
    runs: dict[str, list[Run]] = {name: [] for name in names}

    def keep(what: str, one: Run) -> Run:
        if options.runs is not None:
            with options.runs.open("a", encoding="utf-8") as lines:
                lines.write(json.dumps({"what": what, "run": asdict(one)}) + "\n")
        return one

    for seed in range(options.first, options.first + options.seeds):
        for name, found in runs.items():
            what = f"{options.notebook}: {name}, seed {seed}, {sizes}"
            limit_s = runs[LOOP][-1].wall_s if name != LOOP else 0.0
            one = kept.get(what) or keep(
                what, run(name, notebook=options.notebook, seed=seed, limit_s=limit_s, **sizes)
            )
            found.append(one)
            score = f"{one.best_at(one.wall_s):.4f} in {one.wall_s:.0f} s"
            print(f"seed {seed}: {name} {score}", file=sys.stderr, flush=True)
    figures = compare(runs)
    if options.picture is not None:
        draw(runs, options.picture)
    print(json.dumps(figures))


def contend(options: argparse.Namespace, sizes: Mapping[str, Any]) -> Any:
    """Run one contender in this process, and return its result, which the process prints."""
    research = RESEARCH[options.notebook]
    if options.contender == LOOP:
        return loop(research, options.folder, seed=options.first, **sizes)
    pruner = options.contender.removeprefix("engine, ")
    of_engine = {"seed": options.first, "until": options.until, **sizes}
    return engine(research, options.folder, pruner=pruner, **of_engine)


if __name__ == "__main__":
    main()
