"""Has a sampler avoid params with which a trial did not fit into memory.

Such a trial has failed. Optuna's samplers ignore failed trials and would propose the same params
again, but some of them know constraints of trials that ended otherwise. So the sampler sees the
trial as one of those that violated a constraint; its state in the storage stays what it is.
"""

from __future__ import annotations

import copy
from collections.abc import Container, Sequence
from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial, TrialState

from .view import StudyView

#: Optuna's attribute of a trial for the constraint `memory`: above 0 where it is violated.
CONSTRAINT = "constraints:memory"
VIOLATED, _HELD = 1.0, -1.0


class AvoidsInfeasible(BaseSampler):
    """A sampler that sees infeasible trials in the form in which it knows constraints.

    A study without such trials is what the sampler sees otherwise, so its proposals are the same.

    Args:
        sampler: of Optuna's kind.
        state: in which the sampler looks at the constraints of a trial: `PRUNED` needs no values;
            for `COMPLETE` an infeasible trial has the mean of the values of all others, which
            makes its params neither better nor worse than others.

    Attributes:
        sampler: that which proposes.
    """

    def __init__(self, sampler: BaseSampler, state: TrialState) -> None:
        self.sampler = sampler
        self._state = state

    def infer_relative_search_space(
        self, study: optuna.Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """The dimensions that the sampler proposes together."""
        return self.sampler.infer_relative_search_space(self._seen(study), trial)

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Propose values for `search_space`."""
        return self.sampler.sample_relative(self._seen(study), trial, search_space)

    def sample_independent(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """Propose a value of one parameter."""
        seen = self._seen(study)
        return self.sampler.sample_independent(seen, trial, param_name, param_distribution)

    def before_trial(self, study: optuna.Study, trial: FrozenTrial) -> None:
        """Prepare the sampler for a proposal."""
        self.sampler.before_trial(study, trial)

    def after_trial(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        state: TrialState,
        values: Sequence[float] | None,
    ) -> None:
        """Have the sampler note the end of a trial."""
        self.sampler.after_trial(study, trial, state, values)

    def reseed_rng(self) -> None:
        """Give the sampler another seed."""
        self.sampler.reseed_rng()

    def _seen(self, study: optuna.Study) -> Any:
        failed = study.get_trials(deepcopy=False, states=(TrialState.FAIL,))
        if any(map(_is_infeasible, failed)):
            return _Constrained(study, self._state)
        return study


class _Constrained(StudyView):
    """A study whose infeasible trials have not failed."""

    def __init__(self, study: optuna.Study, state: TrialState) -> None:
        super().__init__(study)
        self._state = state

    def _trials(self, states: Container[TrialState] | None, **reading: bool) -> list[FrozenTrial]:
        trials = super()._trials(None, **reading)
        if self._state is TrialState.PRUNED:
            seen = [_as_pruned(trial) if _is_infeasible(trial) else trial for trial in trials]
        else:
            seen = _as_completed(trials)
        return [trial for trial in seen if states is None or trial.state in states]


def _is_infeasible(trial: FrozenTrial) -> bool:
    return trial.state is TrialState.FAIL and trial.system_attrs.get(CONSTRAINT, 0.0) > 0


def _as_pruned(trial: FrozenTrial) -> FrozenTrial:
    seen = copy.copy(trial)
    seen.state = TrialState.PRUNED
    return seen


def _as_completed(trials: list[FrozenTrial]) -> list[FrozenTrial]:
    """All trials, with a value of the constraint for each one that counts as completed."""
    values = [trial.values for trial in trials if trial.state is TrialState.COMPLETE]
    if not values:
        return trials
    means = [sum(column) / len(column) for column in zip(*values, strict=True)]
    seen = []
    for trial in trials:
        changed = trial
        if _is_infeasible(trial):
            changed = copy.copy(trial)
            changed.state, changed.values = TrialState.COMPLETE, means
        elif trial.state in (TrialState.COMPLETE, TrialState.PRUNED):  # another view completes it
            changed = copy.copy(trial)
            changed.system_attrs = {**trial.system_attrs, CONSTRAINT: _HELD}
        seen.append(changed)
    return seen
