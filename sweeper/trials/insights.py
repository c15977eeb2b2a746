"""Define the answer of a study, the summary of its results, as data.

It names the best trial, the params that affect the score, and what to do next. The folder `answer`
computes the answer and writes its sentences. The terminal, the page, `--json` and Jupyter only show
them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from .records import Params, Value, value_text


class Importance(NamedTuple):
    """How much a param matters for a score.

    Attributes:
        share: Share of the variance of the score that the param explains.
        low: Lower bound of the 90 % interval of that share. 0 if the test of `is_clear` has failed.
        high: Upper bound of the interval.
        joint: Share of the variance that the param explains only together with other params. 0 if
            it was not measured.
        is_clear: Whether a model of the trials predicts the score from the params better than it
            would predict noise. False also if this was not tested.
    """

    share: float
    low: float
    high: float
    joint: float = 0.0
    is_clear: bool = False


class Sentence(NamedTuple):
    """A sentence of a study's answer (the summary of its results, see `Insights`).

    Attributes:
        topic: Word that is shown before the sentence, such as `best` or `next`.
        text: Sentence without the topic.
    """

    topic: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Mean:
    """Mean of a trial's score over several runs.

    Attributes:
        mean: Mean of the scores.
        half_interval: Half of the width of the mean's 95 % confidence interval. None if it is
            unknown.
        runs: Number of runs.
        by: What differs between the runs: `fresh seeds`, `seeds` or `folds`.
        search_score: Score of the trial in the search, which does not affect the ranking. None if
            there is none.
        alike: Run ids of the other trials whose means are not significantly worse than this one.
    """

    mean: float
    half_interval: float | None
    runs: int
    by: str
    search_score: float | None
    alike: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheaperTrial:
    """A trial that is nearly as good as the winner and takes at most half of its time.

    Attributes:
        run_id: Run id of the trial.
        score: Score of the trial.
        time_share: Duration of the trial as a share of the winner's duration.
    """

    run_id: str
    score: float
    time_share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Winner:
    """The best trial of a study with one objective.

    Attributes:
        run_id: Run id of the trial in the search.
        params: Params of the trial.
        scores: Score of the trial for each objective.
        mean: Mean of several runs, if trials were compared by it. None if they were compared by the
            scores of single runs.
        noise: Half of the width of the interval that contains the scores of 95 of 100 runs with
            the same params. None if it is not known, or if trials were compared by means.
        n_within: Number of other trials whose score is worse by no more than the noise. None if the
            noise is not known.
        same_score: Run ids of other trials with the same score.
        cheaper: Trial that is nearly as good and takes much less time. None if there is none.
    """

    run_id: str
    params: Params
    scores: Mapping[str, float]
    mean: Mean | None = None
    noise: float | None = None
    n_within: int | None = None
    same_score: Sequence[str] = ()
    cheaper: CheaperTrial | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Front:
    """The Pareto-optimal trials of a study with several objectives.

    Attributes:
        size: Number of Pareto-optimal trials.
        ends: By objective, the trial with the best score for it: its run id and all its scores.
    """

    size: int
    ends: Mapping[str, tuple[str, Mapping[str, float]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mattered:
    """The params that mattered for a score.

    Attributes:
        objective: Name of the score.
        trials: Number of completed trials.
        groups: Params that explain at least a tenth of the variance, with their shares, the largest
            share first. Which param of a group matters most is not known, because their shares are
            too similar or too uncertain. Empty if no param has an effect that is larger than the
            noise.
        others: Largest share among the params that are in no group. None if there are no groups, or
            if all params are in one.
        pair: Two params that act together: the best value of one depends on the other. None if
            there is no such pair.
    """

    objective: str
    trials: int
    groups: Sequence[Mapping[str, float]] = ()
    others: float | None = None
    pair: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberRange:
    """The range of a param's values in some trials, such as the best tenth.

    Attributes:
        param: Name of the param.
        low: Smallest value in these trials.
        high: Largest value in these trials.
        tried_low: Smallest value in all trials.
        tried_high: Largest value in all trials.
        open_end: `low` or `high` if at most a tenth of all trials have values beyond this end, so
            that better values may lie there. None if that holds for neither end, or for both.
    """

    param: str
    low: float
    high: float
    tried_low: float
    tried_high: float
    open_end: str | None = None

    @property
    def ends(self) -> tuple[float, float]:
        """Smallest and largest value of the param in the trials for which the range was made."""
        return self.low, self.high

    @property
    def tried(self) -> tuple[float, float]:
        """Smallest and largest value of the param in all trials."""
        return self.tried_low, self.tried_high

    def contains(self, value: Any) -> bool:
        """Return whether a value of the param is in the range."""
        return bool(self.low <= value <= self.high)


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueSet:
    """The values of a param in some trials, such as the best tenth.

    Attributes:
        param: Name of the param.
        values: Values of the param in these trials.
    """

    param: str
    values: Sequence[Value]

    def contains(self, value: Value) -> bool:
        """Return whether a value of the param is one of these values."""
        return value_text(value) in map(value_text, self.values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """A part of the search space that contains certain trials, such as the best tenth.

    Attributes:
        trials: Number of the trials for which the region was made.
        inside: Number of all trials in the region: these trials and any others.
        of: Number of all trials, in the region or not.
        parts: Ranges and values that these trials have in common, more than by chance.
    """

    trials: int
    inside: int
    of: int
    parts: Sequence[NumberRange | ValueSet]


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureGroup:
    """The failed trials with the same reason.

    Attributes:
        reason: Why the trials failed, as a value of `Reason`.
        count: Number of these trials.
        first: Run id of the first of these trials that has the most frequent message.
        message: First line of the most frequent message.
    """

    reason: str
    count: int
    first: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Failures:
    """The failed trials of a study.

    Attributes:
        ended: Number of all trials that have ended.
        groups: Failed trials by reason, the most frequent reason first.
        region: Part of the search space with the failures of the most frequent reason. None if
            these are spread over the space, or too few.
    """

    ended: int
    groups: Sequence[FailureGroup]
    region: Region | None

    @property
    def failed(self) -> int:
        """Number of failed trials."""
        return sum(group.count for group in self.groups)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """The time and money that the trials of a study took.

    Attributes:
        trials: Number of trials that have run.
        trial_s: Sum of the durations of these trials in seconds. None if no trial has run.
        median_s: Median duration of the completed trials in seconds, without those that were
            resumed or retried. None if there are fewer than two.
        shortest_s: Shortest of the durations from which `median_s` is computed. None if `median_s`
            is None, if all are below two seconds, or if the longest one is less than twice as long.
        longest_s: Longest of these durations. None if `shortest_s` is None.
        driver: Param that explains most of the variance of these durations. None if no param does,
            if all are below a minute, or if `shortest_s` is None.
        cost: Cost of all sweeps of the study. None if no price is known.
        cost_per_trial: Cost per completed trial. None if no price is known or no trial has
            completed.
    """

    trials: int
    trial_s: float | None
    median_s: float | None
    shortest_s: float | None = None
    longest_s: float | None = None
    driver: str | None = None
    cost: float | None
    cost_per_trial: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Resume:
    """Advice to give the command of the sweep again, which runs the trials that are left.

    Attributes:
        left: Number of the trials that are left.
        budget: The study's `cost.budget`, if it is spent and has to be raised first. None if not.
    """

    left: int
    budget: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Correct:
    """Advice to correct the notebook, because no trial has completed.

    Attributes:
        run_id: Run id of a failed trial, whose executed notebook shows the error.
    """

    run_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Widen:
    """Advice to widen a range, because the best trials are at one of its ends.

    Attributes:
        param: Param with the range.
        end: End of the range at which the best trials are: `low` or `high`.
        value: Value of the range at this end.
        trials: Number for `--trials`, larger than now, so that some trials run beyond this end.
    """

    param: str
    end: str
    value: float
    trials: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirm:
    """Advice to run the best trials again, each on several fresh seeds.

    Attributes:
        best: Number of trials to run again.
        seeds: Number of fresh seeds.
    """

    best: int
    seeds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MoreSeeds:
    """Advice to confirm on more seeds, because other trials may be as good as the winner.

    Attributes:
        best: Number of trials to run again.
        seeds: Number of fresh seeds for each of them.
    """

    best: int
    seeds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MoreTrials:
    """Advice to run more trials, because there are too few to tell which params mattered.

    Attributes:
        trials: Number of trials that the study should have.
    """

    trials: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ablate:
    """Advice to measure how much each param value of the confirmed winner improves the score.

    Attributes:
        study: Words that name the study on a command line, usually its folder.
    """

    study: str


Action = Resume | Correct | Widen | Confirm | MoreSeeds | MoreTrials | Ablate


@dataclass(frozen=True, slots=True, kw_only=True)
class Insights:
    """The answer of a study: its winner, which params mattered, and advice what to do next.

    Attributes:
        best: The winner, or the Pareto-optimal trials. None if no trial has completed.
        mattered: Params that mattered, for each objective for which this is known.
        region: Part of the search space with the best tenth of the trials. None if these are
            spread over the space or too few, or if there are several objectives.
        failures: The failed trials. None if no trial has failed.
        spent: Time and money that the trials took.
        actions: Advice what to do next, the most useful action first.
        sentences: The answer in words. They contain only the first two of `actions`.
    """

    best: Winner | Front | None
    mattered: Sequence[Mattered]
    region: Region | None
    failures: Failures | None
    spent: Spent
    actions: Sequence[Action]
    sentences: Sequence[Sentence] = ()

    def to_json(self) -> dict[str, Any]:
        """Return all attributes as JSON data, which `--json` and the comparison page contain.

        Each action also has the name of its class, under the key `action`.
        """
        data = asdict(self)
        data["sentences"] = [sentence._asdict() for sentence in self.sentences]
        names = (type(action).__name__ for action in self.actions)
        for action, name in zip(data["actions"], names, strict=True):
            action["action"] = name
        return data
