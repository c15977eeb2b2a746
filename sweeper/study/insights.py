"""Analyze the trials of a study: importances of params, and figures."""

from __future__ import annotations

import copy
import math
import random
import statistics
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, FloatDistribution, IntDistribution
from optuna.search_space import intersection_search_space
from optuna.trial import FrozenTrial, TrialState, create_trial

from ..errors import SettingsError, StudyError, first_line
from ..search.samplers import ScoreModels, effects_of
from ..search.samplers.views import StorageView
from ..trials import Importance

#: With fewer completed trials, importances are not computed, because they would be noise (chosen,
#: not measured).
_FEWEST_TRIALS = 10
#: The shares are averaged over the first number of bootstrap samples of the trials. Each sample
#: gets a forest with the second number of trees. With 16 trees, shares and intervals of 200 trials
#: differed by at most 0.02 from those with 8, and took twice as long.
_SAMPLES, _TREES = 20, 8
#: A sample has at most this many trials, so that the importances of a long study take seconds
#: (chosen, not measured).
_MOST_TRIALS = 200
#: The interval of an importance covers this share of the samples (chosen, not measured).
_WITHIN = 0.9

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

    If at least two params of the space were varied, the models of the scores measure the shares
    (see `effects_of`). Otherwise, a random forest measures them (see `forest_importances`).

    Args:
        study: Optuna's study.
        objectives: Names of the objectives, in Optuna's order.
        models: Models of the study's scores. None without torch.
        without: Names that are measured, but left out of the result, such as the fold of a repeat.
        before_step: Called before each step of less than a second. What it raises ends the
            computation.

    Returns:
        By objective the params, the largest share first. Shares add up to 1. Empty if there are
        fewer than 10 completed trials, or if the models know fewer: trials that ran before a param
        was swept do not count. An objective whose scores are all equal is missing.
    """
    completed = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    if (len(completed) if models is None else models.n_completed) < _FEWEST_TRIALS:
        return {}
    names = [] if models is None else models.names
    tried = [name for name in names if len({trial.params.get(name) for trial in completed}) > 1]
    if len(tried) > 1 and models is not None:
        found = effects_of(models, before_step=before_step)
    else:
        found = forest_importances(study, objectives, before_step=before_step)
    kept = {objective: _without(by_param, without) for objective, by_param in found.items()}
    return {objective: by_param for objective, by_param in kept.items() if by_param}


def _without(found: Mapping[str, Importance], names: Collection[str]) -> dict[str, Importance]:
    """Return importances without some names. The other shares add up to 1 again.

    If a name is left out, the joint shares are not known: they contain what a param explains
    together with that name.
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
        before_step: Called before each step of less than a second. What it raises ends the
            computation.

    Returns:
        By objective the params that all trials have, the largest share first. Shares add up to 1.
        Empty if there are fewer than 10 completed trials, or if all of them are equal.
    """
    completed = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    if len(completed) < _FEWEST_TRIALS:
        return {}
    completed = _in_one_space(completed)
    space = intersection_search_space(completed)
    swept = [param for param, distribution in space.items() if not distribution.single()]
    if len(space) == len(swept) == 1:
        return _of_one(swept[0], completed, objectives)
    completed = [_on_linear_scale(trial) for trial in completed]
    # `optuna.importance` imports scikit-learn, which takes longer than all other imports. So it is
    # imported only here.
    from optuna.importance import FanovaImportanceEvaluator, get_param_importances

    found: dict[str, dict[str, Importance]] = {}
    for index, name in enumerate(objectives):
        rng, shares = random.Random(0), dict[str, list[float]]()
        for number in range(_SAMPLES):
            before_step()
            chosen = rng.choices(completed, k=min(len(completed), _MOST_TRIALS))
            sample = StorageView(study._storage, partial(_all, chosen)).study(study)
            evaluator = FanovaImportanceEvaluator(n_trees=_TREES, seed=number)
            try:
                # Ignore warnings, because they are about too few trials.
                with warnings.catch_warnings(action="ignore"):
                    measured = get_param_importances(
                        sample, evaluator=evaluator, target=partial(_value, index)
                    )
            except (ValueError, RuntimeError):
                # All scores are equal, or no param is in all trials.
                continue
            for param, share in measured.items():
                shares.setdefault(param, []).append(float(share))
        edges = [(1 - _WITHIN) / 2, (1 + _WITHIN) / 2]
        known = {
            param: Importance(statistics.fmean(values), *np.quantile(values, edges).tolist()[:2])
            for param, values in shares.items()
        }
        if known:
            found[name] = dict(sorted(known.items(), key=lambda named: -named[1].share))
    return found


def _in_one_space(trials: Sequence[FrozenTrial]) -> list[FrozenTrial]:
    """Return the trials as if each of them could have had all values of the ranges of all trials.

    Otherwise, Optuna would leave out params whose range was changed during the study. The range of
    a retry may lack its value: the retry has the value of the failed trial and the present range.
    """
    ranges = dict[str, BaseDistribution]()
    for trial in trials:
        for name, own in trial.distributions.items():
            known = _union(ranges.get(name, own), own)
            ranges[name] = _with_value(known, trial.params[name])
    seen = [copy.copy(trial) for trial in trials]
    for trial in seen:
        trial.distributions = {name: ranges[name] for name in trial.distributions}
    return seen


def _union(range_: BaseDistribution, other: BaseDistribution) -> BaseDistribution:
    """Return the smallest range that contains two ranges of a param. Return choices unchanged.

    Both ranges are logarithmic, or neither is, because a study cannot change that.
    """
    if range_ == other or not isinstance(range_, FloatDistribution | IntDistribution):
        return range_
    assert isinstance(other, FloatDistribution | IntDistribution)
    low, high = min(range_.low, other.low), max(range_.high, other.high)
    # The two may have different steps, so the union has none.
    if isinstance(range_, IntDistribution):
        return IntDistribution(int(low), int(high), log=range_.log)
    return FloatDistribution(low, high, log=range_.log)


def _with_value(range_: BaseDistribution, value: Any) -> BaseDistribution:
    """Return a range, widened if necessary, so that it contains a value."""
    if not isinstance(range_, FloatDistribution | IntDistribution):
        return range_
    return _union(range_, type(range_)(value, value, log=range_.log))


def _on_linear_scale(trial: FrozenTrial) -> FrozenTrial:
    """Return a trial with the logarithms of its params that have a logarithmic range."""
    params, distributions = dict(trial.params), dict(trial.distributions)
    for name, range_ in trial.distributions.items():
        if isinstance(range_, FloatDistribution | IntDistribution) and range_.log:
            low, high = math.log(range_.low), math.log(range_.high)
            distributions[name] = FloatDistribution(low, high)
            params[name] = min(max(math.log(params[name]), low), high)
    return create_trial(values=trial.values, params=params, distributions=distributions)


def _of_one(
    param: str, completed: Sequence[FrozenTrial], objectives: Sequence[str]
) -> dict[str, dict[str, Importance]]:
    """Return the importances for a space with a single param: it explains all of the variance."""
    values = zip(*(trial.values for trial in completed), strict=True)
    differ = [name for name, scores in zip(objectives, values, strict=True) if len({*scores}) > 1]
    return {name: {param: Importance(1.0, 1.0, 1.0)} for name in differ}


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

    ordered = sorted(shares.items(), key=lambda named: named[1].share)
    found = [importance for _, importance in ordered]
    figure = Figure()
    axes = figure.subplots()
    axes.barh(
        [name for name, _ in ordered],
        [one.share for one in found],
        xerr=[[one.share - one.low for one in found], [one.high - one.share for one in found]],
    )
    axes.set_xlabel(f"share of the variance of {objective}")
    return figure


def _all(chosen: list[FrozenTrial], _: list[FrozenTrial]) -> list[FrozenTrial]:
    return chosen


def _value(index: int, trial: FrozenTrial) -> float:
    return float(trial.values[index])
