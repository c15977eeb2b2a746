"""Ablate a study's best trial: run it with each param in turn reset to the notebook's value."""

from __future__ import annotations

import logging
import math
from contextlib import suppress
from dataclasses import replace
from typing import Any

from ..errors import SettingsError, StudyError
from ..notebooks.research import ResearchNotebook
from ..settings.sections import Confirm
from ..settings.space import AnyDimension, ChoiceDimension, IntDimension, SearchSpace
from ..sweep import Sweep
from ..sweep.confirming import following_plan, fresh_seeds
from ..sweep.inputs.resolving import with_inputs
from ..sweep.resume_checks import refuse_changes
from ..trials import Params, PlannedTrial, RerunPlan, value_text
from .lookup import ExistingStudy
from .status import look

_log = logging.getLogger(__name__)


def ablation(
    existing: ExistingStudy,
    *,
    seeds: int | None = None,
    cluster: str | None = None,
    **options: Any,
) -> Sweep:
    """Return the sweep of the study NAME-ablate, which measures the effect of each param.

    The sweep runs the best trial of a study on fresh seeds, and the same trial with one param at a
    time set to the value that the notebook assigns.

    Args:
        existing: Study whose best trial is ablated.
        seeds: Number of fresh seeds. None for the seeds on which `confirm` has run the best trials,
            or, if it has not run, for as many seeds as it would use.
        cluster: Address of a Dask scheduler, or `local:N`. None to run trials where the study was
            swept.
        **options: Further arguments of `Sweep.from_settings`.

    Raises:
        SweepError: The study cannot be ablated or swept. Nothing was started.
    """
    settings = existing.settings.with_overrides(cluster=cluster)
    facts, found = existing.study.facts, look(existing)[0]
    confirmation = existing.study.confirmation
    if confirmation is not None and confirmation.repeats is None:
        raise StudyError(
            f"ablate: {found.study!r} repeats trials of another study; give that other study"
        )
    if why := settings.why_not_confirmed():
        raise SettingsError(f"ablate: {why}")
    if settings.repeat is not None and settings.repeat.by_fold:
        raise SettingsError(
            "ablate: an ablation runs on several seeds, so a study with `repeat: {fold: …}`, whose "
            "runs differ in their folds, cannot be ablated"
        )
    if not found.best:
        raise StudyError(
            f"ablate: no trial of the study {found.study!r} has completed; sweep it first"
        )
    sweep = Sweep.from_settings(
        settings,
        notebook=facts.notebook,
        output=existing.paths.template,
        storage=existing.storage_url.full,
        tracking_uri=existing.tracking.full,
        kernel=facts.kernel,
        **options,
    )
    # Close the plan's executor, which would run the search. The ablation gets another executor.
    sweep.plan.close()
    search = with_inputs(sweep.plan)
    if not search.allow_changes:
        sources = search.notebook.display_name
        refuse_changes(existing.study, search.fingerprint, sources=sources, paths=existing.paths)
    best = found.best[0]
    try:
        settings.check_again(best.params)
    except SettingsError as error:
        raise StudyError(
            f"ablate: the best trial, {best.run_id}, cannot run again: {error}"
        ) from error
    dimensions, changed = _ablated(best.params, settings.search_space, search.notebook)
    if not changed:
        raise StudyError(
            f"ablate: the best trial, {best.run_id}, has the notebook's original value of each "
            "param, so there is nothing to compare; run more trials first"
        )
    on = fresh_seeds(settings, seeds or (settings.confirm or Confirm()).seeds)
    confirmed = found.confirmation
    if confirmed is not None and confirmed.repeats is None and seeds is None:
        on = [*confirmed.seeds]
    ((objective, goal),) = settings.objective.items()
    wanted = RerunPlan.of_trials([best], on, objective=objective, direction=goal.direction)
    others = [
        PlannedTrial(run_id=run_id, params=params, score=None) for run_id, params in changed.items()
    ]
    wanted = replace(wanted, ablated=best.run_id, trials=[*wanted.trials, *others])
    wider = settings.model_copy(update={"space": {**settings.space, **dimensions}})
    search = replace(search, workload=replace(search.workload, settings=wider))
    plan = following_plan(search, "ablate", wanted, of=found)
    return Sweep(plan, observer=options.get("observer"))


def _ablated(
    best: Params, space: SearchSpace, notebook: ResearchNotebook
) -> tuple[dict[str, AnyDimension], dict[str, dict[str, Any]]]:
    """Return an ablation's search space, and the params of its trials with one changed param.

    Args:
        best: Params of the best trial.
        space: Search space of the search.
        notebook: Research notebook, with the value to which each param is changed.

    Returns:
        The dimensions by name, widened if they do not contain the notebook's value. Then the params
        of each trial, by a text that says which param was changed, such as `dropout=0.1`. A param
        that exists only with the changed value (see `when`) has the notebook's value, too.
    """
    own: dict[str, Any] = {}
    dimensions, assignments = dict(space.items()), notebook.assignments
    for name, dimension in space.items():
        value = assignments.plain_value(name)
        value = list(value) if isinstance(value, tuple) else value
        is_known = bool(assignments.places(name))
        if is_known and (wider := _holding(dimension, value)) is not None:
            own[name], dimensions[name] = value, wider
        elif name in best:
            _log.warning(
                "%s is not ablated: the notebook assigns it no literal of the type that its values "
                "in `space` have",
                name,
            )
    changed = {}
    for name in own:
        if name in best and own[name] != best[name]:
            values = {**own, **best, name: own[name]}
            # The notebook's value may open a branch (params that exist only with this value). If
            # no values are known for these params, a KeyError is raised. Then do not ablate `name`.
            with suppress(KeyError):
                # `sample` calls the function at once, while `values` is still the same.
                params = SearchSpace(dimensions).sample(lambda name, _: values[name])  # noqa: B023
                changed[f"{name}={value_text(own[name])}"] = params
    return dimensions, changed


def _holding(dimension: AnyDimension, value: Any) -> AnyDimension | None:
    """Return a dimension that contains a value, widened if necessary.

    Returns:
        None if the dimension cannot contain a value of this type.
    """
    if dimension.allows(value):
        return dimension
    if isinstance(dimension, ChoiceDimension):
        return dimension.model_copy(update={"choices": (*dimension.choices, value)})
    kinds = int if isinstance(dimension, IntDimension) else int | float
    if isinstance(value, bool) or not isinstance(value, kinds) or not math.isfinite(value):
        return None
    ends = {"low": min(value, dimension.low), "high": max(value, dimension.high)}
    is_log = dimension.log and ends["low"] > 0
    return dimension.model_copy(update={**ends, "step": None, "log": is_log})
