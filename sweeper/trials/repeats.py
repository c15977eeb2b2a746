"""Proposals that run several times: what they have come to, and which may still be the best."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

from .confirmation import Confirmation, ConfirmedTrial, has_score, keep_run
from .paths import run_id_of
from .records import Params, TrialRecord

#: The name that a notebook assigns, and that gets the number of the fold.
FOLD = "fold"
#: By what the runs of a proposal differ, if by their folds.
FOLDS = "folds"
#: A proposal has lost where it is worse than the best one at this level of a one-sided t test.
_LEVEL = 0.95


class Repeats:
    """The proposals of a search that runs each several times.

    Args:
        plan: `by`, which is `seeds` or `folds`; `values`, the seeds or folds, in the order of the
            runs; `objective` and `direction`.
        records: of the study's trials, by number.

    Attributes:
        proposals: by the numbers of their first runs.
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
            place = int(own.pop(FOLD)) if self.by_fold else record.seed
            params.setdefault(record.proposal, own)
            keep_run(runs.setdefault(record.proposal, {}), place, record, name)
        self.proposals: dict[int, ConfirmedTrial] = {}
        for number, runs_of_it in runs.items():
            scores = {
                place: run.scores[name] for place, run in runs_of_it.items() if has_score(run, name)
            }
            self.proposals[number] = ConfirmedTrial(
                run_id=run_id_of(number),
                params=params[number],
                search_score=None,
                runs=runs_of_it,
                scores=scores,
                is_complete=len(scores) >= len(plan["values"]),
            )

    @property
    def ranking(self) -> list[ConfirmedTrial]:
        """The proposals with all their runs, the best mean first."""
        complete = [proposal for proposal in self.proposals.values() if proposal.is_complete]
        return sorted(complete, key=self._worth)

    def has_lost(self, proposal: ConfirmedTrial) -> bool:
        """Whether a proposal is worse than the best one on the same seeds or folds.

        A one-sided t test at the level of 5 %. Its variance is that of all differences to the best
        proposal on the same seeds, pooled over the proposals, so that one run can be enough.
        """
        from scipy.special import stdtrit

        best = self._best
        if best is None or best is proposal:
            return False
        squares, freedom = 0.0, 0
        for gaps in (self._gaps(other, best) for other in self.proposals.values()):
            squares += sum((gap - fmean(gaps)) ** 2 for gap in gaps)
            freedom += max(len(gaps) - 1, 0)
        own = self._gaps(proposal, best)
        if not own or not freedom:
            return False
        error = (squares / freedom / len(own)) ** 0.5
        return bool(fmean(own) > float(stdtrit(freedom, _LEVEL)) * error)

    def value(self, proposal: ConfirmedTrial) -> float | None:
        """The mean as samplers see it; folds that were not run would have been as for the best."""
        best = self._best
        if not self.by_fold or proposal.is_complete or best is None or best.mean is None:
            return proposal.mean
        gaps = self._gaps(proposal, best)
        return best.mean - self.sign * fmean(gaps) if gaps else proposal.mean

    def confirmation(self, study: str) -> Confirmation:
        """What the means say, as if the study had confirmed its trials."""
        return Confirmation(
            study=study,
            objective=self.plan["objective"],
            seeds=self.plan["values"],
            ranking=self.ranking,
            sign=self.sign,
            repeats=self.plan["by"],
        )

    @property
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
        """By how much the best one is better, on each seed or fold that both have."""
        if proposal is best:
            return ()
        both = best.scores.keys() & proposal.scores.keys()
        return [self.sign * (best.scores[place] - proposal.scores[place]) for place in both]
