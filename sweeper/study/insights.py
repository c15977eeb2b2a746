"""What the trials of a study say beyond which one is best."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence

import optuna
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

#: With fewer trials the numbers say nothing.
_FEWEST_TRIALS = 10


def param_importances(
    study: optuna.Study, objectives: Sequence[str]
) -> dict[str, dict[str, float]]:
    """How much of what makes trials good each param explains, by objective.

    PED-ANOVA (Watanabe, Bansal, Hutter: PED-ANOVA: Efficiently Quantifying Hyperparameter
    Importance in Arbitrary Subspaces, IJCAI 2023), which takes milliseconds where fANOVA takes
    seconds.

    Returns:
        for each objective the params with their shares, the largest first; they add up to 1. Empty
        where there are too few trials, or none that differ.
    """
    completed = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    if len(completed) < _FEWEST_TRIALS:
        return {}
    # It imports scikit-learn where that is installed, which takes more than all other imports of
    # a sweep together, and which no sweep needs to begin.
    from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances

    evaluator = PedAnovaImportanceEvaluator()
    found = {}
    for index, name in enumerate(objectives):
        target = None if len(objectives) == 1 else _goodness(study, index)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of few trials, which the page displays
                shares = get_param_importances(study, evaluator=evaluator, target=target)
        except (ValueError, RuntimeError):  # all trials are alike, or share no param
            continue
        found[name] = {param: float(share) for param, share in shares.items()}
    return found


def _goodness(study: optuna.Study, index: int) -> Callable[[FrozenTrial], float]:
    """The value of one objective, lower for better trials, as the evaluator takes it."""
    sign = -1 if study.directions[index] is StudyDirection.MAXIMIZE else 1
    return lambda trial: sign * float(trial.values[index])
