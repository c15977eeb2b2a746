"""Plan the studies that run trials of a search NAME again: NAME-confirm and NAME-ablate.

NAME-confirm runs the best trials on fresh seeds. NAME-ablate also uses fresh seeds: it runs the
best trial, and the same trial with one param at a time at the notebook's value. Neither study
proposes params, prunes trials or is confirmed itself.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from ..errors import SettingsError, SweepError, first_line
from ..page import write_page_of
from ..search.repeats import plan_of_repeats
from ..search.samplers import SamplerFactory
from ..search.seeds import derived_seed
from ..settings import Settings
from ..settings.addresses import Address
from ..settings.sections import Algorithm
from ..study.study import Study
from ..tracking import Tracker, check_reachable
from ..trials import (
    Insights,
    RepeatPlan,
    Repeats,
    RerunPlan,
    SweepResult,
    TrialRecord,
    best_trials,
    has_score,
)
from .opening import store_of
from .planning.plan import SweepPlan, remote_copy

_log = logging.getLogger(__name__)

#: After a confirmation, the final answer of the search is written into the text that MLflow shows
#: above the runs. Wait at most this many seconds for it (chosen, not measured). MLflow needs two of
#: them to open a store.
_NOTE_S = 20.0


def confirming_plan(
    search: SweepPlan, found: SweepResult, *, is_stopped: Callable[[], bool]
) -> SweepPlan | None:
    """Return the plan of NAME-confirm, which runs the best trials of a search on fresh seeds.

    Return None if the settings ask for no confirmation, if the search was stopped, or if none of
    its trials has a score.

    Args:
        search: Plan of the search NAME. Both studies have the same notebook, modules, inputs and
            data.
        found: Result of the search.
        is_stopped: Returns whether the sweep was stopped. If so, a wait for a cluster's workers
            ends with `StoppedError`.

    Raises:
        SettingsError: None of the trials with a score can run again, nothing is left of the budget,
            or the name NAME-confirm is too long.
        StoppedError: The sweep was stopped.
    """
    asked = search.settings.confirm
    if asked is None or found.stopped_by is not None:
        return None
    ((name, goal),) = search.settings.objective.items()
    best = trials_to_confirm(search.settings, found.records, count=asked.best)
    if not best:
        if found.best:
            raise SettingsError(_why_none(search.settings))
        return None
    seeds = fresh_seeds(search.settings, asked.seeds)
    wanted = RerunPlan.of_trials(best, seeds, objective=name, direction=goal.direction)
    return following_plan(search, "confirm", wanted, of=found, is_stopped=is_stopped)


def _why_none(settings: Settings) -> str:
    """Return a text: why no trial that has a score can run on fresh seeds, and the remedy."""
    if settings.repeat is not None:
        return (
            "no proposal has both the scores of all its runs (`repeat`) and params that the "
            "parameters file still allows; restore `space`, or add trials with --trials"
        )
    return (
        "the parameters file no longer fits any trial, as warnings say for each; restore its "
        "`space`, or add trials with --trials"
    )


def trials_to_confirm(
    settings: Settings, records: Sequence[TrialRecord], *, count: int
) -> list[TrialRecord]:
    """Return the best of a search's trials whose params the parameters file still allows.

    With `repeat`, several trials run each set of params. Then only one trial of each set counts,
    with the mean score of the set. Trials are checked from the best one on, until `count` are
    found. For each checked trial whose params are no longer allowed, a warning is logged.

    Args:
        settings: Settings of the search.
        records: Records of its trials.
        count: Largest number of trials to return.
    """
    ((name, goal),) = settings.objective.items()
    if settings.repeat is not None:
        records = _with_means(plan_of_repeats(settings), records)
    ranked = best_trials(records, objective=name, direction=goal.direction, count=len(records))
    found: list[TrialRecord] = []
    for record in ranked:
        if len(found) == count:
            break
        try:
            settings.check_again(record.params)
        except SettingsError as error:
            _log.warning("trial %s is not confirmed: %s", record.run_id, error)
        else:
            found.append(record)
    return found


def fresh_seeds(settings: Settings, count: int) -> list[int]:
    """Return seeds for runs after a search, which no trial of the search has used.

    The seeds depend only on `study.seed`. A larger count adds seeds at the end of the list.
    """
    return [derived_seed(settings.study.seed, "confirm", n) for n in range(1, count + 1)]


def following_plan(
    search: SweepPlan,
    kind: str,
    wanted: RerunPlan,
    *,
    of: SweepResult,
    is_stopped: Callable[[], bool] = lambda: False,
) -> SweepPlan:
    """Return the plan of NAME-confirm or NAME-ablate, which runs given params on given seeds.

    If the study exists already, its sweep is resumed.

    Args:
        search: Plan of the search. Both studies have the same notebook, modules, inputs and data.
        kind: `confirm` or `ablate`. The study's name is `NAME-confirm` or `NAME-ablate`.
        wanted: Params and seeds to run.
        of: Result of the search. The study may spend what the search has left of the budget.
        is_stopped: Returns whether the sweep was stopped. If so, a wait for a cluster's workers
            ends with `StoppedError`.
    """
    paths = search.paths.following(kind)
    n_trials = len(wanted.runs)
    spent = of.cost or 0.0
    settings = following_settings(search.settings, paths.study, spent=spent, trials=n_trials)
    url = search.storage_url
    if url.file == search.paths.storage:
        url = Address.of_file(paths.storage)
    workload = replace(
        search.workload, settings=settings, paths=paths, random_seed=None, replaces_seeds=True
    )
    return replace(
        search,
        workload=workload,
        executor=search.make_executor(workload, is_stopped),
        samplers=SamplerFactory(settings),
        storage_url=url,
        remote=remote_copy(settings, paths, url, search.tracking),
        confirming=replace(wanted, of=of.study_id),
    )


def with_confirmation(found: SweepResult, runs: SweepResult) -> SweepResult:
    """Return the result of a search, updated by its confirmation: best trial, cost and more.

    Args:
        found: Result of the search.
        runs: Result of the study NAME-confirm, which has run the best trials on fresh seeds.
    """
    confirmation = runs.confirmation
    assert confirmation is not None, "the result of a confirming study has one"
    return replace(
        found,
        best=confirmation.best_of(found.records, found.best),
        confirmation=confirmation,
        confirmation_page=runs.page,
        confirmed_here=runs.counts_here,
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


def answered_again(search: SweepPlan, found: SweepResult) -> SweepResult:
    """Make the final answer of a search (the winner, what to do next) after NAME-confirm has run.

    NAME-confirm, which runs the best trials on fresh seeds, may have failed. The answer is also
    written to the comparison page of the search, and into the description of its MLflow experiment.
    If one of these cannot be written, a warning is logged.

    Args:
        search: Plan of the search.
        found: Result of the search. It includes the confirmation, unless the confirmation failed.

    Returns:
        The result with the final answer. `found` itself if the study cannot be read or the page
        cannot be written.
    """
    paths = search.paths
    try:
        study = Study.load(search.storage_url, paths.study)
        importances = study.known_importances()
        insights = write_page_of(search.located(study), search.settings, importances=importances)
    except (SweepError, OSError) as error:
        why = first_line(error)
        _log.warning("%s lacks the final answer: %s; `export` writes it", paths.page, why)
        return found
    if insights is not None:
        try:
            _describe(search, study, insights)
        except SweepError as error:
            _log.warning("MLflow does not show the final answer: %s", first_line(error))
    return replace(found, insights=insights)


def _describe(search: SweepPlan, study: Study, insights: Insights) -> None:
    """Write who has won and what mattered into the description of a search's MLflow experiment.

    Args:
        search: Plan of the search.
        study: The study of the search.
        insights: Answer of the search. Its first three sentences are written.

    Raises:
        SweepError: MLflow cannot be used.
    """
    store = store_of(search, study)
    check_reachable(store)
    tracker = Tracker(store)
    tracker.describe(insights.sentences)
    until_s = time.monotonic() + _NOTE_S
    tracker.close(lambda: until_s - time.monotonic())


def _with_means(plan: RepeatPlan, records: Sequence[TrialRecord]) -> list[TrialRecord]:
    """Return one record for each set of params, with the mean score of the trials that ran it.

    With `repeat`, several trials run each set of params, each on another seed or fold. A set is
    left out until it has a score for each seed or fold. Apart from the score, the record is that of
    the set's first trial with a score, which may be a retry.
    """
    name = plan.objective
    found = []
    for proposal in Repeats(plan, records).ranking:
        first = next(run for run in proposal.runs.values() if has_score(run, name))
        found.append(replace(first, scores={name: proposal.mean or 0.0}))
    return found


def following_settings(settings: Settings, name: str, *, spent: float, trials: int) -> Settings:
    """Return the settings of NAME-confirm or NAME-ablate, which runs trials of a search again.

    They are those of the search without its sampler, pruner, `start`, `confirm` and `repeat`.

    Args:
        settings: Settings of the search.
        name: Name of the study.
        spent: Cost of the search. The study has what is left of the budget.
        trials: Number of trials of the study.

    Raises:
        SettingsError: Nothing is left of the budget, or no study can have this name.
    """
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
        budget = settings.cost.budget
        if spent >= budget:
            raise SettingsError(
                f"cost.budget: {budget:g} is spent, so nothing is left for the study {name!r}; "
                "give a larger budget"
            )
        changes["cost"] = settings.cost.model_copy(update={"budget": budget - spent})
    changed = settings.model_copy(update=changes)
    # Check that later commands can load these settings, which the study stores as a mapping.
    Settings.from_mapping(changed.as_mapping)
    return changed
