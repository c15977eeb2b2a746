"""Make the answer of a study from the records of its trials. This module alone decides it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median

from ..settings import Settings
from ..settings.space import SearchSpace
from ..trials import (
    Ablate,
    Action,
    CheaperTrial,
    Confirm,
    Confirmation,
    Correct,
    FailureGroup,
    Failures,
    Front,
    Importance,
    Insights,
    LeaveOut,
    Mattered,
    Mean,
    MoreSeeds,
    MoreTrials,
    NumberRange,
    Region,
    Resume,
    Spent,
    TrialRecord,
    TrialState,
    Widen,
    Winner,
    has_score,
    left_to_begin,
    without_effect,
)
from ..trials.confirmation import DEFAULT_BEST, DEFAULT_SEEDS
from .effects import clear_effects
from .regions import best_region, failed_region
from .wording import sentences_of

#: With fewer completed trials, nothing is said about what mattered (chosen).
_FEWEST_TRIALS = 10
#: A param is named if it explains at least this share of the variance, and not less than the second
#: share in nine of ten samples (both chosen).
_LEAST_SHARE, _LEAST_LOW = 0.1, 0.02
#: Two params have no order if the smaller share is at least this much of the larger one (chosen).
#: In planted studies of two params with the same effect, 120 random trials gave shares up to 62 %
#: and 37 %, with intervals that did not overlap.
_ALIKE = 0.5
#: A cheaper trial takes at most this share of the winner's time, and loses at most this share of
#: the winner's lead over the median trial (both chosen).
_TIME_SHARE, _LOST_SHARE = 0.5, 0.1
#: Shorter trials do not differ in cost (chosen): the start of a kernel takes as long.
_SHORTEST_S = 2.0
#: A region is left out of the space if at least this share of its trials fail (chosen).
_MOSTLY = 0.8
#: More trials and more seeds are suggested up to these numbers (chosen).
_MOST_TRIALS, _MOST_SEEDS = 200, 20


def answer_of(
    settings: Settings,
    records: Sequence[TrialRecord],
    best: Sequence[TrialRecord],
    *,
    folder: str,
    trials: int | None = None,
    confirmation: Confirmation | None = None,
    importances: Mapping[str, Mapping[str, Importance]] | None = None,
    cost: float | None = None,
    is_running: bool = False,
    is_search: bool = True,
) -> Insights:
    """Return the answer of a study, as data and in words.

    Args:
        settings: Settings of the study.
        records: Records of its trials.
        best: Its best trials, as `LocatedStudy.best` returns them.
        folder: Folder of the study, as a user would type it.
        trials: Number of trials that the study is to have. Default: the number in the settings.
        confirmation: Ranking of its trials by means. None if there is none.
        importances: Share of each objective's variance that each param explains, by objective and
            param. None while it is not known, and nothing is then said about it.
        cost: Cost of all its sweeps, with those of the study that confirms it. None if no price is
            known.
        is_running: Whether a sweep runs on the study. There is then nothing to do next.
        is_search: Whether the study proposes params. If not, it runs given params again.
    """
    goals = settings.objective
    completed = [
        record
        for record in records
        if all(name in record.scores and has_score(record, name) for name in goals)
    ]
    mattered: Sequence[Mattered] = ()
    region = None
    if is_search and completed and not is_running:
        by_score = [_mattered(name, completed, importances) for name in goals]
        mattered = [one for one in by_score if one is not None]
        if len(goals) == 1:
            ((name, goal),) = goals.items()
            sign = 1 if goal.direction == "maximize" else -1
            region = best_region(completed, name, sign=sign, space=settings.search_space)
    found = Insights(
        best=_best(settings, completed, best, confirmation),
        mattered=mattered,
        region=region,
        failures=_failures(records, settings),
        spent=_spent(records, completed, cost),
        actions=(),
    )
    if not is_running:
        planned = settings.study.trials if trials is None else trials
        left = left_to_begin(records, trials=planned)
        actions = _actions(found, settings, records, confirmation, left=left)
        if is_search and not left:
            actions += _further(found, settings, completed, confirmation, folder=folder)
        found = replace(found, actions=actions)
    return replace(found, sentences=sentences_of(found))


def _best(
    settings: Settings,
    completed: Sequence[TrialRecord],
    best: Sequence[TrialRecord],
    confirmation: Confirmation | None,
) -> Winner | Front | None:
    goals = settings.objective
    if not best:
        return None
    if len(goals) > 1:
        ends = {}
        for name, goal in goals.items():
            sign = 1 if goal.direction == "maximize" else -1
            end = max(best, key=lambda record: sign * record.scores[name])
            ends[name] = (end.run_id, {each: end.scores[each] for each in goals})
        return Front(size=len(best), ends=ends)
    (record,), (name,) = best[:1], goals
    scores = {name: record.scores[name]}
    winner = None if confirmation is None else confirmation.winner
    if confirmation is None or winner is None or winner.mean is None:
        same = [r.run_id for r in completed if r.scores[name] == record.scores[name]]
        return Winner(
            run_id=record.run_id,
            params=record.params,
            scores=scores,
            mean=None,
            same_score=[run_id for run_id in same if run_id != record.run_id],
            cheaper=_cheaper(record, completed, name, goals[name].direction),
        )
    interval = winner.interval
    mean = Mean(
        mean=winner.mean,
        half_interval=None if interval is None else (interval[1] - interval[0]) / 2,
        runs=len(winner.scores),
        by=confirmation.repeats or "fresh seeds",
        search_score=winner.search_score,
        # Where no seed changes a score, equal means say nothing about the trials.
        alike=[] if confirmation.has_no_effect else [t.run_id for t in confirmation.alike],
    )
    return Winner(
        run_id=winner.run_id,
        params=winner.params,
        scores=scores,
        mean=mean,
        same_score=(),
        cheaper=None,
    )


def _cheaper(
    winner: TrialRecord, completed: Sequence[TrialRecord], name: str, direction: str
) -> CheaperTrial | None:
    """Return the cheapest trial that is nearly as good as the winner, if it is much cheaper."""
    if len(completed) < _FEWEST_TRIALS or winner.duration_s < _SHORTEST_S:
        return None
    sign = 1 if direction == "maximize" else -1
    middle = median(record.scores[name] for record in completed)
    lead = sign * (winner.scores[name] - middle)
    near = [
        record
        for record in completed
        if 0 < record.duration_s <= _TIME_SHARE * winner.duration_s
        and sign * (winner.scores[name] - record.scores[name]) <= _LOST_SHARE * lead
    ]
    if not near:
        return None
    found = min(near, key=lambda record: record.duration_s)
    share = found.duration_s / winner.duration_s
    return CheaperTrial(run_id=found.run_id, score=found.scores[name], time_share=share)


def _mattered(
    name: str,
    completed: Sequence[TrialRecord],
    importances: Mapping[str, Mapping[str, Importance]] | None,
) -> Mattered | None:
    """Return what mattered for a score. None if it is not known, or if there is nothing to tell."""
    found = (importances or {}).get(name, {})
    params = completed[0].params
    tried = [p for p in params if len({repr(r.params.get(p)) for r in completed}) > 1]
    if importances is None or len(tried) < 2 or without_effect(completed):
        return None
    nothing = Mattered(objective=name, trials=len(completed), groups=(), others=None, pair=None)
    if len(completed) < _FEWEST_TRIALS:
        return nothing
    effects = clear_effects(completed, name)
    groups = _groups(found)
    named = [
        {p: i.share for p, i in group.items() if p in effects.params and _is_named(i)}
        for group in groups
    ]
    groups_of_named = [group for group in named if group]
    known = {param for group in groups_of_named for param in group}
    others = [importance.share for param, importance in found.items() if param not in known]
    return replace(
        nothing, groups=groups_of_named, others=max(others, default=None), pair=effects.pair
    )


def _is_named(importance: Importance) -> bool:
    return importance.share >= _LEAST_SHARE and importance.low >= _LEAST_LOW


def _groups(found: Mapping[str, Importance]) -> list[dict[str, Importance]]:
    """Return the params grouped by what is known of their order, the largest share first.

    A param is in the group of a larger one if their intervals overlap, or if it is not much
    smaller.
    """
    groups: list[dict[str, Importance]] = []
    for param, importance in sorted(found.items(), key=lambda item: -item[1].share):
        largest = next(iter(groups[-1].values())) if groups else None
        if largest is not None and (
            importance.high >= largest.low or importance.share >= _ALIKE * largest.share
        ):
            groups[-1][param] = importance
        else:
            groups.append({param: importance})
    return groups


def _failures(records: Sequence[TrialRecord], settings: Settings) -> Failures | None:
    failed = [record for record in records if record.state is TrialState.FAILED]
    if not failed:
        return None
    ended = [record for record in records if record.is_final]
    by_reason: dict[str, list[TrialRecord]] = {}
    for record in failed:
        by_reason.setdefault(_reason_of(record), []).append(record)
    ordered = sorted(by_reason.values(), key=len, reverse=True)
    return Failures(
        ended=len(ended),
        groups=[_failure_group(group) for group in ordered],
        region=failed_region(ordered[0], ended, space=settings.search_space),
    )


def _failure_group(failed: Sequence[TrialRecord]) -> FailureGroup:
    lines = [record.message.strip().partition("\n")[0] for record in failed]
    ((message, _),) = Counter(lines).most_common(1)
    first = failed[lines.index(message)]
    return FailureGroup(
        reason=_reason_of(first), count=len(failed), first=first.run_id, message=message
    )


def _reason_of(record: TrialRecord) -> str:
    return "failed" if record.reason is None else str(record.reason)


def _spent(
    records: Sequence[TrialRecord], completed: Sequence[TrialRecord], cost: float | None
) -> Spent:
    ran = [record.duration_s for record in records if record.duration_s > 0]
    took = [record.duration_s for record in completed if record.duration_s > 0]
    return Spent(
        trials=len(ran),
        trial_s=sum(ran),
        median_s=median(took) if took else None,
        cost=cost,
        cost_per_trial=cost / len(completed) if cost is not None and completed else None,
    )


def _actions(
    found: Insights,
    settings: Settings,
    records: Sequence[TrialRecord],
    confirmation: Confirmation | None,
    *,
    left: int,
) -> list[Action]:
    """Return what is to be done before the study has its trials."""
    actions: list[Action] = []
    if found.failures is not None and not any(r.state is TrialState.COMPLETED for r in records):
        return [Correct(run_id=found.failures.groups[0].first)]
    missing = 0 if confirmation is None or confirmation.repeats else confirmation.n_missing
    if left or missing:
        actions.append(Resume(left=left or missing))
    region = None if found.failures is None else found.failures.region
    if (
        region is not None
        and region.trials >= _MOSTLY * region.inside
        and _is_in_space(region, settings.search_space)
    ):
        actions.append(LeaveOut(region=region))
    return actions


def _is_in_space(region: Region, space: SearchSpace) -> bool:
    """Return whether the search space still has a region. The user may have narrowed it since."""
    for part in region.parts:
        values = (part.low, part.high) if isinstance(part, NumberRange) else part.values
        dimension = space.get(part.param)
        if dimension is None or not any(dimension.allows(value) for value in values):
            return False
    return True


def _further(
    found: Insights,
    settings: Settings,
    completed: Sequence[TrialRecord],
    confirmation: Confirmation | None,
    *,
    folder: str,
) -> list[Action]:
    """Return what is to be done after a search that has all its trials."""
    actions: list[Action] = []
    if not isinstance(found.best, Winner):
        return actions
    mean = found.best.mean
    if confirmation is None and len(completed) > 1:
        actions.append(Confirm(best=DEFAULT_BEST, runs=DEFAULT_BEST * DEFAULT_SEEDS))
    elif mean is not None and confirmation is not None and confirmation.repeats is None:
        if mean.alike and mean.runs < _MOST_SEEDS:
            actions.append(MoreSeeds(best=len(confirmation.ranking), seeds=2 * mean.runs))
        elif not mean.alike and not confirmation.has_no_effect:
            actions.append(Ablate(study=folder))
    actions += [*_widened(found.region, settings.search_space)][:1]
    is_unclear = any(not one.groups and one.pair is None for one in found.mattered)
    more = 2 * settings.study.trials
    most = settings.search_space.count()
    if is_unclear and more <= _MOST_TRIALS and (most is None or more <= most):
        actions.append(MoreTrials(trials=more))
    return actions


def _widened(region: Region | None, space: SearchSpace) -> Sequence[Widen]:
    """Return the ranges to widen: those in which the best trials are at an end of the space.

    Many params cannot be less than 0 or more than 1, so ranges that end there are left alone.
    """
    found = []
    for part in () if region is None else region.parts:
        if isinstance(part, NumberRange) and part.open_end is not None:
            end: float = getattr(space[part.param], part.open_end)
            if end not in (0, 1):
                found.append(Widen(param=part.param, end=part.open_end, value=end))
    return found
