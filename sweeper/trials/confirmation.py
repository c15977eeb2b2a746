"""The best trials, run again on fresh seeds: which runs there are to be, and who wins by them.

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
from .student_t import mean_of, paired_p, standard_deviation, two_sided_t

#: What a parameters file asks for that only says `confirm: {}`, and `--confirm K` without seeds.
DEFAULT_BEST, DEFAULT_SEEDS = 3, 5
#: The part of the intervals that have the true mean in them.
CONFIDENCE = 0.95
#: With fewer scores there is no spread.
_FEWEST = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfirmingRun:
    """A run that is to begin.

    Attributes:
        confirmed: the trial of the search with the same params.
        repetition: counts the seeds from 1; a seed is the same for all trials that are confirmed.
        seed: that other trials had in this repetition; None where it is the first one.
    """

    confirmed: TrialRecord
    repetition: int
    seed: int | None


@dataclass(frozen=True, kw_only=True)
class ConfirmedTrial:
    """A trial of the search with the runs that confirm it.

    Attributes:
        trial: of the search; the best of those with the same params.
        search_score: its own score, which does not count.
        runs: one for each repetition that has begun, by repetition. Of several tries at one
            repetition it is the one that completed, else the last.
        scores: of the runs that completed, by seed.
    """

    trial: TrialRecord
    search_score: float
    runs: Mapping[int, TrialRecord]
    scores: Mapping[int, float]

    @cached_property
    def mean(self) -> float | None:
        """The mean over the fresh seeds; None without a run that completed."""
        return mean_of([*self.scores.values()]) if self.scores else None

    @cached_property
    def std(self) -> float | None:
        """The standard deviation over the fresh seeds; None with fewer than two scores."""
        return standard_deviation([*self.scores.values()]) if len(self.scores) >= _FEWEST else None

    @cached_property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval of the mean by Student's t distribution.

        None with fewer than two scores, and where all are the same: a spread of 0 says that the
        seed has no effect or that the score is coarse, and not that the mean is certain.
        """
        if self.mean is None or not self.std:
            return None
        n = len(self.scores)
        half = two_sided_t(CONFIDENCE, n - 1) * self.std / math.sqrt(n)
        return self.mean - half, self.mean + half

    @property
    def is_measured(self) -> bool:
        """Whether it has a mean with a spread."""
        return len(self.scores) >= _FEWEST

    @property
    def n_failed(self) -> int:
        """How many repetitions have ended without a score."""
        return sum(run.is_final for run in self.runs.values()) - len(self.scores)

    def n_missing(self, seeds: int) -> int:
        """How many of so many repetitions have not ended."""
        return sum(not (r in self.runs and self.runs[r].is_final) for r in range(1, seeds + 1))

    def p_value(self, other: ConfirmedTrial) -> float | None:
        """How likely a difference this great is between two trials that are equally good.

        By a paired t-test over the seeds on which both have completed. None with fewer than two.
        """
        shared = self.scores.keys() & other.scores.keys()
        return paired_p([self.scores[seed] - other.scores[seed] for seed in sorted(shared)])

    def differs_from(self, other: ConfirmedTrial) -> bool:
        """Whether the seeds show which of two trials is better, at the level of 5 %."""
        p = self.p_value(other)
        return p is not None and p <= 1 - CONFIDENCE

    def to_json(self) -> dict[str, Any]:
        """What `--json` and the comparison page have of it."""
        return {
            "mean": _number(self.mean),
            "std": _number(self.std),
            "interval": None if self.interval is None else [_number(it) for it in self.interval],
            "seeds": len(self.scores),
            "failed": self.n_failed,
            "search_score": _number(self.search_score),
        }


@dataclass(frozen=True, kw_only=True)
class Confirmation:
    """What the runs on fresh seeds have come to so far.

    Attributes:
        objective: the score that decides.
        best: how many of the best trials are confirmed.
        seeds: on how many seeds each.
        is_asked: whether the study's last sweep has asked for it; else what earlier ones have run.
        candidates: the best trials of the search as it is now, at most `best`.
        ranking: those with two scores and more by their means, the best first, then the others.
        runs: all confirming trials, by number.
    """

    objective: str
    best: int
    seeds: int
    is_asked: bool
    candidates: Sequence[ConfirmedTrial]
    ranking: Sequence[ConfirmedTrial]
    runs: Sequence[TrialRecord]

    @property
    def n_missing(self) -> int:
        """How many runs of the best trials have not ended."""
        return sum(one.n_missing(self.seeds) for one in self.candidates)

    @property
    def n_wanted(self) -> int:
        """How many runs the best trials have when all have ended."""
        return len(self.candidates) * self.seeds

    @cached_property
    def winner(self) -> ConfirmedTrial | None:
        """The trial with the best mean; None while one of the best trials is not measured.

        A trial of which all runs have ended, and fewer than two completed, is left out.
        """
        if not self.candidates or not self.ranking or not self.ranking[0].is_measured:
            return None
        settled = (it.is_measured or not it.n_missing(self.seeds) for it in self.candidates)
        return self.ranking[0] if all(settled) else None

    @cached_property
    def alike(self) -> Sequence[ConfirmedTrial]:
        """The trials that the seeds do not show to be worse than the winner, by their means."""
        if self.winner is None:
            return ()
        others = (one for one in self.ranking[1:] if one.is_measured)
        return [one for one in others if not self.winner.differs_from(one)]

    @property
    def best_of_search(self) -> TrialRecord:
        """The trial with the best score of the search, where one has completed."""
        return self.candidates[0].trial

    @property
    def has_no_effect(self) -> bool:
        """Whether every trial has the same score on all seeds."""
        measured = [one for one in self.ranking if one.is_measured]
        return bool(measured) and all(one.std == 0 for one in measured)

    def of(self, record: TrialRecord) -> ConfirmedTrial | None:
        """What is known of a trial of the search; None where none of its runs has begun."""
        found = (it for it in self.ranking if it.trial.number == record.number and it.runs)
        return next(found, None)

    def winners(self, best: Sequence[TrialRecord]) -> list[TrialRecord]:
        """The best trial: the winner where there is one, else that of the search.

        Args:
            best: of the search.
        """
        return list(best) if self.winner is None else [self.winner.trial]

    def left_to_begin(self, *, search: int) -> int:
        """How many runs will still begin.

        Args:
            search: how many trials of the search have not ended.
        """
        if not self.is_asked:
            return 0
        expected = min(self.best, len(self.candidates) + search)
        begun = sum(
            repetition <= self.seeds and (run.is_final or run.state is TrialState.RUNNING)
            for one in self.candidates
            for repetition, run in one.runs.items()
        )
        return expected * self.seeds - begun

    def to_json(self) -> dict[str, Any]:
        """What `--json` and the comparison page have of it."""
        return {
            "objective": self.objective,
            "best": self.best,
            "seeds": self.seeds,
            "wanted": self.n_wanted,
            "missing": self.n_missing,
            "seed_has_no_effect": self.has_no_effect,
            "winner": None if self.winner is None else self.winner.trial.run_id,
            "indistinguishable": [one.trial.run_id for one in self.alike],
            "ranking": [self._entry(one) for one in self.ranking],
        }

    def _entry(self, one: ConfirmedTrial) -> dict[str, Any]:
        winner = self.winner
        p_value = None if winner is None or winner is one else winner.p_value(one)
        runs = [
            {
                "run_id": run.run_id,
                "repetition": repetition,
                "seed": run.seed,
                "state": str(run.state),
                "score": _number(one.scores.get(run.seed)) if _has_score(run) else None,
                "notebook": display_path(run.notebook),
            }
            for repetition, run in sorted(one.runs.items())
        ]
        return {"run_id": one.trial.run_id, **one.to_json(), "p_value": p_value, "runs": runs}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfirmPlan:
    """What a study is to confirm.

    Attributes:
        best: how many of its best trials; None where it is not asked to.
        seeds: on how many fresh seeds each.
    """

    objective: str
    direction: str
    best: int | None = None
    seeds: int | None = None

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Self | None:
        """The plan in settings as plain data; None with several objectives.

        Args:
            settings: as a study stores them, because reading their model takes long.
        """
        objectives = settings.get("objective", {})
        if len(objectives) != 1:
            return None
        ((name, goal),) = objectives.items()
        confirm = settings.get("confirm")
        if confirm is None:
            return cls(objective=name, direction=goal["direction"])
        best, seeds = confirm.get("best", DEFAULT_BEST), confirm.get("seeds", DEFAULT_SEEDS)
        return cls(objective=name, direction=goal["direction"], best=best, seeds=seeds)

    def confirmation(self, records: Iterable[TrialRecord]) -> Confirmation | None:
        """What has been confirmed; None where nothing is, and nothing is to be.

        Args:
            records: of all trials of the study, in any order.
        """
        records = list(records)
        runs = [record for record in records if record.confirms is not None]
        if self.best is None and not runs:
            return None
        runs.sort(key=lambda run: run.number)
        by_params: dict[object, list[TrialRecord]] = {}
        for run in runs:
            by_params.setdefault(_key(run.params), []).append(run)
        best = len(by_params) if self.best is None else self.best
        seeds = max(run.repetition or 0 for run in runs) if self.seeds is None else self.seeds
        candidates: dict[object, ConfirmedTrial] = {}
        others: dict[object, ConfirmedTrial] = {}
        for trial in self._by_score(records):
            if len(candidates) == best and not by_params:
                break  # most studies have many more trials than are confirmed
            key = _key(trial.params)
            if key not in candidates and key not in others:
                kind = candidates if len(candidates) < best else others
                kind[key] = self._confirmed(trial, by_params.pop(key, ()))
        measured = [*candidates.values(), *(it for it in others.values() if it.is_measured)]
        return Confirmation(
            objective=self.objective,
            best=best,
            seeds=seeds,
            is_asked=self.best is not None,
            candidates=list(candidates.values()),
            ranking=sorted(measured, key=self._rank),
            runs=runs,
        )

    def next_run(self, records: Iterable[TrialRecord]) -> ConfirmingRun | None:
        """The run that is to begin next; None when all have begun, or there are to be none.

        Each repetition begins for all trials before the next one, so that a sweep that is stopped
        has compared them on the same seeds.
        """
        found = self.confirmation(records)
        if found is None or not found.is_asked:
            return None
        for repetition in range(1, found.seeds + 1):
            same = [run for run in found.runs if run.repetition == repetition]
            seed = same[0].seed if same else None
            for one in found.candidates:
                if repetition not in one.runs:
                    return ConfirmingRun(confirmed=one.trial, repetition=repetition, seed=seed)
        return None

    def _by_score(self, records: Iterable[TrialRecord]) -> list[TrialRecord]:
        """The completed trials of the search, the best first."""
        scored = [
            record
            for record in records
            if record.confirms is None and _has_score(record) and self.objective in record.scores
        ]
        return sorted(scored, key=lambda it: (self._loss(it.scores[self.objective]), it.number))

    def _confirmed(self, trial: TrialRecord, runs: Iterable[TrialRecord]) -> ConfirmedTrial:
        kept: dict[int, TrialRecord] = {}
        for run in runs:  # by number
            before = kept.get(run.repetition or 0)
            if before is None or not _has_score(before):
                kept[run.repetition or 0] = run
        return ConfirmedTrial(
            trial=trial,
            search_score=trial.scores[self.objective],
            runs=kept,
            scores={
                run.seed: run.scores[self.objective] for run in kept.values() if _has_score(run)
            },
        )

    def _loss(self, score: float) -> float:
        return -score if self.direction == "maximize" else score

    def _rank(self, one: ConfirmedTrial) -> tuple[bool, float, int]:
        if not one.is_measured or one.mean is None:
            return True, self._loss(one.search_score), one.trial.number
        return False, self._loss(one.mean), one.trial.number


def left_to_begin(
    records: Iterable[TrialRecord], confirmation: Confirmation | None, *, trials: int
) -> int:
    """How many trials of a study will still begin, those that confirm the best ones included.

    Args:
        records: of all trials of the study.
        trials: how many the search has in total.
    """
    search = [record for record in records if record.confirms is None]
    n_running = sum(record.state is TrialState.RUNNING for record in search)
    left = max(0, trials - sum(record.is_final for record in search))
    confirming = 0 if confirmation is None else confirmation.left_to_begin(search=left)
    return max(0, left - n_running) + confirming


def _has_score(record: TrialRecord) -> bool:
    return record.state is TrialState.COMPLETED


def _key(params: Params) -> object:
    """The same for trials with the same params."""
    return tuple(sorted((name, repr(value)) for name, value in params.items()))


def _number(value: float | None) -> float | str | None:
    """A number as JSON has it: the infinities, which JSON lacks, as text."""
    return value if value is None or math.isfinite(value) else str(value)
