"""What the trials of a study say beyond which one is best."""

from __future__ import annotations

import random
import statistics
import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import optuna
from optuna.search_space import intersection_search_space
from optuna.trial import FrozenTrial, TrialState

from ..errors import SettingsError, StudyError, first_line
from ..search.samplers.views import StorageView
from ..trials import Importance

#: With fewer trials the numbers say nothing.
_FEWEST_TRIALS = 10
#: Shares are means over so many samples of the trials, each with a forest of so many trees.
_SAMPLES, _TREES = 20, 16
#: A sample has no more trials than these, so that a long study takes seconds.
_MOST_TRIALS = 200
#: So many of the samples have a share within the interval.
_WITHIN = 0.9

#: Figures for a paper: Optuna's functions by our names.
FIGURES = {
    "parallel": "plot_parallel_coordinate",
    "history": "plot_optimization_history",
    "importances": "plot_param_importances",
    "slice": "plot_slice",
}


def param_importances(
    study: optuna.Study, objectives: Sequence[str]
) -> dict[str, Mapping[str, Importance]]:
    """How much of the variance of each objective each param explains over the whole space.

    Optuna's fANOVA (Hutter, Hoos, Leyton-Brown, 2014, "An Efficient Approach for Assessing
    Hyperparameter Importance") of random samples of the trials, with replacement, which tell how
    far it may be off. It takes 0.5 s for 12 trials and 2 s for 80.

    Returns:
        for each objective the params that all trials have, the largest share first; shares add up
        to 1. Empty where there are too few trials, or none that differ.
    """
    completed = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    if len(completed) < _FEWEST_TRIALS:
        return {}
    space = intersection_search_space(completed)
    swept = [param for param, distribution in space.items() if not distribution.single()]
    if len(space) == len(swept) == 1:
        return _of_one(swept[0], completed, objectives)
    # It imports scikit-learn, which takes more than all other imports of a sweep together.
    from optuna.importance import FanovaImportanceEvaluator, get_param_importances

    found: dict[str, Mapping[str, Importance]] = {}
    for index, name in enumerate(objectives):
        rng, shares = random.Random(0), dict[str, list[float]]()
        for number in range(_SAMPLES):
            chosen = rng.choices(completed, k=min(len(completed), _MOST_TRIALS))
            sample = StorageView(study._storage, partial(_all, chosen)).study(study)
            evaluator = FanovaImportanceEvaluator(n_trees=_TREES, seed=number)
            try:
                with warnings.catch_warnings(action="ignore"):  # of few trials
                    measured = get_param_importances(
                        sample, evaluator=evaluator, target=partial(_value, index)
                    )
            except (ValueError, RuntimeError):  # all trials are alike, or share no param
                continue
            for param, share in measured.items():
                shares.setdefault(param, []).append(float(share))
        edges = [(1 - _WITHIN) / 2, (1 + _WITHIN) / 2]
        known = {
            param: Importance(statistics.fmean(values), *map(float, np.quantile(values, edges)))
            for param, values in shares.items()
        }
        if known:
            found[name] = dict(sorted(known.items(), key=lambda named: -named[1].share))
    return found


def _of_one(
    param: str, completed: Sequence[FrozenTrial], objectives: Sequence[str]
) -> dict[str, Mapping[str, Importance]]:
    """The same of a space with a single param, which explains all: no forest is needed for it."""
    values = zip(*(trial.values for trial in completed), strict=True)
    differ = [name for name, scores in zip(objectives, values, strict=True) if len({*scores}) > 1]
    return {name: {param: Importance(1.0, 1.0, 1.0)} for name in differ}


def figure_of(study: optuna.Study, objectives: Sequence[str], *, kind: str) -> Any:
    """A figure of matplotlib, of the first objective.

    Raises:
        SettingsError: there is no such figure, or matplotlib is not installed.
        StudyError: the study has not what the figure needs.
    """
    if kind not in FIGURES:
        raise SettingsError(
            f"--figure: a file's name says what is drawn, and {kind!r} is not known; expected one "
            f"of {', '.join(FIGURES)}, as in parallel.svg or history.pdf"
        )
    what: dict[str, Any] = {"target_name": objectives[0]}
    if len(objectives) > 1:  # of one the best trials are the darkest where no target is named
        what["target"] = partial(_value, 0)
    with warnings.catch_warnings(action="ignore"):  # all of this counts as experimental in Optuna
        from optuna.visualization import matplotlib as drawing

        if kind == "importances":
            what["evaluator"] = optuna.importance.FanovaImportanceEvaluator(seed=0)
        try:
            axes = getattr(drawing, FIGURES[kind])(study, **what)
        except ImportError as error:
            extra = "--figure needs matplotlib: pip install 'notebook-hpo[figures]' installs it"
            raise SettingsError(extra) from error
        except (ValueError, RuntimeError) as error:
            raise StudyError(f"--figure {kind}: {first_line(error)}") from error
    return np.ravel(axes)[0].figure


def _all(chosen: list[FrozenTrial], _: list[FrozenTrial]) -> list[FrozenTrial]:
    return chosen


def _value(index: int, trial: FrozenTrial) -> float:
    return float(trial.values[index])
