"""How many pruned trials would have been better than the best one."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence

import optuna
import pytest

from sweeper.study.insights import Insights, better_ones_pruned

COMPLETED, PRUNED = 20, 100


def study_of(
    early: Callable[[float, random.Random], float], *, sign: float = 1.0
) -> tuple[optuna.Study, int]:
    """Trials with random final scores, of which all but the first ones are pruned.

    Args:
        early: what a trial reports first, from its final score.

    Returns:
        the study, and how many of the pruned trials would really have been better than the best.
    """
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    chance = random.Random(3)
    study = optuna.create_study(direction="maximize" if sign > 0 else "minimize")
    finals = [chance.gauss(0.0, 1.0) for _ in range(COMPLETED + PRUNED)]
    for number, final in enumerate(finals):
        trial = study.ask()
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
