"""The best trials of a search, run again on fresh seeds: which they are, and who wins by them.

The best score of a search is the best of many noisy ones, so it is too good on average (the
winner's curse), and the trial that has it need not be the best one. Scores of runs that were not
chosen by their scores have no such bias: only they count here, never the score of the search.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

from .paths import display_path
from .records import Params, TrialRecord, TrialState

#: What a parameters file asks for that only says `confirm: {}`, and `--confirm K` without seeds.
DEFAULT_BEST, DEFAULT_SEEDS = 3, 5
#: The part of the intervals that have the true mean in them.
CONFIDENCE = 0.95


@dataclass(frozen=True, kw_only=True)
class ConfirmedTrial:
    """A trial of the search with the runs that have its params.

    Attributes:
        run_id: of the trial in the search.
        search_score: its score there, which does not count; None for params of an ablation.
        runs: of the confirming study, by seed; of several tries at a seed the one that completed,
            else the last.
        scores: of the runs that completed, by seed.
        is_complete: whether it has a score on each seed.
    """

    run_id: str
    params: Params
    search_score: float | None
    runs: Mapping[int, TrialRecord]
    scores: Mapping[int, float]
    is_complete: bool

    @cached_property
    def mean(self) -> float | None:
        """The mean over the fresh seeds; None without a run that completed."""
        from statistics import fmean  # imported here, as it takes a tenth of the command `status`

        return fmean(self.scores.values()) if self.scores else None

    @cached_property
    def std(self) -> float | None:
        """The standard deviation over the fresh seeds; None with fewer than two scores."""
        from statistics import stdev

        return stdev(self.scores.values()) if len(self.scores) > 1 else None

    @cached_property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval of the mean by Student's t distribution.

        None with fewer than two scores, and where all are the same: a spread of 0 says that the
        seed has no effect or that the score is coarse, and not that the mean is certain.
        """
        return interval_of([*self.scores.values()]) if self.std else None

    def differs_from(self, other: ConfirmedTrial) -> bool:
        """Whether the seeds show which of two complete trials is better, at the level of 5 %.

        They do where 0 is outside the 95 % interval of the differences on the same seeds.
        """
        low, high = interval_of([score - other.scores[seed] for seed, score in self.scores.items()])
        return not low <= 0 <= high

    def to_json(self) -> dict[str, Any]:
        """What `--json` and the comparison page have of it."""
        return {
            "mean": self.mean,
            "std": self.std,
            "interval": self.interval and list(self.interval),
            "seeds": len(self.scores),
            "search_score": self.search_score,
        }


@dataclass(frozen=True, kw_only=True)
class Confirmation:
    """What the runs of the best trials on fresh seeds have come to so far.

    Attributes:
        study: that runs them.
        objective: the score that decides.
        seeds: the fresh ones, the same for all trials.
        ranking: the trials with a score on each seed by their means, the best first; then the
            others by their scores in the search.
        sign: 1 where great scores are good, else -1.
        ablated: of an ablation the run id of the trial that the others differ from in one param;
            None where trials of a search are confirmed.
        repeats: `seeds` or `folds` where the study itself is a search that repeats its proposals;
            the ranking then has those with all their runs.
    """

    study: str
    objective: str
    seeds: Sequence[int]
    ranking: Sequence[ConfirmedTrial]
    sign: int = 1
    ablated: str | None = None
    repeats: str | None = None

    @classmethod
    def of(cls, study: str, plan: Mapping[str, Any], records: Iterable[TrialRecord]) -> Self:
        """What the records of a confirming study say.

        Args:
            plan: as `plan_of` makes it.
        """
        name, seeds = plan["objective"], list(plan["seeds"])
        runs: dict[object, dict[int, TrialRecord]] = {}
        for record in records:  # by number, so a retry comes after what it tries again
            if record.seed in seeds:
                keep_run(runs.setdefault(_key(record.params), {}), record.seed, record, name)
        trials = []
        for trial in plan["trials"]:
            own = runs.get(_key(trial["params"]), {})
            scores = {seed: run.scores[name] for seed, run in own.items() if has_score(run, name)}
            trials.append(
                ConfirmedTrial(
                    run_id=trial["run_id"],
                    params=trial["params"],
                    search_score=trial["score"],
                    runs=own,
                    scores=scores,
                    is_complete=len(scores) == len(seeds),
                )
            )
        sign = 1 if plan["direction"] == "maximize" else -1
        complete = [trial for trial in trials if trial.is_complete]
        complete.sort(key=lambda trial: -sign * (trial.mean or 0.0))
        others = [trial for trial in trials if not trial.is_complete]
        return cls(
            study=study,
            objective=name,
            seeds=seeds,
            ranking=[*complete, *others],
            sign=sign,
            ablated=plan.get("ablated"),
        )

    @property
    def n_wanted(self) -> int:
        """How many runs there are to be."""
        return len(self.ranking) * len(self.seeds)

    @property
    def n_missing(self) -> int:
        """How many of them have not ended."""
        ended = (run.is_final for trial in self.ranking for run in trial.runs.values())
        return self.n_wanted - sum(ended)

    @cached_property
    def winner(self) -> ConfirmedTrial | None:
        """The trial with the best mean of those with every seed; None until all runs have ended."""
        is_decided = self.n_missing == 0 and bool(self.ranking) and self.ranking[0].is_complete
        return self.ranking[0] if is_decided else None

    @cached_property
    def alike(self) -> Sequence[ConfirmedTrial]:
        """The trials that the seeds do not show to be worse than the winner, by their means."""
        if self.winner is None:
            return ()
        others = (trial for trial in self.ranking[1:] if trial.is_complete)
        return [trial for trial in others if not self.winner.differs_from(trial)]

    @cached_property
    def worths(self) -> Mapping[str, tuple[float, float]]:
        """What the ablated trial's value of each param is worth, the most valuable first.

        By what differs in a trial: the 95 % interval of the ablated one's mean gain over it on the
        same seeds, positive where that one is better.
        """
        complete = {trial.run_id: trial.scores for trial in self.ranking if trial.is_complete}
        ablated = complete.pop(self.ablated, None) if self.ablated else None
        if ablated is None:
            return {}
        found = {}
        for change, scores in complete.items():
            gains = [self.sign * (ablated[seed] - score) for seed, score in scores.items()]
            found[change] = interval_of(gains)
        most_valuable_first = sorted(found, key=lambda change: -sum(found[change]))
        return {change: found[change] for change in most_valuable_first}

    def gain_over(self, other: Confirmation) -> tuple[float, float] | None:
        """The 95 % interval of the winner's mean gain over that of another study on the seeds that
        both have, positive where this one is better.

        None without two winners by one objective and two such seeds, and where no seed changes a
        score: the noise is unknown.
        """
        ours, theirs = self.winner, other.winner
        if ours is None or theirs is None:
            return None
        if (self.objective, self.sign) != (other.objective, other.sign):
            return None
        seeds = ours.scores.keys() & theirs.scores.keys()
        if len(seeds) < 2 or not (ours.std or theirs.std):
            return None
        gains = [self.sign * (ours.scores[seed] - theirs.scores[seed]) for seed in seeds]
        return interval_of(gains)

    @property
    def decides(self) -> bool:
        """Whether its winner is the best trial of its study, also where there is none yet."""
        return self.repeats is None or self.winner is not None

    @property
    def won_by(self) -> str:
        """What the best trial has won by, as `--json` says it."""
        if self.winner is None:
            return "search_score"
        return "confirmed_mean" if self.repeats is None else "mean"

    @property
    def has_no_effect(self) -> bool:
        """Whether every trial with a spread has the same score on all seeds."""
        spreads = [trial.std for trial in self.ranking if trial.std is not None]
        return bool(spreads) and not any(spreads)

    @property
    def own_best(self) -> list[TrialRecord]:
        """The winner's first run, in the confirming study; empty where nobody has won."""
        return [] if self.winner is None else [*self.winner.runs.values()][:1]

    def best_of(
        self, search: Iterable[TrialRecord], best: Sequence[TrialRecord]
    ) -> list[TrialRecord]:
        """The winner in the search; where nobody has won, the best by score."""
        if self.winner is None:
            return list(best)
        return [record for record in search if record.run_id == self.winner.run_id]

    def to_json(self) -> dict[str, Any]:
        """What `--json` and the comparison page have of it."""
        return {
            "study": self.study,
            "objective": self.objective,
            "seeds": len(self.seeds),
            "wanted": self.n_wanted,
            "missing": self.n_missing,
            "seed_has_no_effect": self.has_no_effect,
            "winner": None if self.winner is None else self.winner.run_id,
            "indistinguishable": [trial.run_id for trial in self.alike],
            "ranking": [self._entry(trial) for trial in self.ranking],
            "ablated": self.ablated,
            "repeats": self.repeats,
            "worths": {
                change: {"gain": sum(interval) / 2, "interval": list(interval)}
                for change, interval in self.worths.items()
            },
        }

    def _entry(self, trial: ConfirmedTrial) -> dict[str, Any]:
        runs = [
            {
                "run_id": trial.runs[seed].run_id,
                "seed": seed,
                "state": str(trial.runs[seed].state),
                "score": trial.scores.get(seed),
                "notebook": display_path(trial.runs[seed].notebook),
            }
            for seed in self.seeds
            if seed in trial.runs
        ]
        return {"run_id": trial.run_id, **trial.to_json(), "runs": runs}


def plan_of(
    trials: Iterable[TrialRecord], seeds: Sequence[int], *, objective: str, direction: str
) -> dict[str, Any]:
    """What a confirming study stores of what it is to run, as JSON."""
    return {
        "objective": objective,
        "direction": direction,
        "seeds": list(seeds),
        "trials": [
            {
                "run_id": trial.run_id,
                "params": dict(trial.params),
                "score": trial.scores[objective],
            }
            for trial in trials
        ],
    }


def confirmed_runs(plan: Mapping[str, Any]) -> list[tuple[dict[str, Any], int]]:
    """Params and seed of all runs of a plan; a seed for all trials before the next one."""
    return [(trial["params"], seed) for seed in plan["seeds"] for trial in plan["trials"]]


def best_trials(
    records: Iterable[TrialRecord], *, objective: str, direction: str, count: int
) -> list[TrialRecord]:
    """The completed trials with the best scores, the best first; one for the same params."""
    sign = -1 if direction == "maximize" else 1
    scored = [record for record in records if has_score(record, objective)]
    scored.sort(key=lambda record: (sign * record.scores[objective], record.number))
    by_params: dict[object, TrialRecord] = {}
    for record in scored:
        by_params.setdefault(_key(record.params), record)
    return [*by_params.values()][:count]


def interval_of(values: Sequence[float]) -> tuple[float, float]:
    """The 95 % interval of the mean of two values or more, by Student's t distribution."""
    from statistics import fmean, stdev

    from scipy.special import stdtrit  # its quantiles; scipy.stats is imported in ten times as long

    t = float(stdtrit(len(values) - 1, (1 + CONFIDENCE) / 2))
    mean, half = fmean(values), t * stdev(values) / math.sqrt(len(values))
    return mean - half, mean + half


def keep_run(runs: dict[int, TrialRecord], place: int, record: TrialRecord, name: str) -> None:
    """Keep a run at its seed or fold, unless an earlier try there has a score."""
    if place not in runs or not has_score(runs[place], name):
        runs[place] = record


def has_score(record: TrialRecord, objective: str) -> bool:
    """Whether a trial has a score that a mean can be made of."""
    is_completed = record.state is TrialState.COMPLETED
    return is_completed and math.isfinite(record.scores[objective])


def _key(params: Params) -> object:
    """The same for trials with the same params."""
    return tuple(sorted((name, repr(value)) for name, value in params.items()))
