"""How many pruned trials would have been better than the best one."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence

import optuna
import pytest

from sweeper.settings import Settings
from sweeper.study import SamplerFactory
from sweeper.study.insights import Insights
from sweeper.study.insights.pruning import better_ones_pruned
from sweeper.study.samplers import CONFIRMS

COMPLETED, PRUNED = 20, 100


def study_of(
    early: Callable[[float, random.Random], float],
    *,
    sign: float = 1.0,
    has_param: bool = False,
) -> tuple[optuna.Study, int]:
    """Trials with random final scores, of which all but the first ones are pruned.

    Args:
        early: what a trial reports first, from its final score.
        has_param: whether trials have a param, `x`.

    Returns:
        the study, and how many of the pruned trials would really have been better than the best.
    """
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    chance = random.Random(3)
    study = optuna.create_study(direction="maximize" if sign > 0 else "minimize")
    finals = [chance.gauss(0.0, 1.0) for _ in range(COMPLETED + PRUNED)]
    for number, final in enumerate(finals):
        trial = study.ask()
        if has_param:
            trial.suggest_float("x", 0.0, 1.0)
        trial.report(sign * early(final, chance), 0)
        if number < COMPLETED:
            trial.report(sign * final, 1)
            study.tell(trial, sign * final)
        else:
            study.tell(trial, state=optuna.trial.TrialState.PRUNED)
    best = max(finals[:COMPLETED])
    return study, sum(final > best for final in finals[COMPLETED:])


def known(number: float | None) -> float:
    assert number is not None
    return number


@pytest.mark.parametrize("sign", [1.0, -1.0], ids=["maximize", "minimize"])
def test_where_early_scores_mean_nothing_each_pruned_trial_had_its_chance(sign: float) -> None:
    study, better = study_of(lambda final, chance: chance.gauss(0.0, 1.0), sign=sign)
    assert known(better_ones_pruned(study)) == pytest.approx(better, abs=4)
    assert better > 0


def test_where_early_scores_tell_the_better_ones_are_counted_nearly_exactly() -> None:
    study, better = study_of(lambda final, chance: final / 2 + chance.gauss(0.0, 0.05))
    assert known(better_ones_pruned(study)) == pytest.approx(better, abs=1.5)


def test_trials_that_have_diverged_or_reported_nothing_had_no_chance() -> None:
    study, _ = study_of(lambda final, chance: chance.gauss(0.0, 1.0))
    before = known(better_ones_pruned(study))
    for value in (math.nan, math.inf, None):
        trial = study.ask()
        if value is not None:
            trial.report(value, 0)
        study.tell(trial, state=optuna.trial.TrialState.PRUNED)
    assert known(better_ones_pruned(study)) == before


@pytest.mark.parametrize("objectives", [["val"], ["val", "size"]], ids=len)
def test_with_few_completed_trials_or_several_objectives_nothing_is_known(
    objectives: Sequence[str],
) -> None:
    study = optuna.create_study(directions=["maximize"] * len(objectives))
    trial = study.ask()
    if len(objectives) == 1:
        trial.report(1.0, 0)
    study.tell(trial, state=optuna.trial.TrialState.PRUNED)
    assert Insights(study, objectives).better_ones_pruned() is None


def test_runs_that_confirm_the_best_trials_are_no_part_of_what_a_search_says() -> None:
    pytest.importorskip("torch")
    settings = Settings.from_mapping(
        {"objective": {"val": "maximize"}, "space": {"x": {"low": 0.0, "high": 1.0}}}
        | {"study": {"sampler": "gp"}}
    )
    study, _ = study_of(lambda final, chance: chance.gauss(0.0, 1.0), has_param=True)
    insights = Insights(study, ["val"])

    def answers() -> list[object]:
        return [
            insights.importances(),
            insights.importance_ranges(),
            insights.better_ones_pruned(),
            insights.outlook(settings, SamplerFactory(settings)),
        ]

    before = answers()
    assert None not in before
    for repetition in range(3):
        confirming = study.ask()
        confirming.set_user_attr(CONFIRMS, {"of": 0, "repetition": repetition, "seed": 1})
        confirming.suggest_float("x", 0.0, 1.0)
        confirming.report(99.0, 0)
        study.tell(confirming, 99.0)
    assert answers() == before
