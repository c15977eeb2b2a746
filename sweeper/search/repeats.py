"""Find which repeats of proposals are due, and show samplers one trial per proposal."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from optuna.trial import FrozenTrial, TrialState

from ..settings import Settings
from ..trials import FOLD, FOLDS, ConfirmedTrial, Repeats, has_score
from ..trials import TrialState as State
from .seeds import derived_seed
from .trial_codec import record_of

#: Name of a repeat's trial attribute with the number of the first trial of its proposal.
REPEAT = "sweeper.repeat"


def seeds_of(settings: Settings) -> list[int]:
    """Return the seeds on which each proposal runs. Empty if proposals run once."""
    runs = 0 if settings.repeat is None else settings.repeat.runs
    return [derived_seed(settings.study.seed, "repeat", run) for run in range(runs)]


def plan_of_repeats(settings: Settings) -> dict[str, Any]:
    """Return the plan that a study with `repeat` stores: seeds or folds, and the objective."""
    assert settings.repeat is not None
    ((name, goal),) = settings.objective.items()
    seeds = seeds_of(settings)
    return {
        "by": FOLDS if settings.repeat.by_fold else "seeds",
        "values": [*range(len(seeds))] if settings.repeat.by_fold else seeds,
        "objective": name,
        "direction": goal.direction,
    }


class RepeatedTrials(Repeats):
    """The proposals of a study with `repeat`, made of Optuna's trials.

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

        None if no repeat is due. A repeat is due if all runs of its proposal have a score, the
        present space allows its params, and the proposal can still be the best. A proposal has only
        one run at a time, because each score decides whether another run follows. If the study has
        all its trials, only proposals that were queued by hand, in addition to these trials, run
        again.
        """
        for number, proposal in self.proposals.items():
            if self.is_full and number not in self._by_hand:
                continue
            left = [place for place in self.plan["values"] if place not in proposal.runs]
            name = self.plan["objective"]
            has_scores = all(has_score(run, name) for run in proposal.runs.values())
            is_open = left and has_scores and self._can_repeat(proposal)
            if is_open and not self.has_lost(proposal):
                return number, left[0]
        return None

    @property
    def n_owed(self) -> int:
        """Number of further runs that running proposals may need."""
        runs = len(self.plan["values"])
        return sum(runs - len(proposal.runs) for proposal in self._running)

    @property
    def is_running(self) -> bool:
        """Whether a proposal is running, so that it may need another run."""
        return bool(self._running)

    @property
    def _running(self) -> list[ConfirmedTrial]:
        """The proposals that are running and may need another run."""
        running = filter(_is_running, self.proposals.values())
        return [proposal for proposal in running if self._can_repeat(proposal)]

    def _can_repeat(self, proposal: ConfirmedTrial) -> bool:
        """Return whether the present space allows the params of a proposal, and all are known.

        A param that is only swept since the proposal's first run has no known value in that run. So
        the runs would not have the same params.
        """
        fold = {FOLD: self.plan["values"][0]} if self.by_fold else {}
        return self._settings.can_run_again({**proposal.params, **fold})

    def seen(self) -> list[FrozenTrial]:
        """Return one trial per proposal, with the mean of its runs, for the sampler."""
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
    """Return whether a run of a proposal is running. A frozen run does not count."""
    return any(run.state is State.RUNNING for run in proposal.runs.values())


def _without_fold(by_name: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in by_name.items() if name != FOLD}
