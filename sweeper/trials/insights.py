"""Define the answer of a study as data: who has won, what mattered, where to look next.

`answer` makes it and words it. Terminal, page, `--json` and Jupyter only show it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, NamedTuple

from .records import Params, Value, value_text


class Importance(NamedTuple):
    """How much a param matters for a score.

    Attributes:
        share: Share of the variance of the score that the param explains.
        low: Lower bound of that share in nine of ten bootstrap samples of the trials.
        high: Upper bound of that share in nine of ten bootstrap samples of the trials.
    """

    share: float
    low: float
    high: float


class Sentence(NamedTuple):
    """A sentence of the answer.

    Attributes:
        topic: Word in front of it, such as `best` or `next`.
        text: The sentence.
    """

    topic: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Mean:
    """Mean of a trial's score over several runs.

    Attributes:
        mean: The mean.
        half_interval: Half of its 95 % interval. None if it is not known.
        runs: Number of runs.
        by: What differs between the runs: `fresh seeds`, `seeds` or `folds`.
        search_score: Score of the trial in the search, which does not count. None if it has none.
        alike: Run ids of trials that cannot be told apart from it.
    """

    mean: float
    half_interval: float | None
    runs: int
    by: str
    search_score: float | None
    alike: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheaperTrial:
    """A trial that is nearly as good as the winner and takes less than half of its time.

    Attributes:
        run_id: Run id of the trial.
        score: Its score.
        time_share: Its duration as a share of the winner's duration.
    """

    run_id: str
    score: float
    time_share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Winner:
    """The best trial.

    Attributes:
        run_id: Run id of the trial in the search.
        params: Its params.
        scores: Its score for each objective.
        mean: Mean of its runs, if that has decided. None if the score of a single run has decided.
        same_score: Run ids of other trials with the same score.
        cheaper: A trial that is nearly as good and much cheaper. None if there is none.
    """

    run_id: str
    params: Params
    scores: Mapping[str, float]
    mean: Mean | None = None
    same_score: Sequence[str] = ()
    cheaper: CheaperTrial | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Front:
    """The Pareto-optimal trials of a study with several objectives.

    Attributes:
        size: Number of these trials.
        ends: For each objective the trial that is best in it: its run id and all its scores.
    """

    size: int
    ends: Mapping[str, tuple[str, Mapping[str, float]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mattered:
    """What mattered for a score.

    Attributes:
        objective: Name of the score.
        trials: Number of completed trials.
        groups: Params with at least a tenth of the variance, the largest share first. The intervals
            of the params in a group overlap, so their order is not known. Empty if no param has an
            effect that is larger than the noise.
        others: Largest share of the other params. None if no param is in a group, or all are.
        pair: Two params that act together: the best value of one depends on the other. None if no
            pair does.
    """

    objective: str
    trials: int
    groups: Sequence[Mapping[str, float]] = ()
    others: float | None = None
    pair: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberRange:
    """A range of a param's values that some trials have in common.

    Attributes:
        param: Name of the param.
        low: Smallest value of these trials.
        high: Largest value of these trials.
        tried_low: Smallest value of all trials.
        tried_high: Largest value of all trials.
        open_end: `low` or `high` if this end of the range is an end of the search space and numbers
            beyond it are possible. None if no end is.
    """

    param: str
    low: float
    high: float
    tried_low: float
    tried_high: float
    open_end: str | None = None

    @property
    def ends(self) -> tuple[float, float]:
        """Smallest and largest value of these trials."""
        return self.low, self.high

    @property
    def values(self) -> Sequence[Value]:
        """Both ends."""
        return self.ends

    @property
    def tried(self) -> tuple[float, float]:
        """Smallest and largest value of all trials."""
        return self.tried_low, self.tried_high

    def contains(self, value: Any) -> bool:
        """Return whether a value of the param is in the range."""
        return bool(self.low <= value <= self.high)


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueSet:
    """Values of a param that some trials have in common.

    Attributes:
        param: Name of the param.
        values: Values of these trials.
    """

    param: str
    values: Sequence[Value]
    open_end: ClassVar[None] = None

    def contains(self, value: Value) -> bool:
        """Return whether a value of the param is one of them."""
        return value_text(value) in map(value_text, self.values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """A part of the search space in which certain trials are.

    Attributes:
        trials: Number of these trials, such as the best tenth or those that failed.
        inside: Number of all trials in the region.
        of: Number of all trials.
        parts: Ranges and values that these trials have in common. They would not have them by
            chance.
    """

    trials: int
    inside: int
    of: int
    parts: Sequence[NumberRange | ValueSet]


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureGroup:
    """The failed trials with the same reason.

    Attributes:
        reason: Why they failed, as a `Reason`.
        count: Number of these trials.
        first: Run id of the first of them with the most frequent message.
        message: The most frequent message, its first line.
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
        groups: The failed trials by reason, the most frequent reason first.
        region: Where the trials with the most frequent reason are. None if they are everywhere.
    """

    ended: int
    groups: Sequence[FailureGroup]
    region: Region | None

    @property
    def failed(self) -> int:
        """Number of the failed trials."""
        return sum(group.count for group in self.groups)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What the trials of a study took.

    Attributes:
        trials: Number of trials that have run.
        trial_s: Sum of their durations. None if no trial has run.
        median_s: Median duration of the completed trials. None if there are fewer than two.
        cost: Cost of all sweeps. None if no price is known.
        cost_per_trial: Cost per completed trial. None without a price or such a trial.
    """

    trials: int
    trial_s: float | None
    median_s: float | None
    cost: float | None
    cost_per_trial: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Resume:
    """Give the same command again: it runs the trials that are left."""

    left: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Correct:
    """Correct the notebook, because no trial has completed. Its first error is in a notebook."""

    run_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveOut:
    """Leave a region out of the space, because most trials in it fail."""

    region: Region


@dataclass(frozen=True, slots=True, kw_only=True)
class Widen:
    """Widen a range, because the best trials are at one of its ends: `low` or `high`."""

    param: str
    end: str
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirm:
    """Run the best trials again on fresh seeds."""

    best: int
    runs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MoreSeeds:
    """Confirm on more seeds, because the winner cannot be told apart from other trials."""

    best: int
    seeds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MoreTrials:
    """Run more trials, because too few say what mattered."""

    trials: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ablate:
    """Measure what each value of the confirmed winner improves."""

    study: str


Action = Resume | Correct | LeaveOut | Widen | Confirm | MoreSeeds | MoreTrials | Ablate


@dataclass(frozen=True, slots=True, kw_only=True)
class Insights:
    """The answer of a study.

    Attributes:
        best: The winner, or the Pareto-optimal trials. None if no trial has completed.
        mattered: What mattered, for each objective for which it is known.
        region: Where the best tenth of the trials are. None if they are everywhere.
        failures: The failed trials. None if none has failed.
        spent: What the trials took.
        actions: What to do next, the most useful action first.
        sentences: All of this in words.
    """

    best: Winner | Front | None
    mattered: Sequence[Mattered]
    region: Region | None
    failures: Failures | None
    spent: Spent
    actions: Sequence[Action]
    sentences: Sequence[Sentence] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the object that `--json` and the page contain: the data and the sentences."""
        data = asdict(self)
        data["sentences"] = [sentence._asdict() for sentence in self.sentences]
        names = (type(action).__name__ for action in self.actions)
        for action, name in zip(data["actions"], names, strict=True):
            action["action"] = name
        return data
