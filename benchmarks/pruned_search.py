"""How soon a sweep that prunes finds a good trial, where most of its trials never complete.

    OMP_NUM_THREADS=1 uv run benchmarks/pruned_search.py

The error rate of `search.py` with branches, as the end of a curve of eight epochs that falls with a
speed of each trial's own, with noise at each epoch. One trial after the other. "rules" are those
by which proposals are made (`sweeper/study/samplers/factory.py`): with 2 the Gaussian process sees
completed trials only, with 3 also pruned ones. The regret is the true error of the completed trial
with the best score, after epochs, whatever trials they belong to.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import optuna
from search import BRANCHES, conditional

from sweeper import Settings
from sweeper.study import SamplerFactory, Study, make_pruner
from sweeper.trials import TrialOutcome, TrialState

EPOCHS, NOISE, LEAST = 8, 0.003, 0.05
BUDGETS = (100, 200, 400)


def regrets(pruner: str, rules: int, seed: int) -> tuple[list[float], int, int]:
    """The regret after each of the budgets, and how many trials began and completed in all."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    settings = Settings.from_mapping(
        {
            "study": {"name": "s", "seed": seed, "trials": 600, "pruner": pruner, "sampler": "gp"},
            "objective": {"error": "minimize"},
            "space": BRANCHES,
        }
    )
    rng = np.random.default_rng(seed)
    samplers, judge = SamplerFactory(settings).following(rules), make_pruner(settings)
    best, spent, found, completed = (1.0, 1.0), 0, list[float](), 0
    with tempfile.TemporaryDirectory() as folder:
        study = Study.open(f"sqlite:///{folder}/study.db", settings)
        while len(found) < len(BUDGETS):
            record = study.ask(settings, samplers, lambda number: Path(str(number)))
            assert record is not None
            true, speed = conditional(record.params), rng.uniform(0.4, 1.2)
            outcome = TrialOutcome(state=TrialState.PRUNED)
            for epoch in range(EPOCHS):
                left = 0.4 * np.exp(-speed * (epoch + 1)) * (1 - epoch / (EPOCHS - 1))
                seen = float(true + left + NOISE * rng.standard_normal())
                spent += 1
                if epoch < EPOCHS - 1 and study.report(record.number, epoch, seen, judge):
                    break
            else:
                outcome = TrialOutcome(state=TrialState.COMPLETED, scores={"error": seen})
                best, completed = min(best, (seen, true)), completed + 1
            study.tell(record.number, outcome)
            while len(found) < len(BUDGETS) and spent >= BUDGETS[len(found)]:
                found.append(best[1] - LEAST)
        trials = len(study.records())
        study.close()
    return found, trials, completed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=12)
    options = parser.parse_args()
    after = " | ".join(f"regret after {budget} epochs" for budget in BUDGETS)
    print(f"| pruner | rules | {after} | trials | completed |")
    print("|---|---|" + "---|" * (len(BUDGETS) + 2))
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        for pruner, rules in product(("none", "auto", "median"), (2, 3)):
            seeds = range(options.seeds)
            runs = list(pool.map(regrets, [pruner] * len(seeds), [rules] * len(seeds), seeds))
            medians = [
                statistics.median(column) for column in zip(*(r for r, _, _ in runs), strict=True)
            ]
            cells: Sequence[str] = [
                *(f"{median:.4f}" for median in medians),
                f"{statistics.median(n for _, n, _ in runs):.0f}",
                f"{statistics.median(n for _, _, n in runs):.0f}",
            ]
            print(f"| {pruner} | {rules} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
