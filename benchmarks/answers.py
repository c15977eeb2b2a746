"""Measure whether the answer of a study finds the effects that were planted in its scores.

    uv run benchmarks/answers.py [--seeds 100,101] [--trials 60]

Each study has five params, the default sampler, and a function in place of a notebook. There are
six kinds of studies: two params that matter alike, two that act together, one that matters more
than another, luck alone, a region where all trials fail, and a param that makes trials long. The
seed determines which params these are, and where their best values are. An answer is right if it
names these params (and their order, if they have one) and no others.
"""

from __future__ import annotations

import argparse
import logging
import math
import os
import random
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from sweeper import Settings, Sweep
from sweeper.testing import InlineExecutor, write_notebook
from sweeper.trials import Insights, Reason, RunningTrial, TrialOutcome, TrialSpec, TrialState

SPACE: Mapping[str, Mapping[str, Any]] = {
    "learning_rate": {"low": 1e-5, "high": 1e-1, "log": True},
    "weight_decay": {"low": 1e-6, "high": 1e-2, "log": True},
    "mixup": {"low": 0.0, "high": 1.0},
    "width": {"low": 16, "high": 512, "log": True},
    "layers": {"low": 1, "high": 8},
}
OWN = "learning_rate = 1e-3\nweight_decay = 1e-4\nmixup = 0.2\nwidth = 128\nlayers = 3"


class Planted:
    """The effects that are planted in a study: three params, and the best values of the first two.

    Args:
        kind: One of `KINDS`.
        seed: Seed by which the params and their best values are drawn.
    """

    def __init__(self, kind: str, seed: int) -> None:
        drawn = random.Random(f"{kind} {seed}")
        self.kind, self.seed = kind, seed
        self.first, self.second, self.third = drawn.sample(list(SPACE), 3)
        self.places = drawn.uniform(0.25, 0.75), drawn.uniform(0.25, 0.75)
        self.fails_from = drawn.uniform(0.62, 0.78)

    def run(self, spec: TrialSpec, _: RunningTrial) -> TrialOutcome:
        """Return the outcome of a trial with these params, in a study of this kind."""
        first, second, third = (
            place(spec.params[name], SPACE[name]) for name in (self.first, self.second, self.third)
        )
        luck = random.Random(f"{self.seed} {spec.number}").gauss()
        one, two = (first - self.places[0]) ** 2, (second - self.places[1]) ** 2
        duration_s = 20.0
        match self.kind:
            case "two alike":
                score = 0.9 - 0.3 * (one + two) + 0.004 * luck
            case "two act together":
                score = 0.9 - 0.35 * (first - second) ** 2 + 0.004 * luck
            case "one more than another":
                score = 0.9 - 0.4 * one - 0.16 * two + 0.003 * luck
            case "a region fails" if third > self.fails_from:
                why: Any = {"reason": Reason.CELL_ERROR, "message": "RuntimeError: too much"}
                return TrialOutcome(state=TrialState.FAILED, duration_s=3.0, **why)
            case "luck":
                score = 0.8 + 0.012 * luck
            case _:
                score = 0.9 - 0.4 * one + 0.003 * luck
                duration_s += 600 * third**2 if self.kind == "time" else 0
        scores = {"accuracy": score}
        return TrialOutcome(state=TrialState.COMPLETED, scores=scores, duration_s=duration_s)

    def is_found(self, found: Insights) -> bool:
        """Return whether the answer of a study names the planted effects."""
        (mattered,) = found.mattered
        groups = [{*group} for group in mattered.groups]
        both = {self.first, self.second}
        match self.kind:
            case "two alike":
                return groups == [both] and mattered.pair is None
            case "two act together":
                return {*(mattered.pair or ())} == both
            case "one more than another":
                return groups == [{self.first}, {self.second}] and mattered.pair is None
            case "luck":
                return not groups and mattered.pair is None
            case "a region fails":
                region = found.failures and found.failures.region
                fails = [part.param for part in region.parts] if region else []
                return groups == [{self.first}] and fails == [self.third]
        return groups == [{self.first}] and found.spent.driver == self.third


KINDS = (
    "two alike",
    "two act together",
    "one more than another",
    "luck",
    "a region fails",
    "time",
)


def place(value: Any, dimension: Mapping[str, Any]) -> float:
    """Return the position of a value in its range, from 0 to 1. With `log`, it is on a log scale.

    Args:
        value: The value.
        dimension: The range, as in a parameters file.
    """
    low, high = dimension["low"], dimension["high"]
    if dimension.get("log"):
        return math.log(value / low) / math.log(high / low)
    return float((value - low) / (high - low))


def insights_of(run: Callable[..., TrialOutcome], *, seed: int, trials: int) -> Insights:
    """Run a sweep whose trials are calls of a function, and return the answer of its study.

    Args:
        run: Function that returns the outcome of a trial, such as `Planted.run`.
        seed: Seed of the study.
        trials: Number of trials.
    """
    with tempfile.TemporaryDirectory() as folder:
        study = {"name": "planted", "trials": trials, "seed": seed}
        settings = {"study": study, "space": SPACE, "objective": {"accuracy": "maximize"}}
        sweep = Sweep.from_settings(
            Settings.from_mapping(settings),
            notebook=write_notebook(Path(folder, "nb.ipynb"), "accuracy = mixup", parameters=OWN),
            output=f"{folder}/out/{{run_id}}.ipynb",
            executor=lambda _: InlineExecutor(run),
        )
        found = sweep.run().insights
    assert found is not None
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", default="100,101", help="default: 100,101")
    parser.add_argument("--trials", type=int, default=60)
    options = parser.parse_args()
    seeds = [int(seed) for seed in options.seeds.split(",")]
    logging.disable(logging.WARNING)
    os.environ.pop("MLFLOW_TRACKING_URI", None)
    print("| planted | right | trials that failed, in all |\n|---|---|---|")
    for kind in KINDS:
        right = failed = 0
        for seed in seeds:
            planted = Planted(kind, seed)
            found = insights_of(planted.run, seed=seed, trials=options.trials)
            right += planted.is_found(found)
            failed += found.failures.failed if found.failures else 0
        print(f"| {kind} | {right} of {len(seeds)} | {failed} |", flush=True)


if __name__ == "__main__":
    main()
