"""Our TPE sampler, which weighs a sample of very many trials."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import optuna
import pytest
from opened_studies import BRANCHES, RANGE, completed
from optuna.search_space import IntersectionSearchSpace

from sweeper.study.samplers import derived_seed, suggest, tpe
from sweeper.study.samplers.tpe import SamplerMemory, SteadyTPE

FINISHED = (optuna.trial.TrialState.COMPLETE, optuna.trial.TrialState.PRUNED)
MIXED = {**RANGE, "k": [1, 2], "n": {"low": 1, "high": 1}}


@pytest.mark.slow  # 90 proposals, each by two
@pytest.mark.parametrize("space", [RANGE, MIXED, BRANCHES])
def test_tpe_proposes_what_optunas_own_does(begin: Any, space: Mapping[str, Any]) -> None:
    opened = begin(space, sampler="tpe", trials=30)
    plain = optuna.create_study(direction="maximize")
    for number in range(30):
        asked = opened.ask()
        seed = derived_seed(opened.settings.study.seed, "sampler", number)
        plain.sampler = optuna.samplers.TPESampler(seed=seed)
        trial = plain.ask()
        assert asked.params == suggest(trial, opened.settings.search_space)
        score = sum(v for v in asked.params.values() if isinstance(v, int | float))
        opened.study.tell(asked.number, completed(score))
        plain.tell(trial, score)


@pytest.mark.parametrize("trials", [12, 40])
def test_trials_that_end_in_any_order_change_no_value_that_tpe_sees(trials: int) -> None:
    space = {
        "x": optuna.distributions.FloatDistribution(0.0, 1.0),
        "kind": optuna.distributions.CategoricalDistribution(["a", "b"]),
    }
    chance = random.Random(trials)
    memory, running, study = SamplerMemory(is_joint=True), [], optuna.create_study()
    assert memory.common is not None
    for number in range(trials):
        trial = study.ask()
        trial.suggest_float("x", 0.0, 1.0)
        if number % 3:
            trial.suggest_categorical("kind", ["a", "b"])
        if number % 5 == 0:
            trial.suggest_float("sometimes", 0.0, 1.0 + number)
        running.append(trial)
        if len(running) > 4:
            ended = running.pop(chance.randrange(4))
            ended.report(chance.random(), 1)
            is_pruned = chance.random() < 0.3
            state = optuna.trial.TrialState.PRUNED if is_pruned else None
            study.tell(ended, None if is_pruned else chance.random(), state=state)
        usual = IntersectionSearchSpace(include_pruned=True).calculate(study)
        finished = study.get_trials(deepcopy=False, states=FINISHED)
        assert memory.common.of(finished) == usual
        ours = SteadyTPE(memory=memory)._get_internal_repr(finished, space, study)
        theirs = optuna.samplers.TPESampler()._get_internal_repr(finished, space, study)
        assert {n: v.tolist() for n, v in ours.items()} == {
            n: v.tolist() for n, v in theirs.items()
        }


def finished(number: int, x: float, *, pruned: bool = False) -> optuna.trial.FrozenTrial:
    return optuna.trial.create_trial(
        params={"x": x},
        distributions={"x": optuna.distributions.FloatDistribution(0.0, 1.0)},
        value=None if pruned else (x - 0.3) ** 2 + number % 7 * 1e-3,
        state=optuna.trial.TrialState.PRUNED if pruned else optuna.trial.TrialState.COMPLETE,
        intermediate_values={1: x} if pruned else {},
    )


def weighed(trials: list[optuna.trial.FrozenTrial], direction: Any, **options: Any) -> list[int]:
    """How many trials TPE counts among the best, and how many others it weighs."""
    counts: list[int] = []

    def weights(count: int) -> Any:
        counts.append(count)
        return np.ones(count)

    sampler = SteadyTPE(memory=SamplerMemory(is_joint=True), seed=1, weights=weights, **options)
    study = optuna.create_study(direction=direction, sampler=sampler)
    study.add_trials(trials)
    study.ask().suggest_float("x", 0.0, 1.0)
    return sorted(counts)


@pytest.mark.slow  # thousands of trials
# `weights` is the simplest way to count the trials, as long as Optuna has that option.
@pytest.mark.filterwarnings("ignore:`weights` has been deprecated:FutureWarning")
@pytest.mark.parametrize("direction", ["minimize", "maximize"])
def test_of_very_many_trials_tpe_weighs_the_best_and_some_of_the_others(direction: str) -> None:
    few = [finished(n, n / 900) for n in range(900)]
    assert weighed(few, direction) == [25, 900 - 25]
    many = [finished(n, n * 7 % 4000 / 4000) for n in range(4000)]
    best, others = weighed(many, direction)
    assert best == 25
    assert 1900 < others <= 2000
    assert weighed(many, direction, n_startup_trials=2100) == [25, 4000 - 25]


@pytest.mark.slow  # likewise
def test_tpe_proposes_nearly_the_same_from_a_sample_as_from_all_trials() -> None:
    proposed = []
    for weighed_at_most in (tpe.WEIGHED, 10**9):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(tpe, "WEIGHED", weighed_at_most)
            sampler = SteadyTPE(memory=SamplerMemory(is_joint=True), seed=1)
            study = optuna.create_study(sampler=sampler)
            study.add_trials([finished(n, n * 7 % 4000 / 4000) for n in range(4000)])
            asked = [study.ask().suggest_float("x", 0.0, 1.0) for _ in range(20)]
            proposed.append(asked)
    assert proposed[0] == pytest.approx(proposed[1], abs=0.05)
    assert all(abs(x - 0.3) < 0.1 for x in proposed[0])


@pytest.mark.slow  # likewise
@pytest.mark.filterwarnings("ignore:`weights` has been deprecated:FutureWarning")
def test_where_most_were_pruned_tpe_weighs_all_of_them() -> None:
    trials = [finished(n, n / 2500, pruned=n % 150 > 0) for n in range(2500)]
    assert weighed(trials, "minimize") == [25, 2500 - 25]
