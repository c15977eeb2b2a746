"""Compare what pruners save in training and lose in scores, on the same learning curves.

    OMP_NUM_THREADS=1 uv run --with lcdb benchmarks/pruning.py
    OMP_NUM_THREADS=1 uv run benchmarks/pruning.py --sets one-cycle,constant,fine-tuning
    OMP_NUM_THREADS=1 uv run --with onnxruntime benchmarks/pruning.py --sets lcbench-odd \
        --lcbench FOLDER --studies 4

A study replays trials whose complete learning curves are known. A trial costs the steps up to the
one at which the pruner ends it. There are three sources of curves:

- `curves.py` has trained the curves in `curves/`.
- The package `lcdb` has those of the Learning Curve Database (Mohr et al., 2022, "LCDB 1.0: An
  Extensive Learning Curves Database for Classification Tasks"): twenty learners of scikit-learn on
  growing samples, with twenty-five splits each.
- The surrogate model in YAHPO Gym predicts those of LCBench (Zimmer et al., 2021, "Auto-PyTorch
  Tabular"). `lcbench-odd` and `lcbench-even` have `--studies` studies of each data set with an odd
  or even number. `auto` was fitted to the odd ones.

The pruner `auto` freezes (pauses) trials, `auto-8` at most eight at once, and `auto-unfrozen` none.
`top5` continues the best five of all trials after step 10 of 52. `auto-off-N` has one GPU whose
memory the slots fill, and host memory for N frozen trials that have left it (`off_gpu.py`). In the
order `random`, a study draws from all curves alike. In the order `converging`, it draws more and
more from curves with good ends, like a sampler that learns from scores.
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
from off_gpu import EPOCH_S, SweepOnGpu

from sweeper import Settings
from sweeper.search.pruners import Curve as Seen
from sweeper.search.pruners import Curves, PredictivePruner, Verdict, make_pruner

CURVES = Path(__file__).parent / "curves"
#: OpenML's numbers of data sets on which the final scores of the twenty learners differ widely.
LCDB_DATA = (12, 18)
PRUNERS = "none,auto,auto-unfrozen,median,percentile,asha,hyperband,patient,wilcoxon"
ORDERS = ("random", "converging")
#: Inputs of LCBench's surrogate model, in its order.
LCBENCH = "epoch batch_size learning_rate momentum weight_decay num_layers max_units max_dropout"
#: The score of a training after each step.
Curve = tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The result of one study with a pruner, compared with the same study without a pruner.

    Attributes:
        training: Number of trained steps, as a share of those without a pruner.
        lost: By how much the best score is worse than without a pruner.
        is_winner_pruned: Whether the trial that is best without a pruner was pruned, and no
            completed trial has an equal score.
        time: Wall time, as a share of that without a pruner with the same number of slots.
    """

    training: float
    lost: float
    is_winner_pruned: bool
    time: float


def from_lcdb(number: int) -> list[Curve]:
    """Return the curves of a data set in the Learning Curve Database.

    A curve is the accuracy over the sizes of the training sample. Shorter curves are left out.

    Args:
        number: OpenML's number of the data set.
    """
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


def from_lcbench(folder: Path, parity: int, studies: int, trials: int) -> list[list[Curve]]:
    """Return studies with random params on LCBench, each as a list of curves.

    A curve is the validation accuracy in each of 52 epochs.

    Args:
        folder: Folder with the surrogate model.
        parity: 1 for data sets with odd numbers, 0 for even numbers.
        studies: Number of studies of each data set.
        trials: Number of trials in a study.
    """
    import onnxruntime  # type: ignore[import-not-found]

    numbers = json.loads((folder / "encoding.json").read_text())["OpenML_task_id"]
    space = json.loads((folder / "config_space.json").read_text())
    params = {one["name"]: one for one in space["hyperparameters"]}
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    model = onnxruntime.InferenceSession(folder / "model.onnx", options)
    found = []
    for task, number in numbers.items():
        for seed in range(studies) if number % 2 == parity and task.isdigit() else ():
            rng, drawn = np.random.default_rng([int(task), seed]), np.zeros((trials, 8))
            for place, name in enumerate(LCBENCH.split()[1:], 1):
                low, high, is_log = (params[name][key] for key in ("lower", "upper", "log"))
                is_int, at = params[name]["type"] == "uniform_int", rng.random(trials)
                high += is_int and not is_log
                drawn[:, place] = low * (high / low) ** at if is_log else low + at * (high - low)
                if is_int:
                    drawn[:, place] = drawn[:, place].round() if is_log else drawn[:, place] // 1
            rows = drawn.repeat(52, axis=0).astype(np.float32)
            rows[:, 0] = np.tile(np.arange(1, 53), trials)
            inputs = {"x_cat": np.full((len(rows), 1), number, np.int32), "x_cont": rows}
            accuracy = model.run(None, inputs)[0][:, 1].astype(float).reshape(trials, 52)
            found.append([tuple(curve) for curve in accuracy.tolist()])
    return found


def load(name: str) -> list[Curve]:
    """Return the curves of a set: a file in `curves/` by its name, or `lcdb-NUMBER`."""
    if name.startswith("lcdb"):
        return from_lcdb(int(name.removeprefix("lcdb-")))
    found = json.loads((CURVES / f"{name}.json").read_text())
    return [tuple(curve["values"]) for curve in found["curves"]]


def ordered(
    curves: Sequence[Curve], trials: int, order: str, rng: np.random.Generator
) -> list[Curve]:
    """Return the curves of one study, in the order in which its trials begin.

    No curve occurs twice.

    Args:
        curves: Curves from which the study draws.
        trials: Number of trials.
        order: One of `ORDERS`.
        rng: Source of random numbers.
    """
    keys = rng.random(len(curves))
    if order == "random":
        return [curves[place] for place in np.argsort(keys)[:trials]]
    left = sorted(curves, key=lambda curve: curve[-1])
    drawn = []
    for number in range(trials):
        # Share of the curves from which this trial is drawn: all at first, at the end the best
        # quarter of them.
        share = 1 - 0.75 * number / trials
        place = len(left) - 1 - int(rng.random() * share * len(left))
        drawn.append(left.pop(place))
    return drawn


def outcome(curves: Sequence[Curve], steps: int, best: float, *, time: float, jobs: int) -> Outcome:
    """Return the result of a study that has ended.

    Args:
        curves: Curves of all trials.
        steps: Number of trained steps.
        best: Best final score of the completed trials.
        time: Wall time, in units of one step of one trial.
        jobs: Number of slots.
    """
    possible, all_steps = max(curve[-1] for curve in curves), sum(map(len, curves))
    return Outcome(
        training=steps / all_steps,
        lost=possible - best,
        is_winner_pruned=best < possible,
        time=time / (all_steps / jobs),
    )


def replay_frozen(curves: Sequence[Curve], most: int, *, jobs: int) -> Outcome:
    """Return the result of one study with `pruner: auto`, which freezes (pauses) trials.

    Args:
        curves: Curves of all trials, in the order in which the trials begin.
        most: Largest number of trials that are frozen at the same time.
        jobs: Number of slots.
    """
    pruner, steps, time = PredictivePruner(), 0, 0.0
    trials: dict[int, Seen] = {}
    running: deque[int] = deque()
    seen = Curves(by_number=trials, sign=1.0)
    while True:
        while len(running) < jobs:
            number = pruner.thaw(seen, to_begin=len(curves) - len(trials))
            if number is None and len(trials) == len(curves):
                break
            number = len(trials) if number is None else number
            held = trials[number].values if number in trials else {}
            trials[number] = Seen(values=held, state="running")
            running.append(number)
        if not running:
            ends = (it.final for it in trials.values() if it.final is not None)
            return outcome(curves, steps, max(ends), time=time, jobs=jobs)
        time += 1 / len(running)
        number, steps = running.popleft(), steps + 1
        curve, at = curves[number], len(trials[number].values)
        values = {**trials[number].values, at: curve[at]}
        trials[number] = Seen(values=values, state="running")
        verdict = pruner.judge(seen, number, to_begin=len(curves) - len(trials))
        if at + 1 == len(curve):
            trials[number] = Seen(values=values, state="completed", final=curve[-1])
        elif verdict is Verdict.GO_ON:
            running.append(number)
        else:
            is_frozen = verdict is Verdict.FREEZE
            trials[number] = Seen(values=values, state="frozen" if is_frozen else "pruned")
            if sum(it.state == "frozen" for it in trials.values()) > most:
                last = pruner.order(seen)[-1].number
                trials[last] = Seen(values=trials[last].values, state="pruned")


def replay(curves: Sequence[Curve], pruner: str, *, jobs: int) -> Outcome:
    """Return the result of one study with a pruner.

    Args:
        curves: Curves of all trials, in the order in which the trials begin.
        pruner: Name of the pruner, as in `--pruners`.
        jobs: Number of slots.
    """
    if pruner.startswith("top"):
        look = max(1, round(len(curves[0]) * 10 / 52))
        best = sorted(curves, key=lambda curve: -curve[look - 1])[: int(pruner[3:])]
        steps = look * (len(curves) - len(best)) + sum(map(len, best))
        highest = max(curve[-1] for curve in best)
        return outcome(curves, steps, highest, time=steps / jobs, jobs=jobs)
    if pruner.startswith("auto-off-"):
        sweep = SweepOnGpu(curves, jobs=jobs, room=int(pruner.removeprefix("auto-off-")))
        sweep.run()
        ends = (it.final for it in sweep.seen.values() if it.final is not None)
        time = sweep.seconds / EPOCH_S
        return outcome(curves, sweep.steps, max(ends), time=time, jobs=jobs)
    if pruner.startswith("auto") and pruner != "auto-unfrozen":
        return replay_frozen(
            curves, int(pruner.removeprefix("auto-").replace("auto", "999")), jobs=jobs
        )
    pruner = pruner.removesuffix("-unfrozen")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    settings = {"study": {"pruner": pruner}, "objective": {"a": "maximize"}, "space": {"x": [1, 2]}}
    study = optuna.create_study(
        direction="maximize",
        pruner=make_pruner(Settings.from_mapping(settings)),
        sampler=optuna.samplers.RandomSampler(seed=0),
    )
    waiting = list(curves)[::-1]
    running: deque[tuple[optuna.Trial, Iterator[tuple[int, float]], float]] = deque()
    steps, time, highest = 0, 0.0, -np.inf
    while waiting or running:
        while waiting and len(running) < jobs:
            curve = waiting.pop()
            running.append((study.ask(), enumerate(curve), curve[-1]))
        # All slots train one step in the same time.
        n_running = len(running)
        trial, left, final = running.popleft()
        at = next(left, None)
        if at is None:
            study.tell(trial, final)
            highest = max(highest, final)
            continue
        steps, time = steps + 1, time + 1 / n_running
        trial.report(at[1], at[0])
        if trial.should_prune():
            study.tell(trial, state=optuna.trial.TrialState.PRUNED)
        else:
            running.append((trial, left, final))
    return outcome(curves, steps, highest, time=time, jobs=jobs)


def outcomes(
    name: str, pruner: str, order: str, *, lcbench: Path, studies: int, trials: int, jobs: int
) -> list[Outcome]:
    """Return the results of several studies that draw from one set of curves.

    Args:
        name: Name of the set, as in `--sets`.
        pruner: Name of the pruner, as in `--pruners`.
        order: One of `ORDERS`.
        lcbench: Folder with LCBench's surrogate model.
        studies: Number of studies, for LCBench of each data set.
        trials: Number of trials in a study.
        jobs: Number of slots.
    """
    if name.startswith("lcbench"):
        drawn = from_lcbench(lcbench, int(name.endswith("odd")), studies, trials)
    else:
        known, rngs = load(name), map(np.random.default_rng, range(studies))
        drawn = [ordered(known, trials, order, rng) for rng in rngs]
    return [replay(curves, pruner, jobs=jobs) for curves in drawn]


def draw(figures: Mapping[str, Sequence[float]], picture: Path) -> None:
    """Draw how often each pruner pruned the winner, over the share of training that it left.

    Each set has a panel.
    """
    import matplotlib.pyplot as plt

    names = list(dict.fromkeys(key.split()[0] for key in figures))
    pruners = list(dict.fromkeys(key.split()[2] for key in figures))
    figure, axes = plt.subplots(
        1, len(names), figsize=(max(6.5, 2.3 * len(names)), 3.4), sharey=True, squeeze=False
    )
    for name, panel in zip(names, axes[0], strict=True):
        for pruner, colour in zip(pruners, plt.colormaps["tab10"].colors, strict=False):  # type: ignore[attr-defined]
            for order, marker in zip(ORDERS, "o^", strict=True):
                if f"{name} {order} {pruner}" not in figures:
                    continue
                training, _, killed, _ = figures[f"{name} {order} {pruner}"]
                label = pruner if name == names[0] and order == ORDERS[0] else None
                size = 70 if pruner == "auto" else 30
                panel.scatter(
                    100 * training, 100 * killed, size, [colour], marker=marker, label=label
                )
        panel.axhline(5, color="#888888", lw=0.8, ls=":")
        panel.set(title=name, xlabel="training, %", xlim=(15, 105))
        panel.spines[["top", "right"]].set_visible(False)
    axes[0][0].set_ylabel("winner pruned, % of studies")
    figure.legend(loc="outside lower center", ncols=5, frameon=False)
    figure.set_layout_engine("constrained")
    figure.savefig(picture, metadata={"Date": None})


def main() -> None:
    """Replay the studies, and print one table and the figures as JSON."""
    trained_sets = ["one-cycle", "constant", "fine-tuning"]
    every = [*trained_sets, *(f"lcdb-{number}" for number in LCDB_DATA)]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", default=",".join(every))
    parser.add_argument("--pruners", default=PRUNERS)
    parser.add_argument("--studies", type=int, default=100)
    parser.add_argument("--trials", type=int, default=40)
    parser.add_argument("--jobs", type=int, default=4)
    parser.add_argument("--picture", type=Path, help="where to draw how the pruners compare")
    parser.add_argument(
        "--lcbench", type=Path, default=Path("lcbench"), help="folder of the surrogate model"
    )
    options = parser.parse_args()
    sizes = {name: getattr(options, name) for name in ("lcbench", "studies", "trials", "jobs")}
    names, pruners = options.sets.split(","), options.pruners.split(",")
    figures = {}
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        work = {
            (name, order, pruner): pool.submit(outcomes, name, pruner, order, **sizes)
            for name in names
            for order in (ORDERS[:1] if name.startswith("lcbench") else ORDERS)
            for pruner in pruners
        }
        print(
            "| set | order | pruner | training, % | score lost, mean | winner pruned, % | time, % |"
        )
        print("|---|---|---|---|---|---|---|")
        for (name, order, pruner), future in work.items():
            found = future.result()
            training = statistics.median(one.training for one in found)
            lost = statistics.mean(one.lost for one in found)
            killed = statistics.mean(one.is_winner_pruned for one in found)
            time = statistics.median(one.time for one in found)
            shares = (f"{training:.1%}", f"{lost:.3g}", f"{killed:.1%}", f"{time:.1%}")
            cells = (name, order, pruner, *shares)
            print("|", " | ".join(cells), "|", flush=True)
            figures[f"{name} {order} {pruner}"] = [training, lost, killed, time]
    if options.picture is not None:
        draw(figures, options.picture)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
