"""Convert search spaces and params to Optuna's form, and describe Optuna's distributions."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from typing import Any

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
    distribution_to_json,
)
from optuna.trial import FrozenTrial, TrialState

from ...settings.messages import as_yaml
from ...settings.space import (
    AnyDimension,
    ChoiceDimension,
    IntDimension,
    SearchSpace,
    as_scalar,
    from_scalar,
)
from ...trials import Params


def distributions(space: SearchSpace) -> dict[str, BaseDistribution]:
    """Return each dimension of a space as Optuna's distribution, by name."""
    return {name: _distribution(dimension) for name, dimension in space.items()}


def _distribution(dimension: AnyDimension) -> BaseDistribution:
    if isinstance(dimension, ChoiceDimension):
        return CategoricalDistribution([as_scalar(choice) for choice in dimension.choices])
    log = dimension.log
    if isinstance(dimension, IntDimension):
        return IntDistribution(dimension.low, dimension.high, log=log, step=dimension.step or 1)
    return FloatDistribution(dimension.low, dimension.high, log=log, step=dimension.step)


def in_words(distribution: BaseDistribution) -> str:
    """Return an Optuna distribution as text in the form of a parameters file: `{low: 1.0, …}`."""
    attributes = json.loads(distribution_to_json(distribution))["attributes"]
    if "choices" in attributes:
        attributes["choices"] = [from_scalar(choice) for choice in attributes["choices"]]
    # 0 equals False, so compare by identity: a range may begin at 0.
    stated = {
        key: value for key, value in attributes.items() if value is not None and value is not False
    }
    return as_yaml(stated)


def as_queued(params: Params) -> dict[str, Any]:
    """Return params as Optuna's queue stores them: lists and mappings become text."""
    return {name: as_scalar(value) for name, value in params.items()}


def in_space(
    trials: Sequence[FrozenTrial], space: SearchSpace, *, needs_all: bool = False
) -> list[FrozenTrial]:
    """Return trials as if they had been proposed from a search space, for a sampler.

    Each trial is copied with those of its params that the space has, in the order and with the
    ranges of the space. A user may have changed the order or the ranges since the trial began.
    Trials with a value that the space does not allow are left out.

    Args:
        trials: Trials of the study.
        space: Present search space of the study.
        needs_all: Whether to leave out also trials that have more or fewer params than the space
            gives them. A running trial may have fewer: perhaps not all its params are chosen yet.
    """
    known = distributions(space)
    seen = []
    for trial in trials:
        params = {name: from_scalar(value) for name, value in trial.params.items()}
        wanted = [name for name in space if space.exists(name, params)]
        names = [name for name in wanted if name in params]
        has_all = trial.state is TrialState.RUNNING or names == wanted
        has_more = len(params) > len(names)
        if needs_all and (has_more or not has_all):
            continue
        if all(space[name].allows(params[name]) for name in names):
            changed = copy.copy(trial)
            changed.distributions = {name: known[name] for name in names}
            changed.params = {name: trial.params[name] for name in names}
            seen.append(changed)
    return seen


def as_trial(params: Params, score: float, known: Mapping[str, BaseDistribution]) -> FrozenTrial:
    """Return a completed trial with these params and this score, in Optuna's form.

    Args:
        params: Params of the trial.
        score: Score of the trial.
        known: Distribution of each of these params, and perhaps of others.
    """
    used = {name: known[name] for name in params}
    return optuna.trial.create_trial(params=as_queued(params), distributions=used, value=score)


def suggest(trial: optuna.Trial, space: SearchSpace) -> dict[str, Any]:
    """Let Optuna choose the params of a trial one after the other, and return them.

    A param does not exist in this trial, and is skipped, if its `when` does not match the values
    that were chosen before.
    """

    def pick(name: str, dimension: AnyDimension) -> Any:
        if isinstance(dimension, ChoiceDimension):
            by_scalar = {as_scalar(choice): choice for choice in dimension.choices}
            return by_scalar[trial.suggest_categorical(name, list(by_scalar))]
        log = dimension.log
        if isinstance(dimension, IntDimension):
            step = dimension.step or 1
            return trial.suggest_int(name, dimension.low, dimension.high, log=log, step=step)
        return trial.suggest_float(
            name, dimension.low, dimension.high, log=log, step=dimension.step
        )

    return space.sample(pick)
