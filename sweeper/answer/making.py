"""Make the answer of a study from the records of its trials: the winner, what mattered, what next.

Only this module decides what the answer says. Other modules put it into words and show it.
"""

from __future__ import annotations

import math
import shlex
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from statistics import median, mode

from ..settings import Settings
from ..trials import (
    FOLD,
    Ablate,
    Action,
    CheaperTrial,
    Confirm,
    Confirmation,
    ConfirmedTrial,
    Correct,
    FailureGroup,
    Failures,
    Front,
    Importance,
    Insights,
    Mattered,
    Mean,
    MoreSeeds,
    MoreTrials,
    Params,
    Region,
    Resume,
    Spent,
    TrialRecord,
    TrialState,
    Widen,
    Winner,
    best_trials,
    has_score,
    have_equal_scores,
    left_to_begin,
)
from ..trials.confirmation import DEFAULT_BEST, DEFAULT_SEEDS
from .effects import clear_effects, strongest_effect
from .regions import end_reached, region_of
from .wording import sentences_of

#: The best trials are the best tenth of the trials, but at least this number (chosen). Fewer trials
#: have narrow ranges by chance.
_FEWEST_BEST = 5
#: The answer names a param only if it explains at least the share `_LEAST_SHARE` of the variance,
#: and if the lower bound of that share's 90 % interval is at least `_LEAST_LOW` (both chosen). Its
#: effect must also be larger than the noise (see `Importance.is_clear` and `clear_effects`).
_LEAST_SHARE, _LEAST_LOW = 0.1, 0.02
#: Two params act together if the joint share of each is at least this (chosen). The joint share is
#: what a param explains of the variance only together with other params. In simulated studies of 60
#: trials with known effects, it was 0.77 for two params that acted together, and 0.22 for two that
#: did not (measured).
_LEAST_JOINT = 0.4
#: The answer does not say which of two params matters more if the smaller share of the variance is
#: at least this fraction of the larger one (chosen). The intervals alone do not suffice: in a
#: simulated study of 120 random trials, two params with the same effect had shares of 54 % and
#: 46 %, whose intervals did not overlap (measured).
_ALIKE = 0.5
#: The answer states the noise of a score from `_FEWEST_FOR_NOISE` completed trials on (chosen). In
#: ten simulated studies of 56 or more trials, the estimate was 0.84 to 1.04 of the true noise; in
#: one of 12 trials, it was 0.7 of it. `_STDS_OF_NOISE` standard deviations are half of the 95 %
#: interval of a normal distribution.
_FEWEST_FOR_NOISE, _STDS_OF_NOISE = 30, 1.96
#: The answer names a cheaper trial if it takes at most `_TIME_SHARE` of the winner's time, and
#: loses at most `_LOST_SHARE` of the winner's lead over the median of the first trials. The first
#: trials are the first quarter, but at least `_FIRST_TRIALS` (all chosen).
_TIME_SHARE, _LOST_SHARE, _FIRST_TRIALS = 0.5, 0.1, 10
#: If no trial takes this number of seconds, the answer gives the median time alone (chosen).
_SHORTEST_S = 2.0
#: The answer compares the times of trials only if the winner (for a cheaper trial) or the longest
#: trial (for the param on which the time depends) takes at least this number of seconds (chosen).
#: Otherwise the differences may come from the start of the kernels: the first trials import the
#: libraries, which takes up to half a minute, and later kernels are forked with these imports.
_EXPLAINED_S = 60.0
#: The answer suggests at most `_MOST_TRIALS` trials to find out which params matter: if no param
#: stands out from the noise in 60 trials, twice as many trials will hardly change that. It suggests
#: more seeds only if the winner has run on fewer than `_MOST_SEEDS` (both chosen).
_MOST_TRIALS, _MOST_SEEDS = 100, 20


@dataclass(frozen=True, kw_only=True)
class StudySoFar:
    """The data from which the answer of a study (the summary of its results) is made.

    Attributes:
        settings: Settings of the study.
        records: Records of its trials.
        best: Its best trials, as `LocatedStudy.best` returns them: the winner first, or the
            Pareto-optimal trials if there are several objectives.
        words: Words that name the study on a command line: its folder, or its name and the option
            `--storage`.
        trials: Number of trials that the study is to have. None for the number in the settings.
        by_hand: Number of trials that the user has queued (`enqueue`), in addition to `trials`.
        confirmation: Ranking of the best trials by their mean scores over several runs. None if
            no trial ran several times.
        importances: Share of each objective's variance that each param explains, by objective and
            param. None while the shares are not known. Then the answer does not mention them.
        noise: Standard deviation of each score between runs with the same params and other seeds.
            Scores whose noise is unknown are left out.
        cost: Cost of all sweeps of the study and of the study that confirms it. None if no price is
            known.
        ablated: Run id of the trial that the command `ablate` has run again, with one param at a
            time at the notebook's value. None if there is none.
        is_running: Whether a sweep runs on the study. If so, the answer suggests nothing to do.
        is_confirming: Whether a sweep runs the best trials again on fresh seeds, or is about to. If
            so, the answer suggests nothing to do, either.
        is_search: Whether the study proposes params. If not, it runs given params again.
    """

    settings: Settings
    records: Sequence[TrialRecord]
    best: Sequence[TrialRecord]
    words: Sequence[str]
    trials: int | None = None
    by_hand: int = 0
    confirmation: Confirmation | None = None
    importances: Mapping[str, Mapping[str, Importance]] | None = None
    noise: Mapping[str, float] = field(default_factory=dict)
    cost: float | None = None
    ablated: str | None = None
    is_running: bool = False
    is_confirming: bool = False
    is_search: bool = True

    @cached_property
    def completed(self) -> Sequence[TrialRecord]:
        """Records of the trials that have all scores.

        If each proposal runs on several folds of cross validation, the fold is left out of the
        params, because users do not choose it.
        """
        goals = self.settings.objective
        found = [trial for trial in self.records if all(has_score(trial, goal) for goal in goals)]
        repeat = self.settings.repeat
        if repeat is None or not repeat.by_fold:
            return found
        return [replace(trial, params=_without_fold(trial.params)) for trial in found]

    @property
    def ranked(self) -> Sequence[str]:
        """Run ids of the completed trials, the best score first.

        Of several trials with the same params, only the best one is listed.
        """
        ((name, goal),) = self.settings.objective.items()
        direction, count = goal.direction, len(self.completed)
        ranked = best_trials(self.completed, objective=name, direction=direction, count=count)
        return [trial.run_id for trial in ranked]

    @property
    def n_left(self) -> int:
        """Number of trials that would run if the user gave the command of the sweep again.

        A grid may have fewer combinations than trials were planned. With `repeat`, each proposal
        needs several trials, and none begins if fewer trials than that are left.
        """
        settings, repeat, records = self.settings, self.settings.repeat, self.records
        planned = settings.study.trials if self.trials is None else self.trials
        combinations = None
        if repeat is None and settings.study.sampler.name in ("grid", "brute_force"):
            combinations = settings.search_space.count()
        left = left_to_begin(records, trials=planned, combinations=combinations)
        are_all_final = all(record.is_final for record in records)
        if repeat is not None and left < repeat.runs and are_all_final:
            left = 0
        begun = [record for record in records if record.is_final or not record.state.has_ended]
        begun_by_hand = sum(record.by_hand for record in begun)
        return left + max(0, self.by_hand - begun_by_hand)

    @property
    def twice_as_many(self) -> int:
        """Twice the number of trials of the study, to be given as `--trials`."""
        return 2 * max(self.settings.study.trials, len(self.records))

    def goodness(self, record: TrialRecord, goal: str) -> float:
        """Return a trial's value of the objective `goal`, negated if less is better."""
        is_maximized = self.settings.objective[goal].direction == "maximize"
        return record.scores[goal] if is_maximized else -record.scores[goal]


def answer_of(study: StudySoFar) -> Insights:
    """Return the answer of a study, as data and as sentences.

    It states the best trials, which params mattered, which trials failed, what the trials took, and
    what to do next. While a sweep runs, it states neither which params mattered nor what to do.
    """
    is_analyzed = study.is_search and bool(study.completed) and not study.is_running
    mattered = [*_mattered(study)] if is_analyzed else []
    found = Insights(
        best=_best(study),
        mattered=mattered,
        region=_best_region(study, mattered) if is_analyzed else None,
        failures=_failures(study.records),
        spent=_spent(study),
        actions=(),
    )
    if not (study.is_running or study.is_confirming):
        found = replace(found, actions=[*_actions(study, found)])
    return replace(found, sentences=sentences_of(found))


def _best(study: StudySoFar) -> Winner | Front | None:
    if not study.best:
        return None
    goals = [*study.settings.objective]
    if len(goals) > 1:
        return _front(study, goals)
    (goal,) = goals
    best, confirmation = study.best[0], study.confirmation
    scores = {goal: best.scores[goal]}
    if confirmation is not None and confirmation.winner is not None:
        winner = confirmation.winner
        mean = _mean(confirmation, winner)
        return Winner(run_id=winner.run_id, params=winner.params, scores=scores, mean=mean)
    others = [trial for trial in study.completed if trial.run_id != best.run_id]
    noise = _noise(study, goal) if confirmation is None else None
    return Winner(
        run_id=best.run_id,
        params=best.params,
        scores=scores,
        noise=noise,
        n_within=None if noise is None else _n_within(study, best, others, noise),
        same_score=[trial.run_id for trial in others if trial.scores[goal] == scores[goal]],
        cheaper=_cheaper(study, best, goal),
    )


def _front(study: StudySoFar, goals: Sequence[str]) -> Front:
    ends = {}
    for goal in goals:
        end = max(study.best, key=partial(study.goodness, goal=goal))
        ends[goal] = (end.run_id, {name: end.scores[name] for name in goals})
    return Front(size=len(study.best), ends=ends)


def _mean(confirmation: Confirmation, winner: ConfirmedTrial) -> Mean:
    half_interval = None
    if winner.interval is not None:
        low, high = winner.interval
        half_interval = (high - low) / 2
    return Mean(
        mean=winner.mean or 0.0,
        half_interval=half_interval,
        runs=len(winner.scores),
        by=confirmation.repeats or "fresh seeds",
        search_score=winner.search_score,
        alike=[trial.run_id for trial in confirmation.alike],
    )


def _noise(study: StudySoFar, goal: str) -> float | None:
    """Return half the width of the 95 % interval of the score `goal` on other seeds.

    None if the noise of the score is unknown, if fewer than `_FEWEST_FOR_NOISE` trials have
    completed, or if a sweep still runs on the study.
    """
    if goal not in study.noise or len(study.completed) < _FEWEST_FOR_NOISE or study.is_running:
        return None
    return _STDS_OF_NOISE * study.noise[goal]


def _n_within(
    study: StudySoFar, winner: TrialRecord, others: Sequence[TrialRecord], noise: float
) -> int:
    """Return how many other trials have a score that is at most `noise` worse than the winner's."""
    (goal,) = study.settings.objective
    best = study.goodness(winner, goal)
    return sum(best - study.goodness(trial, goal) <= noise for trial in others)


def _cheaper(study: StudySoFar, winner: TrialRecord, goal: str) -> CheaperTrial | None:
    """Return the shortest trial whose value of the objective `goal` is nearly the winner's.

    A trial is near the winner if it loses at most a tenth (`_LOST_SHARE`) of the winner's lead over
    the first trials. Trials that needed several attempts, and retries, are left out.

    Return None if the shortest trial takes more than half of the winner's time (`_TIME_SHARE`), or
    if the winner took less than a minute (`_EXPLAINED_S`), needed several attempts, or is a retry.
    """
    if not study.completed or winner.duration_s < _EXPLAINED_S or not winner.ran_whole:
        return None
    best = study.goodness(winner, goal)
    # The lead is measured from the first trials: later ones are near the winner, because the
    # sampler has learned from the trials before.
    first = sorted(study.completed, key=lambda record: record.number)
    first = first[: max(_FIRST_TRIALS, len(first) // 4)]
    lead = best - median(study.goodness(record, goal) for record in first)
    near = [
        trial
        for trial in study.completed
        if trial.ran_whole and best - study.goodness(trial, goal) <= _LOST_SHARE * lead
    ]
    cheapest = min(near, key=lambda record: record.duration_s, default=winner)
    share = cheapest.duration_s / winner.duration_s
    if not 0 < share <= _TIME_SHARE:
        return None
    return CheaperTrial(run_id=cheapest.run_id, score=cheapest.scores[goal], time_share=share)


def _mattered(study: StudySoFar) -> Iterator[Mattered]:
    """Yield, for each objective, which params mattered for it.

    Yield nothing if the importances are not known, if fewer than two params vary, or if all trials
    have equal scores.
    """
    completed = study.completed
    params = {name for trial in completed for name in trial.params}
    n_varied = sum(
        len({repr(trial.params.get(param)) for trial in completed}) > 1 for param in params
    )
    if study.importances is None or n_varied < 2 or have_equal_scores(completed):
        return
    for goal in study.settings.objective:
        known = study.importances.get(goal, {})
        clear, pair = clear_effects(completed, goal) if known else ([], None)
        named = {
            param: importance
            for param, importance in known.items()
            if _is_large(importance) and (importance.is_clear or param in clear)
        }
        others = [importance.share for param, importance in known.items() if param not in named]
        yield Mattered(
            objective=goal,
            trials=len(completed),
            groups=_groups(named),
            others=max(others, default=None) if named else None,
            pair=_joint_pair(known) or pair,
        )


def _is_large(importance: Importance) -> bool:
    return importance.share >= _LEAST_SHARE and importance.low >= _LEAST_LOW


def _joint_pair(known: Mapping[str, Importance]) -> tuple[str, str] | None:
    """Return the two params with the largest joint shares (see `Importance.joint`).

    None if fewer than two params have a joint share of at least `_LEAST_JOINT`.
    """
    joint = [param for param in known if known[param].joint >= _LEAST_JOINT]
    if len(joint) < 2:
        return None
    first, second, *_ = sorted(joint, key=lambda param: -known[param].joint)
    return first, second


def _without_fold(params: Params) -> Params:
    return {name: value for name, value in params.items() if name != FOLD}


def _groups(named: Mapping[str, Importance]) -> list[dict[str, float]]:
    """Return the shares of params in groups, the largest share first.

    It is not known which param of a group matters most: the interval of each param's share overlaps
    that of the largest share in the group, or the share is not much smaller (`_ALIKE`).
    """
    groups: list[dict[str, float]] = []
    largest = Importance(math.inf, math.inf, math.inf)
    for param in sorted(named, key=lambda param: -named[param].share):
        found = named[param]
        if found.high < largest.low and found.share < _ALIKE * largest.share:
            groups.append({})
            largest = found
        groups[-1][param] = found.share
    return groups


def _best_region(study: StudySoFar, mattered: Sequence[Mattered]) -> Region | None:
    """Return the part of the search space with the best tenth of the completed trials.

    None with several objectives, with fewer than ten completed trials, or without a clear part.
    """
    count = max(_FEWEST_BEST, round(len(study.completed) / 10))
    if len(study.settings.objective) > 1 or count > len(study.completed) / 2:
        return None
    (goal,) = study.settings.objective
    space = study.settings.search_space
    named = {param for matter in mattered for group in matter.groups for param in group}
    sure = {param: space[param] for param in named if param in space}
    # Trials with the same score as the worst of the best trials count as best trials, too.
    least = sorted(study.goodness(record, goal) for record in study.completed)[-count]
    best = [record for record in study.completed if study.goodness(record, goal) >= least]
    return region_of(best, study.completed, sure)


def _failures(records: Sequence[TrialRecord]) -> Failures | None:
    by_reason: defaultdict[str, list[TrialRecord]] = defaultdict(list)
    for record in records:
        if record.state is TrialState.FAILED:
            by_reason[str(record.reason or record.state)].append(record)
    if not by_reason:
        return None
    ordered = sorted(by_reason.items(), key=lambda item: -len(item[1]))
    ended = [record for record in records if record.is_final]
    return Failures(
        ended=len(ended),
        groups=[_failure_group(reason, failed) for reason, failed in ordered],
        region=region_of(ordered[0][1], ended),
    )


def _failure_group(reason: str, failed: Sequence[TrialRecord]) -> FailureGroup:
    lines = [record.first_line for record in failed]
    message = mode(lines)
    first = failed[lines.index(message)].run_id
    return FailureGroup(reason=reason, count=len(failed), first=first, message=message)


def _spent(study: StudySoFar) -> Spent:
    ran = [record.duration_s for record in study.records if record.duration_s > 0]
    timed = [record for record in study.completed if record.duration_s > 0 and record.ran_whole]
    took = [record.duration_s for record in timed]
    n_completed = len(study.completed)
    found = Spent(
        trials=len(ran),
        trial_s=sum(ran) or None,
        median_s=median(took) if len(took) > 1 else None,
        cost=study.cost,
        cost_per_trial=None if study.cost is None or not n_completed else study.cost / n_completed,
    )
    if len(took) < 2 or max(took) < max(2 * min(took), _SHORTEST_S):
        return found
    driver = strongest_effect(timed, took) if max(took) >= _EXPLAINED_S else None
    return replace(found, shortest_s=min(took), longest_s=max(took), driver=driver)


def _actions(study: StudySoFar, found: Insights) -> Iterator[Action]:
    """Yield what the user can do next, the most useful action first."""
    failures, confirmation, cost = found.failures, study.confirmation, study.settings.cost
    budget = None if cost is None else cost.budget
    spent = budget if budget is not None and (study.cost or 0.0) >= budget else None
    has_completed = any(trial.state is TrialState.COMPLETED for trial in study.records)
    if failures and not has_completed and spent is None:
        yield Correct(run_id=failures.groups[0].first)
        return
    left = study.n_left
    n_missing = 0
    if confirmation is not None and not confirmation.repeats:
        n_missing = confirmation.n_missing
    if left or n_missing:
        yield Resume(left=left or n_missing, budget=spent)
    if spent is not None:  # The budget is spent. Until the user raises it, no trial can run.
        return
    if study.is_search and not left and isinstance(found.best, Winner):
        yield from _checks(study, found.best)
        yield from _wider_searches(study, found)


def _checks(study: StudySoFar, winner: Winner) -> Iterator[Action]:
    """Yield advice to run trials again, which shows whether the winner is the best, and why."""
    confirmation, mean = study.confirmation, winner.mean
    is_confirmable = study.settings.why_not_confirmed() is None
    if confirmation is None and len(study.ranked) > 1 and is_confirmable:
        yield Confirm(best=min(DEFAULT_BEST, len(study.ranked)), seeds=DEFAULT_SEEDS)
    if confirmation is None or mean is None or confirmation.repeats or confirmation.has_no_effect:
        return
    if not mean.alike:
        if study.ablated != winner.run_id:
            yield Ablate(study=shlex.join(study.words))
    elif mean.runs < _MOST_SEEDS:
        # `--confirm N` runs the N trials with the best scores again. So N has to include the winner
        # and all trials that cannot be told apart from it.
        contenders = {winner.run_id, *mean.alike}
        places = [place for place, run_id in enumerate(study.ranked, 1) if run_id in contenders]
        if len(places) == len(contenders) and places[-1] <= 2 * len(contenders):
            n_best = max(places[-1], len(confirmation.ranking))
            yield MoreSeeds(best=n_best, seeds=2 * mean.runs)


def _wider_searches(study: StudySoFar, found: Insights) -> Iterator[Action]:
    """Yield the advice to widen a range at whose end the best trials are, or to run more trials.

    Many params cannot be less than 0 or more than 1, so no wider range is suggested at these ends.
    More trials are suggested if it is unclear which params matter.
    """
    space, n_trials = study.settings.search_space, study.twice_as_many
    for part in found.region.parts if found.region else ():
        dimension = space.get(part.param)
        end = end_reached(part, dimension, study.best[0].params[part.param])
        if end is None:
            continue
        value = getattr(dimension, end)
        if value not in (0, 1):
            yield Widen(param=part.param, end=end, value=value, trials=n_trials)
            break
    is_unclear = any(not mattered.groups and not mattered.pair for mattered in found.mattered)
    if is_unclear and n_trials <= min(_MOST_TRIALS, space.count() or _MOST_TRIALS):
        yield MoreTrials(trials=n_trials)
