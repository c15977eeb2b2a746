"""What `study.order: fixed` costs: how long a sweep takes, and how soon it finds a good trial.

    uv run benchmarks/order.py [--jobs 4,8] [--spread 0.5]

A study proposes trials as it does in a sweep, and functions stand for notebooks. Time is simulated:
durations are log-normal with a median of one, and a slot asks again at once. "behind" is how many
trials back the newest trial lies whose end a proposal considers, as a multiple of the slots; it
is 1 in a sweep. Each row compares with the free order of the same seed.
"""

from __future__ import annotations

import argparse
import heapq
import logging
import random
import statistics
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import optuna
from search import PROBLEMS

from sweeper import Settings
from sweeper.study import SamplerFactory, Study
from sweeper.trials import TrialOutcome, TrialState

#: The problem for which trials are proposed.
PROBLEM = "Hartmann 6"


@dataclass(frozen=True, kw_only=True)
class Run:
    """A simulated sweep.

    Attributes:
        span: how long it took, in medians of a trial's duration.
        busy: the part of that time in which a slot had a trial.
        ends: when each trial ended, and how far its value is from the least there is.
    """

    span: float
    busy: float
    ends: list[tuple[float, float]]

    def best(self, until: float) -> float:
        """The least regret of the trials that ended in so much time."""
        return min(regret for at, regret in self.ends if at <= until)


def simulate(*, jobs: int, lag: int | None, seed: int, trials: int, spread: float) -> Run:
    """Run a study in simulated time.

    Args:
        lag: how many numbers before a trial the last one is whose end counts; None: all that ended.
        spread: of the logarithm of a trial's duration.
    """
    problem = PROBLEMS[PROBLEM]()
    study: Mapping[str, Any] = {"name": "order", "seed": seed, "trials": trials, "sampler": "tpe"}
    settings = Settings.from_mapping(
        {"study": study, "objective": {"value": "minimize"}, "space": problem.space}
    )
    samplers = SamplerFactory(settings)
    clock = random.Random(seed)
    lasts = [clock.lognormvariate(0.0, spread) for _ in range(trials)]
    running: list[tuple[float, int, float]] = []
    ends: list[tuple[float, float]] = []
    now = 0.0
    with tempfile.TemporaryDirectory() as folder:
        opened = Study.open(f"sqlite:///{folder}/study.db", settings)
        if lag is not None:
            opened.note_facts(lag=lag)
            opened.keep_order(jobs)
        while True:
            while len(running) < jobs:
                record = opened.ask(settings, samplers, lambda number: Path(str(number)))
                if record is None:
                    break
                value = problem.value(record.params)
                heapq.heappush(running, (now + lasts[record.number], record.number, value))
                opened.prepare(settings, samplers)
            if not running:
                break
            now, number, value = heapq.heappop(running)
            done = TrialOutcome(state=TrialState.COMPLETED, scores={"value": value})
            opened.tell(number, done)
            ends.append((now, value - problem.least))
        opened.close()
    assert len(ends) == trials
    return Run(span=now, busy=sum(lasts) / (jobs * now), ends=ends)


def main() -> None:
    """Measure and print one table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--jobs", default="4,8", help="slots (default: 4,8)")
    parser.add_argument("--behind", default="1,1.5,2", help="multiples (default: 1,1.5,2)")
    parser.add_argument("--spread", type=float, default=0.5, help="of durations (default: 0.5)")
    parser.add_argument("--trials", type=int, default=60, help="of each study (default: 60)")
    parser.add_argument("--seeds", type=int, default=12, help="studies of each (default: 12)")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    print("| at once | order | behind | time, to free | busy | regret | in the time of free |")
    print("|---|---|---|---|---|---|---|", flush=True)
    for jobs in map(int, options.jobs.split(",")):
        common = {"jobs": jobs, "trials": options.trials, "spread": options.spread}
        free = [simulate(lag=None, seed=seed, **common) for seed in range(options.seeds)]
        rows: list[tuple[str, str, list[Run]]] = [("free", "", free)]
        for multiple in map(float, options.behind.split(",")):
            lag = int(multiple * jobs)
            fixed = [simulate(lag=lag, seed=seed, **common) for seed in range(options.seeds)]
            rows.append(("fixed", f"{multiple:g}", fixed))
        for order, behind, runs in rows:
            pairs = list(zip(runs, free, strict=True))
            print(
                f"| {jobs} | {order} | {behind} "
                f"| {statistics.median(run.span / other.span for run, other in pairs):.2f} "
                f"| {statistics.median(run.busy for run in runs):.0%} "
                f"| {statistics.median(run.best(run.span) for run in runs):.3f} "
                f"| {statistics.median(run.best(other.span) for run, other in pairs):.3f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
