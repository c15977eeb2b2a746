"""What pruning has cost a search, as the trials that completed predict it."""

from __future__ import annotations

import math

import optuna
from optuna.trial import TrialState

from ..pruners.predictive import PredictivePruner


def better_ones_pruned(study: optuna.Study) -> float | None:
    """How many pruned trials would have been better than the best one, on average.

    Each pruned trial has a chance, which the curves of the completed trials predict from its last
    report (see `PredictivePruner`); the answer is their sum. A trial that has diverged has none.

    Args:
        study: of one objective.

    Returns:
        None where too few trials have completed to know of any.
    """
    curves = PredictivePruner()
    chances = []
    for trial in study.get_trials(deepcopy=False, states=(TrialState.PRUNED,)):
        step = trial.last_step
        if step is None or not math.isfinite(trial.intermediate_values[step]):
            continue
        prediction = curves.prediction(study, trial)
        if prediction is not None:
            chances.append(prediction.chance)
    return sum(chances) if chances else None
