"""Find which proposals must run again, and show samplers one trial per proposal.

A proposal is a set of params that a sampler has chosen or a user has queued. With `repeat` in the
parameters file, several trials (the runs of the proposal) have these params, each on another seed
or fold.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from optuna.trial import FrozenTrial, TrialState

from ..settings import Settings
from ..trials import FOLD, FOLDS, ConfirmedTrial, RepeatPlan, Repeats, has_score
from ..trials import TrialState as State
from .seeds import derived_seed
from .trial_codec import record_of

#: Name of the trial attribute that has the number of the proposal's first trial. Only trials that
#: run a proposal again have this attribute.
REPEAT = "sweeper.repeat"


def seeds_of(settings: Settings) -> list[int]:
    """Return one seed for each run of a proposal, in the order of the runs.

    A proposal is a set of params that a sampler has chosen or a user has queued. Empty without
    `repeat` in the parameters file, because each proposal then runs once.
    """
    runs = 0 if settings.repeat is None else settings.repeat.runs
    return [derived_seed(settings.study.seed, "repeat", run) for run in range(runs)]


def plan_of_repeats(settings: Settings) -> RepeatPlan:
    """Return what a study with `repeat` stores: the seeds or folds of runs, and the objective."""
    assert settings.repeat is not None
    ((name, goal),) = settings.objective.items()
    seeds = seeds_of(settings)
    by_fold = settings.repeat.by_fold
    return RepeatPlan(
        by=FOLDS if by_fold else "seeds",
        values=[*range(len(seeds))] if by_fold else seeds,
        objective=name,
        direction=goal.direction,
    )


class RepeatedTrials(Repeats):
    """The proposals of a study with `repeat`, read from Optuna's trials.

    A proposal is a set of params that a sampler has chosen or a user has queued. Several trials run
    it, each on another seed or fold.

    Args:
        settings: Settings of the study, with `repeat`.
        trials: All trials of the study, in Optuna's form.
    """

    def __init__(self, settings: Settings, trials: Sequence[FrozenTrial]) -> None:
        found = [record_of(trial) for trial in trials]
        records = [record for record in found if record is not None]
        super().__init__(plan_of_repeats(settings), records)
        self._settings, self._trials = settings, trials
        self._by_hand = {record.number for record in records if record.by_hand}
        self.is_full = len(records) - len(self._by_hand) >= settings.study.trials

    @property
    def due(self) -> tuple[int, int] | None:
        """Number of the proposal that must run again, and the seed or fold of this run.

        None if no proposal must run again. A proposal runs again if all its runs so far have a
        score, the present search space allows its params, and it can still be the best. It has only
        one run at a time, because each score decides whether another run follows. If the study has
        all its trials, only proposals that a user has queued run again, because they are in
        addition to these trials.
        """
        for number, proposal in self.proposals.items():
            if self.is_full and number not in self._by_hand:
                continue
            left = [place for place in self.plan.values if place not in proposal.runs]
            name = self.plan.objective
            has_scores = all(has_score(run, name) for run in proposal.runs.values())
            is_open = left and has_scores and self._can_repeat(proposal)
            if is_open and not self.has_lost(proposal):
                return number, left[0]
        return None

    @property
    def n_owed(self) -> int:
        """Number of further trials that proposals with a running trial may need."""
        runs = len(self.plan.values)
        return sum(runs - len(proposal.runs) for proposal in self._running)

    @property
    def is_running(self) -> bool:
        """Whether any trial is running whose params can run again (see `_can_repeat`).

        Frozen (paused) trials do not count.
        """
        return bool(self._running)

    @property
    def _running(self) -> list[ConfirmedTrial]:
        """Proposals (sets of params) that have a running trial and can run again."""
        running = filter(_is_running, self.proposals.values())
        return [proposal for proposal in running if self._can_repeat(proposal)]

    def _can_repeat(self, proposal: ConfirmedTrial) -> bool:
        """Return whether a proposal can run again with the same params.

        It cannot if the present search space does not allow one of them. It cannot either if a
        param was added to the search space after the first run, because the value of this param in
        that run is not known.
        """
        fold = {FOLD: self.plan.values[0]} if self.by_fold else {}
        return self._settings.can_run_again({**proposal.params, **fold})

    def seen(self) -> list[FrozenTrial]:
        """Return the trials that the sampler sees: one per proposal, with its mean score.

        A proposal is a set of params that several trials run.
        """
        shown = []
        for trial in self._trials:
            if REPEAT in trial.user_attrs:
                continue
            trial = copy.copy(trial)
            if self.by_fold:
                trial.distributions = _without_fold(trial.distributions)
                trial.params = _without_fold(trial.params)
            record = record_of(trial)
            proposal = None if record is None else self.proposals.get(record.proposal)
            if trial.state is TrialState.COMPLETE and proposal is not None:
                value = self.value(proposal)
                trial.values = trial.values if value is None else [value]
            shown.append(trial)
        return shown


def _is_running(proposal: ConfirmedTrial) -> bool:
    """Return whether any trial of a proposal is running. A frozen (paused) trial does not count."""
    return any(run.state is State.RUNNING for run in proposal.runs.values())


def _without_fold(by_name: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in by_name.items() if name != FOLD}
