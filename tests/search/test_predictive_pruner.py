"""`pruner: auto` prunes trials that completed trials predict to be unlikely winners."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any

import optuna
import pytest
from studies import small_settings

from sweeper.errors import SettingsError
from sweeper.search.pruners import Verdict, curves_of, make_pruner, why_pruned
from sweeper.search.pruners.predictive import PredictivePruner


def studied(curves: Sequence[Sequence[float]], *, direction: Any = "maximize") -> optuna.Study:
    """Return a study of completed trials. The last value of each is its score."""
    study = optuna.create_study(direction=direction)
    for curve in curves:
        trial = study.ask()
        for step, value in enumerate(curve):
            trial.report(value, step)
        study.tell(trial, curve[-1])
    return study


def reports(study: optuna.Study, *values: float) -> optuna.trial.FrozenTrial:
    """Return a running trial that has reported these values."""
    trial = study.ask()
    for step, value in enumerate(values):
        trial.report(value, step)
    return study.get_trials(deepcopy=False)[trial.number]


#: First reports and final scores of trials. The first report is half of the final score ± 0.01, so
#: it predicts that score well.
TELLING = [(end / 2 + shift, end) for end, shift in zip(
    (0.5, 0.6, 0.7, 0.8, 0.9, 0.95), (0.01, -0.01, 0.0, 0.01, -0.01, 0.0), strict=True
)]  # fmt: skip


@pytest.mark.parametrize("sign", [1, -1], ids=["maximize", "minimize"])
def test_trials_without_a_chance_are_pruned_if_early_scores_predict_final_ones(sign: int) -> None:
    curves = [[sign * value for value in curve] for curve in TELLING]
    study = studied(curves, direction="maximize" if sign > 0 else "minimize")
    pruner = PredictivePruner()
    assert pruner.prune(study, reports(study, sign * 0.3))
    assert not pruner.prune(study, reports(study, sign * 0.47))
    assert not pruner.prune(study, reports(study, sign * 0.6))


@pytest.mark.parametrize("name", ["epochs", "other"])
def test_no_trial_is_pruned_at_its_last_step_if_a_param_decides_the_number_of_steps(
    name: str,
) -> None:
    study = optuna.create_study(direction="maximize")
    chance = random.Random(0)

    def trial_of(steps: int, end: float, *, done: int) -> optuna.trial.FrozenTrial:
        value = steps if name == "epochs" else chance.randint(1, 100)
        study.enqueue_trial({name: value})
        trial = study.ask()
        trial.suggest_int(name, 1, 100)
        for step in range(done):
            trial.report(end - 0.5 / (step + 1), step)
        if end > 0.4:
            study.tell(trial, end)
        return study.get_trials(deepcopy=False)[trial.number]

    for place in range(9):
        trial_of(6 + 3 * (place % 3), 0.6 + place / 30, done=6 + 3 * (place % 3))
    last, middle = trial_of(12, 0.3, done=8), trial_of(8, 0.3, done=8)
    pruner = PredictivePruner()
    assert pruner.prune(study, last)
    assert pruner.prune(study, middle) is (name != "epochs")
    curves = curves_of(study)
    verdicts = [pruner.judge(curves, trial.number, to_begin=9) for trial in (last, middle)]
    assert (verdicts[1] is Verdict.GO_ON) == (name == "epochs")
    assert verdicts[0] is not Verdict.GO_ON


@pytest.mark.parametrize("completed", [10, 30, pytest.param(300, marks=pytest.mark.slow)])
def test_few_trials_are_pruned_if_early_scores_predict_nothing(completed: int) -> None:
    chance = random.Random(3)
    study = studied([(chance.random(), chance.gauss(0, 1)) for _ in range(completed)])
    pruner = PredictivePruner()
    pruned = [pruner.prune(study, reports(study, chance.random())) for _ in range(50)]
    assert sum(pruned) <= 5


def test_a_trial_is_judged_by_its_best_report_and_not_by_a_bad_last_one() -> None:
    study = studied([(a, a, b) for a, b in TELLING])
    assert not PredictivePruner().prune(study, reports(study, 0.47, 0.1))


def test_no_trial_is_pruned_for_a_bad_start_if_trials_with_bad_starts_ended_well() -> None:
    study = studied([(1 - end, end) for end in (0.1, 0.3, 0.5, 0.6, 0.8, 0.95)])
    assert not PredictivePruner().prune(study, reports(study, 0.01))


def test_an_outlier_does_not_hide_the_differences_between_other_scores() -> None:
    curves = [*((2 - a, 1 - b) for a, b in TELLING), (1e6, 1e9)]
    study = studied(curves, direction="minimize")
    pruner = PredictivePruner()
    assert pruner.prune(study, reports(study, 1.7))
    assert pruner.prune(study, reports(study, 1e8))
    assert not pruner.prune(study, reports(study, 1.53))


def test_options_set_the_startup_trials_the_warmup_steps_and_the_confidence() -> None:
    study = studied(TELLING[:4])
    assert not PredictivePruner().prune(study, reports(study, 0.0))
    assert PredictivePruner(n_startup_trials=4).prune(study, reports(study, 0.0))
    study = studied([(a, a, b) for a, b in TELLING])
    pruner = PredictivePruner(n_warmup_steps=1)
    assert not pruner.prune(study, reports(study, 0.1))
    assert pruner.prune(study, reports(study, 0.1, 0.1))
    study = studied(TELLING)
    trial = reports(study, 0.42)
    assert PredictivePruner(confidence=0.9).prune(study, trial)
    assert not PredictivePruner(confidence=0.9999).prune(study, trial)


@pytest.mark.parametrize("value", [math.nan, -math.inf])
def test_a_trial_that_reports_nan_is_pruned(value: float) -> None:
    study = studied(TELLING)
    assert PredictivePruner().prune(study, reports(study, value))


def test_the_reason_for_pruning_nan_contains_no_prediction() -> None:
    study = studied([(a, a, b) for a, b in TELLING])
    trial = reports(study, 0.49, math.nan)
    assert PredictivePruner().prune(study, trial)
    why = why_pruned(PredictivePruner(), study, trial)
    assert why.startswith("pruned at step 1 with nan; 6 completed trials, median")


def test_no_trial_is_pruned_if_early_scores_are_nan_or_all_equal() -> None:
    study = studied([(math.nan, 0.5), (math.inf, 0.6), *TELLING[:3]])
    assert not PredictivePruner().prune(study, reports(study, 0.0))
    study = studied([(0.5, end) for _, end in TELLING])
    assert not PredictivePruner().prune(study, reports(study, 0.1))


def test_the_reason_for_pruning_states_the_predicted_score_and_the_best_completed_score() -> None:
    study = studied(TELLING)
    why = why_pruned(PredictivePruner(), study, reports(study, 0.3))
    assert why.startswith("pruned at step 0 with 0.3; its predicted final score is 0.5")
    assert why.endswith(", and the best of 6 completed trials has 0.95")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"confidence": 0.3}, "auto: confidence must be above 0.5 and below 1; got 0.3"),
        ({"n_startup_trials": 2}, "auto: n_startup_trials must be at least 3; got 2"),
        ({"n_warmup_steps": -1}, "auto: n_warmup_steps must not be negative; got -1"),
        ({"confidense": 0.9}, "auto has no option 'confidense'; did you mean 'confidence'"),
    ],
)
def test_a_wrong_option_of_the_pruner_is_refused(options: dict[str, Any], message: str) -> None:
    pruner = {"name": "auto", **options}
    with pytest.raises(SettingsError) as caught:
        make_pruner(small_settings("s", study={"pruner": pruner}))
    assert message in str(caught.value)
