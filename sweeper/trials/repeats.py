"""Group the trials of a search that runs each proposal several times, and compare the means."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from math import inf
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


class Repeats:
    """The proposals of a search that runs each proposal several times, on several seeds or folds.

    Args:
        plan: Plan of the repeats. `by` is `seeds` or `folds`. `values` are the seeds or folds in
            the order of the runs. `objective` and `direction` name the score.
        records: Records of the study's trials, in the order of their numbers.

    Attributes:
        proposals: Proposals by the number of their first run.
    """

    def __init__(self, plan: Mapping[str, Any], records: Iterable[TrialRecord]) -> None:
        self.plan = plan
        self.sign = 1 if plan["direction"] == "maximize" else -1
        self.by_fold = plan["by"] == FOLDS
        name = plan["objective"]
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
        for number, runs_of_it in runs.items():
            kept = {place: run for place, run in runs_of_it.items() if place in plan["values"]}
            scores = {
                place: run.scores[name] for place, run in kept.items() if has_score(run, name)
            }
            self.proposals[number] = ConfirmedTrial(
                run_id=run_id_of(number),
                params=params[number],
                search_score=None,
                runs=runs_of_it,
                scores=scores,
                is_complete=len(scores) == len(plan["values"]),
            )

    @property
    def ranking(self) -> list[ConfirmedTrial]:
        """Proposals with all their runs, the best mean first."""
        complete = [proposal for proposal in self.proposals.values() if proposal.is_complete]
        return sorted(complete, key=self._worth)

    def contenders(self, count: int) -> list[ConfirmedTrial]:
        """Return the proposals that may be among the best in the end.

        These are the best complete proposals, and those that lack runs and have not lost. A
        proposal with a run that has ended without a score remains incomplete, unless that run is
        retried.

        Args:
            count: Number of complete proposals to return.
        """
        open_ = (
            proposal for proposal in self.proposals.values() if self._may_be_completed(proposal)
        )
        undecided = [proposal for proposal in open_ if not self.has_lost(proposal)]
        return [*self.ranking[:count], *undecided]

    def _may_be_completed(self, proposal: ConfirmedTrial) -> bool:
        name = self.plan["objective"]
        is_lost = any(run.is_final and not has_score(run, name) for run in proposal.runs.values())
        return not proposal.is_complete and not is_lost

    def has_lost(self, proposal: ConfirmedTrial) -> bool:
        """Return whether a proposal is significantly worse than the best one.

        The two are compared on the seeds or folds that both have run, by a one-sided t test at the
        5 % level. The variance of the test is that of the differences to the best proposal, pooled
        over all proposals. So one run of a proposal can be enough.
        """
        best = self._best
        own = () if best is None else self._gaps(proposal, best)
        return bool(own) and fmean(own) > self._least_gap / len(own) ** 0.5

    @cached_property
    def _least_gap(self) -> float:
        """Smallest significant gap between the scores of the best proposal and of one other run.

        Infinite if the variance of the gaps is unknown.
        """
        from scipy.special import stdtrit

        squares, freedom = 0.0, 0
        if (best := self._best) is None:
            return inf
        for gaps in (self._gaps(proposal, best) for proposal in self.proposals.values()):
            squares += sum((gap - fmean(gaps)) ** 2 for gap in gaps)
            freedom += max(len(gaps) - 1, 0)
        return float(stdtrit(freedom, _LEVEL)) * (squares / freedom) ** 0.5 if freedom else inf

    def value(self, proposal: ConfirmedTrial) -> float | None:
        """Return the mean of a proposal for the sampler. None if no run has completed.

        If some folds were not run, the mean is estimated as the best proposal's mean minus the mean
        difference on the folds that both have run.
        """
        best = self._best
        if not self.by_fold or proposal.is_complete or best is None or best.mean is None:
            return proposal.mean
        gaps = self._gaps(proposal, best)
        return best.mean - self.sign * fmean(gaps) if gaps else proposal.mean

    def confirmation(self, study: str) -> Confirmation:
        """Return the ranking of the means as a `Confirmation`, so that it is shown like one."""
        return Confirmation(
            study=study,
            objective=self.plan["objective"],
            seeds=self.plan["values"],
            ranking=self.ranking,
            sign=self.sign,
            repeats=self.plan["by"],
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

    def _gaps(self, proposal: ConfirmedTrial, best: ConfirmedTrial) -> Sequence[float]:
        """Return by how much the best proposal's scores are better than another proposal's.

        There is one number for each seed or fold that both have run.
        """
        if proposal is best:
            return ()
        both = best.scores.keys() & proposal.scores.keys()
        return [self.sign * (best.scores[place] - proposal.scores[place]) for place in both]
