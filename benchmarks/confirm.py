"""What `confirm` is worth: how often the best trial is the best one, where scores have noise.

    TMPDIR=/dev/shm OMP_NUM_THREADS=1 uv run benchmarks/confirm.py [--studies 50]

The scheduler, the study and the confirmation are those of a sweep; a function stands for the
notebook and nothing for MLflow. A trial's score is the true value of its params and normal noise
that depends on its seed and its params, so seeds that trials share do not help. The true values of
random params have a standard deviation of 1, and `sigma` is that of the noise.

"true best" is how often the best trial has the best true value of all that the search has tried,
with its standard error; "regret to tried" is by how much its true value is worse than that, and
"regret" by how much it is worse than the optimum, both on average. A search with the budget of the
confirming runs as further trials is compared as well: it has tried more.
"""

from __future__ import annotations

import argparse
import logging
import math
import random
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import optuna

from sweeper import Settings
from sweeper.study import SamplerFactory, Study
from sweeper.sweep.scheduling.scheduler import TrialScheduler
from sweeper.sweep.spending import Spending
from sweeper.sweep.stop_switch import StopSwitch
from sweeper.testing import InlineExecutor
from sweeper.tracking import Tracker
from sweeper.trials import (
    Events,
    Params,
    RunningTrial,
    StudyPaths,
    TrialOutcome,
    TrialRecord,
    TrialSpec,
    TrialState,
)

OPTIMUM = {"x": 0.3, "y": 0.7, "z": 0.45}
#: Of the distances of random params from the optimum.
DEVIATION = 0.1908


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The best trial by one way to choose it.

    Attributes:
        is_best: whether no trial of the search has a better true value.
        behind: the best true value of the search less its own.
        regret: the true value of the optimum less its own.
    """

    is_best: bool
    behind: float
    regret: float


class _NoTracker:
    """Stands for MLflow: takes everything and keeps nothing."""

    def started(self, *_: Any) -> None:
        """Nothing."""

    def reported(self, *_: Any) -> None:
        """Nothing."""

    def ended(self, *_: Any) -> None:
        """Nothing."""


def true_value(params: Params) -> float:
    """At most 0, at the optimum."""
    return -math.dist([float(str(params[n])) for n in OPTIMUM], [*OPTIMUM.values()]) / DEVIATION


def chosen(record: TrialRecord, records: Sequence[TrialRecord]) -> Choice:
    """How good a trial of the search is."""
    tried = max(true_value(it.params) for it in records if it.confirms is None)
    value = true_value(record.params)
    return Choice(is_best=value == tried, behind=tried - value, regret=-value)


def simulate(
    *, sampler: str, sigma: float, seed: int, trials: int, confirm: tuple[int, int] | None
) -> tuple[Choice, Choice]:
    """Run a study.

    Args:
        confirm: how many trials on how many seeds; None for a search alone.

    Returns:
        the best trial by its score in the search, and after the confirmation.
    """
    content: dict[str, Any] = {
        "study": {"name": "confirm", "seed": seed, "trials": trials, "sampler": sampler},
        "objective": {"score": "maximize"},
        "space": {name: {"low": 0.0, "high": 1.0} for name in OPTIMUM},
    }
    if confirm is not None:
        content["confirm"] = {"best": confirm[0], "seeds": confirm[1]}
    settings = Settings.from_mapping(content)

    def run(spec: TrialSpec, _: RunningTrial) -> TrialOutcome:
        noise = random.Random(f"{spec.seed} {sorted(spec.params.items())}").gauss(0.0, sigma)
        scores = {"score": true_value(spec.params) + noise}
        return TrialOutcome(state=TrialState.COMPLETED, scores=scores)

    with tempfile.TemporaryDirectory() as folder:
        study = Study.open(f"sqlite:///{folder}/study.db", settings)
        scheduler = TrialScheduler(
            settings=settings,
            inputs={},
            samplers=SamplerFactory(settings),
            paths=StudyPaths.parse(f"{folder}/{{run_id}}.ipynb", study="confirm"),
            study=study,
            tracker=cast(Tracker, _NoTracker()),
            tags={},
            stop_switch=StopSwitch(),
            events=Events(None),
            spending=Spending(study, None, since=time.monotonic()),
            jobs=lambda: 1,
        )
        InlineExecutor(run).run(scheduler)
        scheduler.close()
        records, best, confirmation = study.records(), study.best(), scheduler.confirmation()
        study.close()
    n_runs = 0 if confirm is None else confirm[0] * confirm[1]
    assert len(records) == trials + n_runs
    after = best if confirmation is None else confirmation.winners(best)
    assert confirmation is None or confirmation.winner is not None
    return chosen(best[0], records), chosen(after[0], records)


def row(sampler: str, sigma: float, way: str, choices: Sequence[Choice]) -> str:
    """A row of the table."""
    share = statistics.fmean(choice.is_best for choice in choices)
    error = math.sqrt(share * (1 - share) / len(choices))
    return (
        f"| {sampler} | {sigma:g} | {way} | {share:.0%} ± {error:.0%} "
        f"| {statistics.fmean(choice.behind for choice in choices):.3f} "
        f"| {statistics.fmean(choice.regret for choice in choices):.3f} |"
    )


def main() -> None:
    """Measure and print one table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--studies", type=int, default=50, help="of each row (default: 50)")
    parser.add_argument("--trials", type=int, default=30, help="of the search (default: 30)")
    parser.add_argument("--best", type=int, default=3, help="that are confirmed (default: 3)")
    parser.add_argument("--seeds", type=int, default=5, help="of each (default: 5)")
    parser.add_argument("--sigmas", default="0.3,1", help="of the noise (default: 0.3,1)")
    parser.add_argument("--samplers", default="random,tpe", help="(default: random,tpe)")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    confirm, trials = (options.best, options.seeds), options.trials
    more = trials + options.best * options.seeds
    print("| sampler | sigma | the best trial | true best | regret to tried | regret |")
    print("|---|---|---|---|---|---|", flush=True)
    for sampler in options.samplers.split(","):
        for sigma in map(float, options.sigmas.split(",")):
            study = {"sampler": sampler, "sigma": sigma}
            seeds = range(options.studies)
            pairs = [simulate(seed=seed, trials=trials, confirm=confirm, **study) for seed in seeds]
            longer = [simulate(seed=seed, trials=more, confirm=None, **study)[0] for seed in seeds]
            searched, confirmed = zip(*pairs, strict=True)
            ways = {
                f"of {trials} trials, by its score": searched,
                f"of {trials} trials, confirmed {options.best} x {options.seeds}": confirmed,
                f"of {more} trials, by its score": longer,
            }
            for way, choices in ways.items():
                print(row(sampler, sigma, way, choices), flush=True)


if __name__ == "__main__":
    main()
