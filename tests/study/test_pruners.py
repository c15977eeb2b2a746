"""Pruners that look at each completed trial once decide as Optuna's own do."""

from __future__ import annotations

import math
import random
from typing import Any

import optuna
import pytest
from optuna.pruners import MedianPruner, PercentilePruner

from sweeper.study.pruners.steady import SteadyMedian, SteadyPercentile

pytestmark = pytest.mark.filterwarnings("ignore:All-NaN:RuntimeWarning")

PAIRS: list[tuple[Any, Any]] = [
    (SteadyMedian, MedianPruner),
    (SteadyPercentile, lambda **options: PercentilePruner(25.0, **options)),
]


@pytest.mark.parametrize("direction", ["minimize", "maximize"])
@pytest.mark.parametrize("kinds", PAIRS, ids=["median", "percentile"])
@pytest.mark.parametrize(
    "options", [{}, {"n_startup_trials": 3, "n_warmup_steps": 2}, {"n_min_trials": 4}]
)
def test_the_decisions_are_those_of_optunas_pruner(
    kinds: tuple[Any, Any], options: dict[str, int], direction: Any
) -> None:
    fixed = {"percentile": 25.0} if kinds[0] is SteadyPercentile else {}
    ours, theirs = kinds[0](**fixed, **options), kinds[1](**options)
    study = optuna.create_study(direction=direction)
    chance = random.Random(7)
    running = [study.ask() for _ in range(5)]
    decisions = []
    for _ in range(300):
        trial = running[chance.randrange(5)]
        step = (trial.storage.get_trial(trial._trial_id).last_step or 0) + chance.choice([1, 1, 2])
        trial.report(math.nan if chance.random() < 0.05 else chance.random(), step)
        seen = study.get_trials(deepcopy=False)[trial.number]
        decisions.append(ours.prune(study, seen))
        assert decisions[-1] == theirs.prune(study, seen)
        if decisions[-1] or step > 8:
            state = optuna.trial.TrialState.PRUNED if decisions[-1] else None
            study.tell(trial, None if decisions[-1] else chance.random(), state=state)
            running[running.index(trial)] = study.ask()
    assert {True, False} == set(decisions)
