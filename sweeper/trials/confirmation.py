"""Compare the best trials of a search by further runs of these trials on fresh seeds.

A search chooses the trial with the best of many noisy scores. On average, this score is too good
(the winner's curse), and another trial may be better. Scores of runs on fresh seeds, which no trial
of the search had, are not biased in this way. So a confirmation uses only these scores, and ignores
the scores of the search.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

from .paths import display_path
from .records import Params, TrialRecord, TrialState, Value, short_text
from .result_html import link, linked_table

#: By default, the `DEFAULT_BEST` best trials are confirmed, each on `DEFAULT_SEEDS` fresh seeds
#: (chosen, not measured).
DEFAULT_BEST, DEFAULT_SEEDS = 3, 5
#: Confidence level of the intervals around mean scores (chosen).
CONFIDENCE = 0.95


@dataclass(frozen=True, kw_only=True)
class ConfirmedTrial:
    """Params of a trial of a search, with all runs of these params on several seeds or folds.

    In a confirmation or an ablation, the runs are on fresh seeds. In a search with the setting
    `repeat`, they are on the seeds or folds of this setting. An ablation also has trials whose
    params differ from those of the ablated trial in one param.

    Attributes:
        run_id: Run id of the trial in the search. If an ablation has changed a param, the change in
            words, such as `dropout=0.1`.
        params: Params that all runs have in common. In a search with `repeat` over folds, they lack
            the param that selects the fold.
        search_score: Score in the search, which does not affect the ranking. None if there is none:
            for params that an ablation has changed, and in a search with `repeat`.
        runs: Runs by seed or fold. If a seed or fold has several runs, such as retries: the first
            run with a score, else the last run.
        scores: Scores of the completed runs, by seed or fold.
        is_complete: Whether there is a score for each seed or fold.
    """

    run_id: str
    params: Params
    search_score: float | None
    runs: Mapping[int, TrialRecord]
    scores: Mapping[int, float]
    is_complete: bool

    @classmethod
    def of_runs(
        cls,
        run_id: str,
        params: Params,
        runs: Mapping[int, TrialRecord],
        *,
        objective: str,
        places: Sequence[int],
        search_score: float | None = None,
    ) -> Self:
        """Collect the scores of a trial's runs. Return the trial with its runs and these scores.

        Args:
            run_id: Run id of the trial in the search. If `ablate` has changed a param, the change
                in words, such as `dropout=0.1`.
            params: Params that all runs have in common.
            runs: Runs by seed or fold.
            objective: Name of the score that is collected from the runs.
            places: Seeds or folds. The trial is complete if there is a score for each of them.
                Scores on other seeds or folds are left out.
            search_score: Score in the search. None if there is none.
        """
        scores = {}
        for place, run in runs.items():
            if place in places and has_score(run, objective):
                scores[place] = run.scores[objective]
        return cls(
            run_id=run_id,
            params=params,
            search_score=search_score,
            runs=runs,
            scores=scores,
            is_complete=len(scores) == len(places),
        )

    @cached_property
    def mean(self) -> float | None:
        """Mean of the scores over the seeds or folds. None if no run has completed."""
        # Imported here, because this import would take 10 % of the time of the command `status`.
        from statistics import fmean

        return fmean(self.scores.values()) if self.scores else None

    @cached_property
    def std(self) -> float | None:
        """Standard deviation of the scores over the seeds or folds.

        None if there are fewer than two scores.
        """
        from statistics import stdev

        return stdev(self.scores.values()) if len(self.scores) > 1 else None

    @cached_property
    def interval(self) -> tuple[float, float] | None:
        """95 % confidence interval of the mean by Student's t distribution.

        None if there are fewer than two scores, or if all scores are equal. Equal scores mean that
        the seed has no effect or that the score is coarse, and not that the mean is certain.
        """
        return interval_of([*self.scores.values()]) if self.std else None

    def differs_from(self, other: ConfirmedTrial) -> bool:
        """Return whether the mean scores of two trials differ significantly, at the 5 % level.

        Both trials must have a score for each seed. This is a paired t test: 0 lies outside of
        the 95 % confidence interval of the mean difference on the same seeds.
        """
        gaps = [score - other.scores[seed] for seed, score in self.scores.items()]
        low, high = interval_of(gaps)
        return not low <= 0 <= high

    def to_json(self) -> dict[str, Any]:
        """Return the score in the search, and statistics of the scores of the runs, as JSON data.

        `--json` and the comparison page contain this object.
        """
        return {
            "mean": self.mean,
            "std": self.std,
            "interval": None if self.interval is None else list(self.interval),
            "seeds": len(self.scores),
            "search_score": self.search_score,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTrial:
    """Params that are to run on fresh seeds: those of a trial, or those with one param changed.

    Attributes:
        run_id: Run id of the trial in the search. If `ablate` has changed a param, the change in
            words, such as `dropout=0.1`.
        params: Params with which the notebook runs on each fresh seed.
        score: Score of the trial in the search. None for changed params.
    """

    run_id: str
    params: Params
    score: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RerunPlan:
    """The params and seeds that a study runs to confirm or ablate trials of a search.

    Attributes:
        objective: Name of the score by which the trials are compared.
        direction: `maximize` or `minimize`.
        seeds: Fresh seeds, the same for all trials.
        trials: Trials whose params run, each on all seeds.
        ablated: Run id of the trial whose params an ablation changes one at a time. None if the
            study confirms trials.
        of: Id of the study whose trials run again. Empty if it is not known yet.
        since: Number of the first trial that counts in the study that runs the plan. Earlier trials
            of this study ran other code or settings.
    """

    objective: str
    direction: str
    seeds: Sequence[int]
    trials: Sequence[PlannedTrial]
    ablated: str | None = None
    of: str = ""
    since: int = 0

    @classmethod
    def of_trials(
        cls, trials: Iterable[TrialRecord], seeds: Sequence[int], *, objective: str, direction: str
    ) -> Self:
        """Return a plan that runs trials of a search again on fresh seeds.

        Args:
            trials: Records of the trials.
            seeds: Fresh seeds.
            objective: Name of the score by which the trials are compared.
            direction: `maximize` or `minimize`.
        """
        return cls(
            objective=objective,
            direction=direction,
            seeds=list(seeds),
            trials=[
                PlannedTrial(
                    run_id=trial.run_id, params=dict(trial.params), score=trial.scores[objective]
                )
                for trial in trials
            ],
        )

    @property
    def runs(self) -> list[tuple[Params, int]]:
        """Params and seed of each run, in the order of the runs.

        All trials run on a seed before the first trial runs on the next seed.
        """
        return [(trial.params, seed) for seed in self.seeds for trial in self.trials]


@dataclass(frozen=True, kw_only=True)
class Confirmation:
    """A ranking of trials by their mean scores over several runs of the same params.

    The runs are on fresh seeds. In a search with `repeat`, they are on the seeds or folds of this
    setting. Runs that have not ended do not count yet.

    Attributes:
        study: Name of the study that makes these runs.
        objective: Name of the score by which trials are compared.
        seeds: Seeds of the runs, the same for all trials. Numbers of folds if `repeats` is `folds`.
        ranking: First the trials with a score for each seed, the best mean first. Then the other
            trials in the order of their search scores.
        sign: 1 if the objective is maximized, -1 if it is minimized.
        ablated: Run id of the trial whose params an ablation changes one at a time. None if the
            study confirms trials of a search.
        repeats: `seeds` or `folds` if the study is itself a search with `repeat`. Then the ranking
            contains only params with a score for each seed or fold. None for other studies.
    """

    study: str
    objective: str
    seeds: Sequence[int]
    ranking: Sequence[ConfirmedTrial]
    sign: int = 1
    ablated: str | None = None
    repeats: str | None = None

    @classmethod
    def of(cls, study: str, plan: RerunPlan, records: Iterable[TrialRecord]) -> Self:
        """Make the ranking from the records of a study that runs trials again on fresh seeds.

        Args:
            study: Name of the study.
            plan: Params and seeds of the runs.
            records: Records of the study's trials, in the order of their numbers.
        """
        name, seeds = plan.objective, list(plan.seeds)
        runs: dict[str, dict[int, TrialRecord]] = {}
        for record in records:  # A retry replaces the earlier run, unless that one has a score.
            if record.seed in seeds and record.number >= plan.since:
                keep_run(runs.setdefault(key_of(record.params), {}), record.seed, record, name)
        trials = [
            ConfirmedTrial.of_runs(
                trial.run_id,
                trial.params,
                runs.get(key_of(trial.params), {}),
                objective=name,
                places=seeds,
                search_score=trial.score,
            )
            for trial in plan.trials
        ]
        sign = 1 if plan.direction == "maximize" else -1
        complete = [trial for trial in trials if trial.is_complete]
        complete.sort(key=lambda trial: -sign * (trial.mean or 0.0))
        others = [trial for trial in trials if not trial.is_complete]
        return cls(
            study=study,
            objective=name,
            seeds=seeds,
            ranking=[*complete, *others],
            sign=sign,
            ablated=plan.ablated,
        )

    def __repr__(self) -> str:
        means = [
            f"{trial.run_id} {trial.mean:.6g}" for trial in self.ranking if trial.mean is not None
        ]
        return f"<{self.headline}: {', '.join(means) or 'no run has ended'}>"

    def _repr_html_(self) -> str:
        names = ("run_id", "mean", "95 % interval", "std", "in the search", "scores")
        return linked_table(self.headline, names, map(_row_of, self.ranking))

    @property
    def headline(self) -> str:
        """One line: name of the score, number of seeds or folds, number of missing runs if any."""
        missing = f", {self.n_missing} of {self.n_wanted} runs missing" if self.n_missing else ""
        return f"means of {self.objective} over {self._seeds}{missing}"

    @property
    def winning_mean(self) -> str | None:
        """The winner's mean in words: `mean of 0.97 over 3 folds`. None without a winner."""
        mean = None if self.winner is None else self.winner.mean
        return None if mean is None else f"mean of {mean:.6g} over {self._seeds}"

    @property
    def _seeds(self) -> str:
        return f"{len(self.seeds)} {self.repeats or 'fresh seeds'}"

    @property
    def n_wanted(self) -> int:
        """Number of wanted runs: one for each trial of the ranking and each seed or fold."""
        return len(self.ranking) * len(self.seeds)

    @property
    def n_missing(self) -> int:
        """Number of the wanted runs that have not begun, still run, or must run again."""
        n_missing = 0
        for trial in self.ranking:
            for seed in self.seeds:
                run = trial.runs.get(seed)
                if run is None or not run.is_final:
                    n_missing += 1
        return n_missing

    @cached_property
    def winner(self) -> ConfirmedTrial | None:
        """The trial with the best mean among those with a score for each seed.

        None until all runs have ended, or if no trial has all scores.
        """
        is_decided = self.n_missing == 0 and bool(self.ranking) and self.ranking[0].is_complete
        return self.ranking[0] if is_decided else None

    @property
    def contenders(self) -> Sequence[ConfirmedTrial]:
        """The winner, in a list. As long as there is none, all trials: each of them may win."""
        return self.ranking if self.winner is None else [self.winner]

    @cached_property
    def alike(self) -> Sequence[ConfirmedTrial]:
        """Trials that are not significantly worse than the winner, the best mean first.

        The winner is left out. Empty if there is no winner.
        """
        if self.winner is None:
            return ()
        others = (trial for trial in self.ranking[1:] if trial.is_complete)
        return [trial for trial in others if not self.winner.differs_from(trial)]

    @cached_property
    def worths(self) -> Mapping[str, tuple[float, float]]:
        """How much each param value of the ablated trial improves the score, largest gain first.

        The keys are changes of one param in words, such as `dropout=0.1`. Each value is the 95 %
        confidence interval of the mean difference between the ablated trial and the trial with this
        change on the same seeds. It is positive if the ablated trial is better. A change is missing
        if one of the two trials lacks a score for a seed. Empty if the study is no ablation.
        """
        complete = {trial.run_id: trial for trial in self.ranking if trial.is_complete}
        if self.ablated not in complete:
            return {}
        ablated = complete.pop(self.ablated)
        found = {change: self._gain(ablated, trial) for change, trial in complete.items()}
        most_valuable_first = sorted(found, key=lambda change: -sum(found[change]))
        return {change: found[change] for change in most_valuable_first}

    def _gain(self, better: ConfirmedTrial, other: ConfirmedTrial) -> tuple[float, float]:
        """Return the 95 % confidence interval of a trial's mean gain over another trial.

        It is computed over the seeds on which both trials have a score.
        """
        both = better.scores.keys() & other.scores.keys()
        gains = [self.sign * (better.scores[seed] - other.scores[seed]) for seed in both]
        return interval_of(gains)

    def gain_over(self, other: Confirmation) -> tuple[float, float] | None:
        """Return the confidence interval of the winner's mean gain over another study's winner.

        The interval has a confidence of 95 %, and is computed over the seeds that both studies have
        run. It is positive if this study's winner is better.

        Returns:
            The interval. None if a winner is missing, the objectives differ, or fewer than two
            seeds are the same. None also if the seed changes neither winner's score, because the
            noise is then unknown.
        """
        ours, theirs = self.winner, other.winner
        if ours is None or theirs is None:
            return None
        if (self.objective, self.sign) != (other.objective, other.sign):
            return None
        n_same = len(ours.scores.keys() & theirs.scores.keys())
        is_noisy = bool(ours.std or theirs.std)
        return self._gain(ours, theirs) if n_same > 1 and is_noisy else None

    @property
    def decides(self) -> bool:
        """Whether this ranking, and not the search score, decides which trial is the best.

        In a search with `repeat`, the search score decides until some params have a score for each
        seed or fold.
        """
        return self.repeats is None or self.winner is not None

    @property
    def won_by(self) -> str:
        """How the best trial was chosen: `search_score`, `confirmed_mean` or `mean`.

        It is `search_score` as long as there is no winner. After that, it is `confirmed_mean` for
        means over fresh seeds, and `mean` in a search with `repeat`.
        """
        if self.winner is None:
            return "search_score"
        return "confirmed_mean" if self.repeats is None else "mean"

    @property
    def has_no_effect(self) -> bool:
        """Whether the seed has no effect: each trial has the same score on all its seeds."""
        spreads = [trial.std for trial in self.ranking if trial.std is not None]
        return bool(spreads) and not any(spreads)

    @property
    def own_best(self) -> list[TrialRecord]:
        """Record of the winner's first run, in a list. Empty if there is no winner.

        The run is a trial of the study whose name is `study`.
        """
        return [] if self.winner is None else list(self.winner.runs.values())[:1]

    def best_of(
        self, search: Iterable[TrialRecord], best: Sequence[TrialRecord]
    ) -> list[TrialRecord]:
        """Return the winner's record in the search, in a list. Without a winner, return `best`.

        Args:
            search: Records of the search.
            best: Best trials of the search by their scores.
        """
        if self.winner is None:
            return list(best)
        return [record for record in search if record.run_id == self.winner.run_id]

    def to_json(self) -> dict[str, Any]:
        """Return the ranking as JSON data, which `--json` and the comparison page contain."""
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
        runs = []
        for seed in self.seeds:
            run = trial.runs.get(seed)
            if run is not None:
                entry = {
                    "run_id": run.run_id,
                    "seed": seed,
                    "state": str(run.state),
                    "score": trial.scores.get(seed),
                    "notebook": display_path(run.notebook),
                }
                runs.append(entry)
        return {"run_id": trial.run_id, **trial.to_json(), "runs": runs}


def _row_of(trial: ConfirmedTrial) -> tuple[str, list[str], list[str]]:
    """Return a trial's row of the table in Jupyter, in the form that `linked_table` accepts.

    Returns:
        Head of the row, texts of its cells, and links (as HTML) to the executed notebooks of the
        runs. The text of a link is the run's score, or its state if it has no score.
    """
    interval = None
    if trial.interval is not None:
        interval = " to ".join(map(short_text, trial.interval))
    values = (trial.mean, interval, trial.std, trial.search_score)
    links = []
    for seed, run in trial.runs.items():
        score = trial.scores.get(seed, run.state)
        links.append(link(run.notebook, short_text(score)))
    return trial.run_id, ["" if value is None else short_text(value) for value in values], links


def best_trials(
    records: Iterable[TrialRecord], *, objective: str, direction: str, count: int
) -> list[TrialRecord]:
    """Return the completed trials with the best scores, the best first.

    Of several trials with the same params, only the best one is returned.

    Args:
        records: Records of the trials.
        objective: Name of the score.
        direction: `maximize` or `minimize`.
        count: Largest number of trials to return.
    """
    sign = -1 if direction == "maximize" else 1
    scored = [record for record in records if has_score(record, objective)]
    scored.sort(key=lambda record: (sign * record.scores[objective], record.number))
    by_params: dict[str, TrialRecord] = {}
    for record in scored:
        by_params.setdefault(key_of(record.params), record)
    return [*by_params.values()][:count]


def interval_of(values: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % confidence interval of the mean of values, by Student's t distribution.

    Args:
        values: Two values or more.
    """
    from statistics import fmean, stdev

    from scipy.special import stdtrit  # Loading scipy.stats would take 10 times as long.

    t = float(stdtrit(len(values) - 1, (1 + CONFIDENCE) / 2))
    mean, half = fmean(values), t * stdev(values) / math.sqrt(len(values))
    return mean - half, mean + half


def keep_run(runs: dict[int, TrialRecord], place: int, record: TrialRecord, name: str) -> None:
    """Store a run under its seed or fold, unless a run with a score is already stored there.

    Args:
        runs: Runs by seed or fold. The function changes this mapping.
        place: Seed or fold of the run.
        record: Record of the run.
        name: Name of the score. A completed run with a finite value of it is not replaced.
    """
    if place not in runs or not has_score(runs[place], name):
        runs[place] = record


def has_score(record: TrialRecord, objective: str) -> bool:
    """Return whether a trial has completed with a finite value of the score `objective`."""
    is_completed = record.state is TrialState.COMPLETED
    return is_completed and math.isfinite(record.scores.get(objective, math.nan))


def key_of(params: Params) -> str:
    """Return a key that is equal for equal params.

    0 and 0.0 are equal, because Optuna stores a queued 0 as 0.0 where the range has floats. The
    order of the keys in a value that is a mapping does not matter, because executed notebooks store
    such keys in alphabetical order.
    """

    def exact(value: Value) -> Value:
        return int(value) if isinstance(value, float) and value.is_integer() else value

    return json.dumps({name: exact(value) for name, value in params.items()}, sort_keys=True)
