"""Studies that run chosen params on chosen seeds after a search: its best trials, ablations."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..errors import SettingsError
from ..search.repeats import plan_of_repeats
from ..search.samplers import SamplerFactory
from ..search.seeds import derived_seed
from ..settings import Settings
from ..settings.addresses import Address
from ..settings.sections import Algorithm
from ..trials import Repeats, SweepResult, TrialRecord, best_trials, plan_of
from .planning.plan import SweepPlan, remote_copy

_log = logging.getLogger(__name__)


def confirming_plan(search: SweepPlan, found: SweepResult) -> SweepPlan | None:
    """The plan of the study that confirms the best trials of a search; None for nothing to do.

    Args:
        search: the plan of the search, whose notebook, modules, inputs and data it shares.
        found: how the search ended.
    """
    asked = search.settings.confirm
    if asked is None or found.stopped_by is not None:
        return None
    ((name, goal),) = search.settings.objective.items()
    possible = [record for record in found.records if _is_possible(record, search.settings)]
    if search.settings.repeat is not None:
        possible = _with_means(plan_of_repeats(search.settings), possible)
    best = best_trials(possible, objective=name, direction=goal.direction, count=asked.best)
    if not best:
        return None
    seeds = fresh_seeds(search.settings, asked.seeds)
    wanted = plan_of(best, seeds, objective=name, direction=goal.direction)
    return following_plan(search, "confirm", wanted, spent=found.cost or 0.0)


def fresh_seeds(settings: Settings, count: int) -> list[int]:
    """The first seeds for runs after the search."""
    return [derived_seed(settings.study.seed, "confirm", n) for n in range(1, count + 1)]


def following_plan(
    search: SweepPlan, kind: str, wanted: Mapping[str, Any], *, spent: float
) -> SweepPlan:
    """The plan of a study of chosen params and seeds that follows a search.

    Args:
        search: the plan of the search, whose notebook, modules, inputs and data it shares.
        kind: `confirm` or `ablate`, which its name ends in.
        wanted: the params and seeds, as `trials.plan_of` makes them.
        spent: what the search has cost.
    """
    paths = search.paths.following(kind)
    n_trials = len(wanted["trials"]) * len(wanted["seeds"])
    settings = _settings(search.settings, paths.study, spent=spent, trials=n_trials)
    url = search.storage_url
    if url.file == search.paths.storage:
        url = Address.of_file(paths.storage)
    workload = replace(search.workload, settings=settings, paths=paths, replaces_seeds=True)
    return replace(
        search,
        workload=workload,
        executor=search.make_executor(workload),
        samplers=SamplerFactory(settings),
        storage_url=url,
        remote=remote_copy(settings, paths, url, search.tracking),
        confirming=wanted,
    )


def with_confirmation(found: SweepResult, runs: SweepResult) -> SweepResult:
    """The result of a search and of the study that confirmed its best trials."""
    confirmation = runs.confirmation
    assert confirmation is not None, "the result of a confirming study has one"
    return replace(
        found,
        best=confirmation.best_of(found.records, found.best),
        confirmation=confirmation,
        confirmation_page=runs.page,
        stopped_by=runs.stopped_by,
        stop_cause=runs.stop_cause,
        undelivered=found.undelivered + runs.undelivered,
        undelivered_because=runs.undelivered_because or found.undelivered_because,
        cost=None if found.cost is None else found.cost + (runs.cost or 0.0),
        sync_lag_s=runs.sync_lag_s,
        kernels=[*found.kernels, *runs.kernels],
        findings=list(dict.fromkeys([*found.findings, *runs.findings])),
        duration_s=found.duration_s + runs.duration_s,
    )


def _with_means(plan: Mapping[str, Any], records: Sequence[TrialRecord]) -> list[TrialRecord]:
    """One trial for each proposal with all its runs; its score is their mean."""
    first = {record.run_id: record for record in records}
    ranking = Repeats(plan, records).ranking
    name = plan["objective"]
    return [replace(first[ranked.run_id], scores={name: ranked.mean or 0.0}) for ranked in ranking]


def _is_possible(record: TrialRecord, settings: Settings) -> bool:
    """Whether the parameters file still allows a trial's params."""
    try:
        settings.check_params(record.params)
    except SettingsError as error:
        _log.warning("trial %s is not confirmed: %s", record.run_id, error)
        return False
    return True


def _settings(settings: Settings, name: str, *, spent: float, trials: int) -> Settings:
    """The settings of the following study: nothing is proposed, pruned or confirmed there."""
    study = settings.study.model_copy(
        update={
            "name": name,
            "trials": trials,
            "sampler": Algorithm(name="random"),
            "pruner": Algorithm(name="none"),
            "order": "free",
        }
    )
    changes = {"study": study, "start": (), "confirm": None, "repeat": None}
    if settings.cost is not None and settings.cost.budget is not None:
        left = max(settings.cost.budget - spent, 0.0)
        changes["cost"] = settings.cost.model_copy(update={"budget": left})
    return settings.model_copy(update=changes)
