"""Has a sampler avoid params with which a trial did not fit into memory.

Such a trial has failed. Optuna's samplers ignore failed trials and would propose the same params
again, but some of them know constraints of trials that ended otherwise. So the sampler sees the
trial as one of those that violated a constraint; its state in the storage stays what it is.
"""

from __future__ import annotations

import copy
from typing import Any

from optuna.trial import FrozenTrial, TrialState

from .view import StorageView

#: Optuna's attribute of a trial for the constraint `memory`: above 0 where it is violated.
CONSTRAINT = "constraints:memory"
VIOLATED, _HELD = 1.0, -1.0


class Constrained(StorageView):
    """Infeasible trials in the form in which a sampler knows constraints.

    A study without such trials stays as it is, so its proposals are the same.

    Args:
        state: in which the sampler looks at the constraints of a trial: `PRUNED` needs no values;
            for `COMPLETE` an infeasible trial has the mean of the values of all others, which
            makes its params neither better nor worse than others.
    """

    def __init__(self, storage: Any, state: TrialState) -> None:
        super().__init__(storage)
        self._state = state

    def _seen(self, trials: list[FrozenTrial]) -> list[FrozenTrial]:
        if not any(map(_is_infeasible, trials)):
            return trials
        if self._state is TrialState.PRUNED:
            return [_as_pruned(trial) if _is_infeasible(trial) else trial for trial in trials]
        return _as_completed(trials)


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
