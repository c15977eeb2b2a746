"""Analyze the trials of a study: importances of params, and figures."""

from __future__ import annotations

import math
import random
import statistics
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import optuna
from optuna.distributions import FloatDistribution, IntDistribution
from optuna.search_space import intersection_search_space
from optuna.trial import FrozenTrial, TrialState, create_trial

from ..errors import SettingsError, StudyError, first_line
from ..search.samplers import ScoreModels, StorageView, effects_of
from ..search.samplers.effects import INTERVAL, by_share
from ..trials import Importance

#: With fewer completed trials, importances are not computed, because they would be noise (chosen,
#: not measured).
_FEWEST_TRIALS = 10
#: The shares are averaged over `_SAMPLES` bootstrap samples of the trials. A forest with `_TREES`
#: trees is fitted to each sample. With 16 trees, shares and intervals of 200 trials differed by at
#: most 0.02 from those with 8 trees, and took twice as long (measured).
_SAMPLES, _TREES = 20, 8
#: A sample has at most this many trials, so that the importances of a long study take seconds
#: (chosen, not measured).
_MOST_TRIALS = 200

#: Optuna's functions that draw figures for papers, by the names of the figures.
_OPTUNAS = {
    "parallel": "plot_parallel_coordinate",
    "history": "plot_optimization_history",
    "slice": "plot_slice",
}
#: Names of figures for papers. Importances are drawn here, because Optuna would measure them on a
#: linear scale.
FIGURES = (*_OPTUNAS, "importances")


def param_importances(
    study: optuna.Study,
    objectives: Sequence[str],
    models: ScoreModels | None,
    *,
    without: Collection[str] = (),
    before_step: Callable[[], None] = lambda: None,
) -> Mapping[str, Mapping[str, Importance]]:
    """Return the share of each objective's variance that each param explains in the whole space.

    If there are models of the scores, and at least two params of the space were varied, the models
    measure the shares (see `effects_of`). Otherwise, a random forest measures them (see
    `forest_importances`).

    Args:
        study: Optuna's study.
        objectives: Names of the objectives, in Optuna's order.
        models: Models of the study's scores. None without torch.
        without: Names of params that are measured, but left out of the result, such as the param
            that selects the fold.
        before_step: Called before each step of less than a second. An exception that it raises
            ends the computation.

    Returns:
        Importances by objective and param, the largest share first. Shares add up to 1. Empty if
        there are fewer than 10 completed trials. With models, trials that ran before a param was
        swept are not counted. An objective whose scores are all equal is missing.
    """
    completed = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    n_completed = len(completed) if models is None else models.n_completed
    if n_completed < _FEWEST_TRIALS:
        return {}
    if models is not None and _n_varied(models.names, completed) > 1:
        found = effects_of(models, before_step=before_step)
    else:
        found = forest_importances(study, objectives, before_step=before_step)
    kept = {}
    for objective, by_param in found.items():
        others = _without(by_param, without)
        if others:
            kept[objective] = others
    return kept


def _n_varied(names: Sequence[str], trials: Sequence[FrozenTrial]) -> int:
    """Return how many params have several values in the trials."""
    values = [{trial.params.get(name) for trial in trials} for name in names]
    return sum(len(of_param) > 1 for of_param in values)


def _without(found: Mapping[str, Importance], names: Collection[str]) -> dict[str, Importance]:
    """Return importances without some params. Scale the other shares so that they add up to 1.

    If a param is left out, the joint shares of the others are set to 0 (not measured), because they
    contain what a param explains together with the one that is left out.
    """
    kept = {name: importance for name, importance in found.items() if name not in names}
    if len(kept) == len(found):
        return kept
    total = sum(importance.share for importance in kept.values()) or 1.0
    return {
        name: importance._replace(
            share=importance.share / total,
            low=importance.low / total,
            high=min(importance.high / total, 1.0),
            joint=0.0,
        )
        for name, importance in kept.items()
    }


def forest_importances(
    study: optuna.Study,
    objectives: Sequence[str],
    *,
    before_step: Callable[[], None] = lambda: None,
) -> dict[str, dict[str, Importance]]:
    """Return importances measured by a random forest, in the form of `param_importances`.

    The method is Optuna's fANOVA (Hutter, Hoos, Leyton-Brown, 2014, "An Efficient Approach for
    Assessing Hyperparameter Importance"), on bootstrap samples of the trials. The spread over the
    samples gives the interval. The method takes 3 s of CPU time for each objective of 200 trials
    with 6 params.

    The space is measured as it was sampled: a param with a logarithmic range on a log scale. Optuna
    itself measures it on a linear scale, where 90 % of a range from 0.0001 to 0.1 are above 0.01.

    Args:
        study: Optuna's study.
        objectives: Names of the objectives, in Optuna's order.
        before_step: Called before each step of less than a second. An exception that it raises
            ends the computation.

    Returns:
        Importances of the params that all trials have, by objective and param, the largest share
        first. Shares add up to 1. Empty if there are fewer than 10 completed trials. An objective
        whose scores are all equal is missing.
    """
    completed = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    if len(completed) < _FEWEST_TRIALS:
        return {}
    completed = _in_one_space(completed)
    space = intersection_search_space(completed)
    swept = [param for param, distribution in space.items() if not distribution.single()]
    if len(space) == len(swept) == 1:
        return _of_one(swept[0], completed, objectives)
    found = {}
    for index, name in enumerate(objectives):
        shares = _shares_of_forests(study, completed, index, before_step)
        if shares:
            known = {param: _importance(values) for param, values in shares.items()}
            found[name] = by_share(known)
    return found


def _shares_of_forests(
    study: optuna.Study,
    completed: Sequence[FrozenTrial],
    index: int,
    before_step: Callable[[], None],
) -> dict[str, list[float]]:
    """Return, for each param, its share of the score's variance in each bootstrap sample.

    A sample is skipped if all its scores are equal, or if no param is in all its trials.

    Args:
        study: Optuna's study.
        completed: Its completed trials, as `_in_one_space` returns them. Samples are drawn from
            them.
        index: Index of the objective in Optuna's order.
        before_step: Called before each sample.
    """
    # `optuna.importance` imports scikit-learn, which takes longer than all other imports. So it is
    # imported only here.
    from optuna.importance import FanovaImportanceEvaluator, get_param_importances

    rng, shares = random.Random(0), dict[str, list[float]]()
    for number in range(_SAMPLES):
        before_step()
        chosen = rng.choices(completed, k=min(len(completed), _MOST_TRIALS))
        evaluator = FanovaImportanceEvaluator(n_trees=_TREES, seed=number)
        try:
            # Ignore warnings, because they are about too few trials.
            with warnings.catch_warnings(action="ignore"):
                measured = get_param_importances(
                    _study_of(study, chosen), evaluator=evaluator, target=partial(_value, index)
                )
        except (ValueError, RuntimeError):  # All scores are equal, or no param is in all trials.
            continue
        for param, share in measured.items():
            shares.setdefault(param, []).append(float(share))
    return shares


def _study_of(study: optuna.Study, trials: list[FrozenTrial]) -> optuna.Study:
    """Return a view of Optuna's study that shows these trials in place of its own."""
    return StorageView(study._storage, lambda _: trials).study(study)


def _importance(shares: Sequence[float]) -> Importance:
    """Return a param's importance: mean and interval of its shares in the bootstrap samples."""
    low, high = np.quantile(shares, INTERVAL).tolist()
    return Importance(statistics.fmean(shares), low, high)


def _in_one_space(trials: Sequence[FrozenTrial]) -> list[FrozenTrial]:
    """Return the trials with one linear range for each param, which contains all its values.

    Optuna would measure logarithmic ranges on a linear scale, and would leave out params whose
    range was changed during the study. In a study of an earlier version of this package, the value
    of a retry may be outside of the retry's range.
    """
    bounds = dict[str, list[float]]()
    for trial in trials:
        for name, range_ in trial.distributions.items():
            if isinstance(range_, FloatDistribution | IntDistribution):
                numbers = [range_.low, range_.high, trial.params[name]]
                bounds.setdefault(name, []).extend(map(_scale(range_), numbers))
    ranges = {name: FloatDistribution(min(ends), max(ends)) for name, ends in bounds.items()}
    seen = []
    for trial in trials:
        params, distributions = dict(trial.params), dict(trial.distributions)
        for name, range_ in trial.distributions.items():
            if isinstance(range_, FloatDistribution | IntDistribution):
                params[name] = _scale(range_)(params[name])
                distributions[name] = ranges[name]
        seen.append(create_trial(values=trial.values, params=params, distributions=distributions))
    return seen


def _scale(range_: FloatDistribution | IntDistribution) -> Callable[[float], float]:
    return math.log if range_.log else float


def _of_one(
    param: str, completed: Sequence[FrozenTrial], objectives: Sequence[str]
) -> dict[str, dict[str, Importance]]:
    """Return the importances for a space with a single param: it explains all of the variance."""
    found = {}
    for index, name in enumerate(objectives):
        scores = {trial.values[index] for trial in completed}
        if len(scores) > 1:
            found[name] = {param: Importance(1.0, 1.0, 1.0)}
    return found


def figure_of(
    study: optuna.Study,
    objectives: Sequence[str],
    *,
    kind: str,
    importances: Mapping[str, Mapping[str, Importance]],
) -> Any:
    """Return a matplotlib figure for a paper, of the first objective.

    Args:
        study: Optuna's study.
        objectives: Names of the objectives, in Optuna's order.
        kind: Name of the figure, one of `FIGURES`.
        importances: Importance of each param, by objective, for the figure `importances`.

    Raises:
        SettingsError: There is no such figure, or matplotlib is not installed.
        StudyError: The study lacks the trials that the figure needs.
    """
    if kind not in FIGURES:
        raise SettingsError(
            f"--figure: there is no figure {kind!r}; name the file after one of "
            f"{', '.join(FIGURES)}, as in parallel.svg or history.pdf"
        )
    what: dict[str, Any] = {"target_name": objectives[0]}
    # If a target is given, Optuna marks no best trials, so give one only for several objectives.
    if len(objectives) > 1:
        what["target"] = partial(_value, 0)
    with warnings.catch_warnings(action="ignore"):
        # Optuna warns that its figures are experimental.
        from optuna.visualization import matplotlib as drawing

        try:
            if kind == "importances":
                return _drawn(importances.get(objectives[0], {}), objectives[0])
            axes = getattr(drawing, _OPTUNAS[kind])(study, **what)
        except ImportError as error:
            extra = "--figure needs matplotlib: pip install 'notebook-hpo[figures]' installs it"
            raise SettingsError(extra) from error
        except (ValueError, RuntimeError) as error:
            raise StudyError(f"--figure {kind}: {first_line(error)}") from error
    return np.ravel(axes)[0].figure


def _drawn(shares: Mapping[str, Importance], objective: str) -> Any:
    """Return a figure of importances: a bar for each param, with the bounds of its share.

    Raises:
        ValueError: No importance is known.
    """
    if not shares:
        raise ValueError(
            f"no importances for {objective} are known: they need {_FEWEST_TRIALS} completed "
            "trials with all params of the present space and different scores; give a search, not "
            "a study that runs its trials again"
        )
    from matplotlib.figure import Figure

    ordered = dict(reversed(by_share(shares).items()))
    below = [importance.share - importance.low for importance in ordered.values()]
    above = [importance.high - importance.share for importance in ordered.values()]
    widths = [importance.share for importance in ordered.values()]
    figure = Figure()
    axes = figure.subplots()
    axes.barh(list(ordered), widths, xerr=[below, above])
    axes.set_xlabel(f"share of the variance of {objective}")
    return figure


def _value(index: int, trial: FrozenTrial) -> float:
    return float(trial.values[index])
