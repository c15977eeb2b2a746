"""Group the trials of a search that runs each proposal several times, and compare the means.

A proposal is the params that the sampler has chosen for these runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf, sqrt
from statistics import fmean
from typing import Any

from .confirmation import Confirmation, ConfirmedTrial, has_score, keep_run
from .paths import run_id_of
from .records import Params, TrialRecord

#: Name of the notebook's variable that gets the number of the fold.
FOLD = "fold"
#: Value of `by` in a plan if the repeats of a proposal run on different folds.
FOLDS = "folds"
#: Confidence with which a one-sided t test must show that a proposal is worse than the best one
#: (chosen).
_LEVEL = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatPlan:
    """Seeds or folds on which a search with the setting `repeat` runs each set of params.

    Attributes:
        by: `seeds` or `folds`.
        values: The seeds or folds, in the order of the runs.
        objective: Name of the score by which the sets of params are compared.
        direction: `maximize` or `minimize`.
    """

    by: str
    values: Sequence[int]
    objective: str
    direction: str

    @property
    def by_fold(self) -> bool:
        """Whether the runs of a proposal differ in their fold, and not in their seed."""
        return self.by == FOLDS


class Repeats:
    """The proposals of a search that runs each proposal several times, on several seeds or folds.

    A proposal is a set of params that the sampler has chosen, or that was queued.

    Args:
        plan: Seeds or folds of the runs, and the score.
        records: Records of the study's trials, in the order of their numbers.

    Attributes:
        proposals: Proposals by the number of their first run.
    """

    def __init__(self, plan: RepeatPlan, records: Iterable[TrialRecord]) -> None:
        self.plan = plan
        self.sign = 1 if plan.direction == "maximize" else -1
        self.by_fold = plan.by_fold
        name = plan.objective
        params: dict[int, Params] = {}
        runs: dict[int, dict[int, TrialRecord]] = {}
        for record in records:
            own: dict[str, Any] = dict(record.params)
            if self.by_fold and FOLD not in own:  # The trial began before the study had folds.
                continue
            place = int(own.pop(FOLD)) if self.by_fold else record.seed
            params.setdefault(record.proposal, own)
            keep_run(runs.setdefault(record.proposal, {}), place, record, name)
        self.proposals: dict[int, ConfirmedTrial] = {}
        for number, by_place in runs.items():
            self.proposals[number] = ConfirmedTrial.of_runs(
                run_id_of(number),
                params[number],
                by_place,
                objective=name,
                places=plan.values,
            )

    @property
    def ranking(self) -> list[ConfirmedTrial]:
        """Proposals (sets of params) with a score for each seed or fold, the best mean first."""
        complete = [proposal for proposal in self.proposals.values() if proposal.is_complete]
        return sorted(complete, key=self._worth)

    def contenders(self, count: int) -> list[ConfirmedTrial]:
        """Return the proposals (sets of params) that may be among the best in the end.

        These are the best of the complete proposals, which have a score for each seed or fold, and
        all others that are not significantly worse than the best one. A proposal with a run that
        has ended for good without a score is left out until that run is retried.

        Args:
            count: Largest number of complete proposals to return.
        """
        found = self.ranking[:count]
        for proposal in self.proposals.values():
            if self._may_be_completed(proposal) and not self.has_lost(proposal):
                found.append(proposal)
        return found

    def _may_be_completed(self, proposal: ConfirmedTrial) -> bool:
        if proposal.is_complete:
            return False
        runs, name = proposal.runs.values(), self.plan.objective
        return all(has_score(run, name) or not run.is_final for run in runs)

    def has_lost(self, proposal: ConfirmedTrial) -> bool:
        """Return whether a proposal (a set of params) is significantly worse than the best one.

        The two are compared on the seeds or folds that both have run, by a one-sided t test at the
        5 % level. The variance of the test is that of the differences to the best proposal, pooled
        over all proposals. So one run of a proposal can be enough.
        """
        gaps = self._gaps(proposal)
        return bool(gaps) and fmean(gaps) > self._least_gap / len(gaps) ** 0.5

    @cached_property
    def _least_gap(self) -> float:
        """Smallest significant difference between the scores of two runs on the same seed or fold.

        One is a run of the best proposal, the other one a run of another proposal. Infinite if the
        variance of these differences is unknown.
        """
        from scipy.special import stdtrit

        squares, freedom = 0.0, 0
        for proposal in self.proposals.values():
            gaps = self._gaps(proposal)
            squares += sum((gap - fmean(gaps)) ** 2 for gap in gaps)
            freedom += max(len(gaps) - 1, 0)
        if freedom == 0:
            return inf
        return float(stdtrit(freedom, _LEVEL)) * sqrt(squares / freedom)

    def value(self, proposal: ConfirmedTrial) -> float | None:
        """Return the mean score of a proposal for the sampler. None if it has no score yet.

        If the scores of some folds are missing, the mean is estimated: it is the best proposal's
        mean, changed by the mean difference on the folds for which both have a score.
        """
        gaps = self._gaps(proposal)
        if not self.by_fold or proposal.is_complete or not gaps:
            return proposal.mean
        assert self._best is not None and self._best.mean is not None, "the best has scores"
        return self._best.mean - self.sign * fmean(gaps)

    def confirmation(self, study: str) -> Confirmation:
        """Return the ranking as a `Confirmation`, which page, table and `--json` can show.

        Args:
            study: Name of the study.
        """
        return Confirmation(
            study=study,
            objective=self.plan.objective,
            seeds=self.plan.values,
            ranking=self.ranking,
            sign=self.sign,
            repeats=self.plan.by,
        )

    @cached_property
    def _best(self) -> ConfirmedTrial | None:
        """The proposal with the best mean among those with the most scores."""
        scored = [proposal for proposal in self.proposals.values() if proposal.scores]
        return min(
            scored,
            key=lambda proposal: (-len(proposal.scores), self._worth(proposal)),
            default=None,
        )

    def _worth(self, proposal: ConfirmedTrial) -> float:
        return -self.sign * (proposal.mean or 0.0)

    def _gaps(self, proposal: ConfirmedTrial) -> Sequence[float]:
        """Return the differences between the best proposal's scores and those of another proposal.

        There is one for each seed or fold on which both have a score. It is positive if the best
        proposal is better there. Empty for the best proposal itself.
        """
        best = self._best
        if best is None or proposal is best:
            return ()
        both = best.scores.keys() & proposal.scores.keys()
        return [self.sign * (best.scores[place] - proposal.scores[place]) for place in both]
