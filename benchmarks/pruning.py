"""What pruners save and what they cost: all of them on the same learning curves.

    OMP_NUM_THREADS=1 uv run --with lcdb benchmarks/pruning.py
    OMP_NUM_THREADS=1 uv run benchmarks/pruning.py --sets one-cycle,constant,fine-tuning

A study replays curves that are known to their end, in an order of its own; a trial costs the steps
up to the one at which the pruner ends it. The curves in `curves/` are trained by
`curves.py`; those of the Learning Curve Database (Mohr et al., 2022, "LCDB 1.0: An Extensive
Learning Curves Database for Classification Tasks") come with the package `lcdb`: twenty learners of
scikit-learn on growing samples, twenty-five splits each.

In the random order a study draws from all curves alike, in the converging one more and more from
those that end well, as a sampler does that learns.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import optuna

from sweeper import Settings
from sweeper.study.pruners import make_pruner

CURVES = Path(__file__).parent / "curves"
#: OpenML's numbers of data sets on which the twenty learners end wide apart.
LCDB_DATA = (12, 18)
PRUNERS = ("none", "auto", "median", "percentile", "asha", "hyperband", "patient", "wilcoxon")
ORDERS = ("random", "converging")


#: The score of a training after each step.
Curve = tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Of one study.

    Attributes:
        training: its steps, as a share of those without a pruner.
        lost: how much worse its best score is than without a pruner.
        is_winner_pruned: whether no completed trial has the score of the best without a pruner.
    """

    training: float
    lost: float
    is_winner_pruned: bool


def trained(name: str) -> list[Curve]:
    """A set of `curves/`."""
    found = json.loads((CURVES / f"{name}.json").read_text())
    assert found["direction"] == "maximize"
    return [tuple(curve["values"]) for curve in found["curves"]]


def from_lcdb(number: int) -> list[Curve]:
    """The curves of one data set: accuracy over the sizes of the sample."""
    import pandas as pd

    spec = importlib.util.find_spec("lcdb")
    assert spec is not None and spec.origin is not None, "run with: uv run --with lcdb"
    path = Path(spec.origin).with_name("database-accuracy.csv")
    names = ["openmlid", "learner", "size_train", "outer_seed", "inner_seed", "score_valid"]
    rows = pd.concat(
        part[part.openmlid == number]
        for part in pd.read_csv(path, usecols=names, chunksize=500_000)
    )
    curves = []
    for _, curve in rows.groupby(["learner", "outer_seed", "inner_seed"]):
        curves.append(tuple(curve.sort_values("size_train").score_valid.dropna()))
    longest = max(map(len, curves))
    return [curve for curve in curves if len(curve) == longest]


def load(name: str) -> list[Curve]:
    """A set by its name: of `curves/`, or `lcdb-NUMBER`."""
    return from_lcdb(int(name.removeprefix("lcdb-"))) if name.startswith("lcdb") else trained(name)


def ordered(
    curves: Sequence[Curve], trials: int, order: str, rng: np.random.Generator
) -> list[Curve]:
    """The curves of one study, in the order in which its trials begin; none comes twice."""
    keys = rng.random(len(curves))
    if order == "random":
        return [curves[place] for place in np.argsort(keys)[:trials]]
    left = sorted(curves, key=lambda curve: curve[-1])
    drawn = []
    for number in range(trials):
        # The share of the curves from which it draws: all at first, in the end the best quarter.
        share = 1 - 0.75 * number / trials
        place = len(left) - 1 - int(rng.random() * share * len(left))
        drawn.append(left.pop(place))
    return drawn


def replay(curves: Sequence[Curve], pruner: str, *, jobs: int) -> Outcome:
    """One study of all curves in turn, so many at once."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    settings = {"study": {"pruner": pruner}, "objective": {"a": "maximize"}, "space": {"x": [1, 2]}}
    study = optuna.create_study(
        direction="maximize",
        pruner=make_pruner(Settings.from_mapping(settings)),
        sampler=optuna.samplers.RandomSampler(seed=0),
    )
    waiting = list(curves)[::-1]
    running: deque[tuple[optuna.Trial, Iterator[tuple[int, float]], float]] = deque()
    steps, best = 0, -np.inf
    while waiting or running:
        while waiting and len(running) < jobs:
            curve = waiting.pop()
            running.append((study.ask(), enumerate(curve), curve[-1]))
        trial, left, final = running.popleft()
        at = next(left, None)
        if at is None:
            study.tell(trial, final)
            best = max(best, final)
            continue
        steps += 1
        trial.report(at[1], at[0])
        if trial.should_prune():
            study.tell(trial, state=optuna.trial.TrialState.PRUNED)
        else:
            running.append((trial, left, final))
    possible = max(curve[-1] for curve in curves)
    return Outcome(
        training=steps / sum(map(len, curves)),
        lost=possible - best,
        is_winner_pruned=best < possible,
    )


def outcomes(
    name: str, pruner: str, order: str, *, studies: int, trials: int, jobs: int
) -> list[Outcome]:
    """Of several studies over one set."""
    curves = load(name)
    found = []
    for seed in range(studies):
        drawn = ordered(curves, trials, order, np.random.default_rng(seed))
        found.append(replay(drawn, pruner, jobs=jobs))
    return found


def draw(figures: Mapping[str, Sequence[float]], picture: Path) -> None:
    """Draw how often each pruner ended the winner over the training that it left, set by set."""
    import matplotlib.pyplot as plt

    names = list(dict.fromkeys(key.split()[0] for key in figures))
    pruners = list(dict.fromkeys(key.split()[2] for key in figures))
    figure, axes = plt.subplots(
        1, len(names), figsize=(2.3 * len(names), 2.9), sharey=True, squeeze=False
    )
    for name, panel in zip(names, axes[0], strict=True):
        for pruner, colour in zip(pruners, plt.colormaps["tab10"].colors, strict=False):  # type: ignore[attr-defined]
            for order, marker in zip(ORDERS, "o^", strict=True):
                training, _, killed = figures[f"{name} {order} {pruner}"]
                label = pruner if name == names[0] and order == ORDERS[0] else None
                size = 70 if pruner == "auto" else 30
                panel.scatter(
                    100 * training, 100 * killed, size, [colour], marker=marker, label=label
                )
        panel.axhline(5, color="#888888", lw=0.8, ls=":")
        panel.set(title=name, xlabel="training, %", xlim=(20, 105))
        panel.spines[["top", "right"]].set_visible(False)
    axes[0][0].set_ylabel("winner pruned, % of studies")
    figure.legend(loc="outside lower center", ncols=len(pruners), frameon=False)
    figure.set_layout_engine("constrained")
    figure.savefig(picture, metadata={"Date": None})


def main() -> None:
    """Compare and print one table for each set."""
    trained_sets = ["one-cycle", "constant", "fine-tuning"]
    every = [*trained_sets, *(f"lcdb-{number}" for number in LCDB_DATA)]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", default=",".join(every))
    parser.add_argument("--pruners", default=",".join(PRUNERS))
    parser.add_argument("--studies", type=int, default=100)
    parser.add_argument("--trials", type=int, default=40)
    parser.add_argument("--jobs", type=int, default=4)
    parser.add_argument("--picture", type=Path, help="where to draw how the pruners compare")
    options = parser.parse_args()
    sizes = {"studies": options.studies, "trials": options.trials, "jobs": options.jobs}
    names, pruners = options.sets.split(","), options.pruners.split(",")
    figures = {}
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        work = {
            (name, order, pruner): pool.submit(outcomes, name, pruner, order, **sizes)
            for name in names
            for order in ORDERS
            for pruner in pruners
        }
        print("| set | order | pruner | training, % | score lost, mean | winner pruned, % |")
        print("|---|---|---|---|---|---|")
        for (name, order, pruner), future in work.items():
            found = future.result()
            training = statistics.median(one.training for one in found)
            lost = statistics.mean(one.lost for one in found)
            killed = statistics.mean(one.is_winner_pruned for one in found)
            print(
                f"| {name} | {order} | {pruner} | {training:.0%} | {lost:.4f} | {killed:.0%} |",
                flush=True,
            )
            figures[f"{name} {order} {pruner}"] = [training, lost, killed]
    if options.picture is not None:
        draw(figures, options.picture)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
