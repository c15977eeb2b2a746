"""What the trials of a study say beyond which one is best."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Sequence

import optuna
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from ..trials import ImportanceRange

#: How often the trials are drawn anew, and how many of them at most.
_SAMPLES, _MOST_DRAWN = 20, 100
#: With fewer trials a range goes from nearly 0 to nearly 1, and says nothing.
_FEWEST_FOR_RANGES = 10
#: With fewer trials the numbers say nothing.
_FEWEST_TRIALS = 4


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


def importance_ranges(
    study: optuna.Study, objectives: Sequence[str]
) -> dict[str, dict[str, ImportanceRange]]:
    """How much each param matters, and how far that depends on which trials there happen to be.

    The trials are drawn anew with replacement, 20 times (Efron: Bootstrap Methods: Another Look at
    the Jackknife, Annals of Statistics 1979); a range has what 16 of these samples give.

    Returns:
        as `param_importances`; empty with fewer than ten completed trials.
    """
    completed = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    if len(completed) < _FEWEST_FOR_RANGES:
        return {}
    found = param_importances(study, objectives)
    draw = random.Random(0)
    sampled = []
    for _ in range(_SAMPLES if found else 0):
        again = optuna.create_study(directions=study.directions)
        trials = draw.choices(completed, k=min(len(completed), _MOST_DRAWN))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # as above
            again.add_trials(trials)
        sampled.append(param_importances(again, objectives))
    return {
        name: {
            param: _range(share, sorted(one.get(name, {}).get(param, 0.0) for one in sampled))
            for param, share in shares.items()
        }
        for name, shares in found.items()
    }


def _range(share: float, sampled: Sequence[float]) -> ImportanceRange:
    outside = len(sampled) // 10
    low, high = sampled[outside], sampled[-1 - outside]
    return ImportanceRange(share=share, low=min(low, share), high=max(high, share))


def _goodness(study: optuna.Study, index: int) -> Callable[[FrozenTrial], float]:
    """The value of one objective, lower for better trials, as the evaluator takes it."""
    sign = -1 if study.directions[index] is StudyDirection.MAXIMIZE else 1
    return lambda trial: sign * float(trial.values[index])
