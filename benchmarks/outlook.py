"""What the summary promises of ten more trials, against what ten more trials come to.

    OMP_NUM_THREADS=1 uv run benchmarks/outlook.py

After 20, 30 and 40 trials of `sampler: auto`, one after the other, on functions with and without
noise. A good forecast has the same mean as what follows, and is right about how often anything
better follows at all.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from search import BRANCHES, PROBLEMS, Auto, Problem, conditional

AFTER, MORE = (20, 30, 40), 10
NOISE = 0.005


def noisy(seed: int) -> Problem:
    """An error rate as a training has it: another seed, another result."""
    rng = np.random.default_rng(seed)

    def value(params: Mapping[str, Any]) -> float:
        return conditional(params) + NOISE * float(rng.standard_normal())

    return Problem(space=BRANCHES, value=value)


MADE: Mapping[str, Callable[[int], Problem]] = {
    "Branin": lambda _: PROBLEMS["Branin"](),
    "Hartmann 6": lambda _: PROBLEMS["Hartmann 6"](),
    "branches": lambda _: PROBLEMS["branches, an optimizer's and layers'"](),
    f"branches, with noise of {NOISE}": noisy,
}


def forecasts(name: str, seed: int) -> list[tuple[float, float, float]]:
    """Of one study, after each number of trials: improvement and chance as promised, and the
    improvement that followed."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    problem = MADE[name](seed)
    with tempfile.TemporaryDirectory() as folder:
        auto = Auto(problem, trials=AFTER[-1] + MORE, seed=seed, folder=Path(folder))
        values, promised = [], []
        for done in range(AFTER[-1] + MORE + 1):
            if done in AFTER:
                outlook = auto.study.insights.outlook(auto.settings, auto.samplers)
                assert outlook is not None
                promised.append((outlook.improvement, outlook.chance))
            if done < AFTER[-1] + MORE:
                number, params = auto.ask()
                values.append(problem.values(params)[0])
                auto.tell(number, (values[-1],))
    return [
        (*promise, min(values[:after]) - min(values[: after + MORE]))
        for promise, after in zip(promised, AFTER, strict=True)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=12)
    options = parser.parse_args()
    print("| function | after | promised, mean | followed, mean | better: promised | followed |")
    print("|---|---|---|---|---|---|")
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        for name in MADE:
            seeds = range(options.seeds)
            found = list(pool.map(forecasts, [name] * len(seeds), seeds))
            for index, after in enumerate(AFTER):
                promises, chances, followed = zip(*(one[index] for one in found), strict=True)
                print(
                    f"| {name} | {after} | {statistics.fmean(promises):.3g} "
                    f"| {statistics.fmean(followed):.3g} | {statistics.fmean(chances):.0%} "
                    f"| {statistics.fmean(gain > 0 for gain in followed):.0%} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
