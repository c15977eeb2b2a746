"""How often each sampler proposes params that do not fit into memory, and whether it learns.

    uv run benchmarks/infeasible.py [--samplers tpe,gp,nsga2,random] [--seeds 8]

The wider, the better, and the widest third of the space does not fit. The numbers are how many of
40 proposals do not fit, for each seed: where they are failed trials of which the sampler knows
nothing, and where they are infeasible. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import math

import optuna
from optuna.trial import TrialState

from sweeper import Settings
from sweeper.study import SamplerFactory
from sweeper.study.samplers import CONSTRAINT, VIOLATED

PROPOSALS = 40
WIDEST = 8
SPACE = {"width": {"low": 1, "high": 12}, "lr": {"low": 1e-4, "high": 1e-1, "log": True}}
#: Without this, 40 proposals are one generation.
OPTIONS = {"nsga2": {"population_size": 10}}


def too_wide(sampler: str, *, seed: int, is_known: bool) -> int:
    """How many proposals of one study do not fit.

    Args:
        is_known: whether trials that do not fit are infeasible.
    """
    study = {"seed": seed, "sampler": {"name": sampler, **OPTIONS.get(sampler, {})}}
    objective = {"acc": "maximize"}
    factory = SamplerFactory(
        Settings.from_mapping({"study": study, "objective": objective, "space": SPACE})
    )
    trials = optuna.create_study(direction="maximize")
    n_too_wide = 0
    for number in range(PROPOSALS):
        trials.sampler = factory.make(number)
        trial = trials.ask()
        width = trial.suggest_int("width", 1, 12)
        lr = trial.suggest_float("lr", 1e-4, 1e-1, log=True)
        trials.sampler = optuna.samplers.RandomSampler()  # it does nothing at a trial's end
        if width <= WIDEST:
            trials.tell(trial, width / 12 - 0.1 * (math.log10(lr) + 2.5) ** 2)
            continue
        n_too_wide += 1
        if is_known:
            trial.storage.set_trial_system_attr(trial._trial_id, CONSTRAINT, VIOLATED)
        trials.tell(trial, state=TrialState.FAIL)
    return n_too_wide


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--samplers", default="tpe,gp,nsga2,random")
    parser.add_argument("--seeds", type=int, default=8)
    chosen = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    found: dict[str, dict[str, list[int]]] = {}
    for sampler in chosen.samplers.split(","):
        found[sampler] = {
            kind: [
                too_wide(sampler, seed=seed, is_known=kind == "infeasible")
                for seed in range(chosen.seeds)
            ]
            for kind in ("failed", "infeasible")
        }
        print(f"{sampler:8} failed {found[sampler]['failed']}", end="  ")
        print(f"infeasible {found[sampler]['infeasible']}", flush=True)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
