"""Pruned trials for a sampler that knows completed ones only."""

from __future__ import annotations

import copy
import math
from typing import Any

import optuna
from optuna.trial import FrozenTrial, TrialState

from ...pruners.predictive import PredictivePruner
from .view import StorageView


class WithPruned(StorageView):
    """A study of one objective whose pruned trials have completed, with the value to be expected.

    It is what the curves of the completed trials predict from the pruned one's last step, or its
    last value where too few of them have that step. It is never better than the best completed
    trial's, and never worse than the worst one's: how bad a trial was that hardly began would
    otherwise hide what the others have in common. Without it, a study whose pruner ends most trials
    would never have enough for a model, and the model would not know where the bad ones are.
    """

    def __init__(self, study: optuna.Study) -> None:
        super().__init__(study._storage)
        self._study = study
        self._expected: dict[int, FrozenTrial] | None = None

    def _seen(self, trials: list[FrozenTrial]) -> list[FrozenTrial]:
        expected = self._expected_trials()
        return [expected.get(trial.number, trial) for trial in trials]

    def _expected_trials(self) -> dict[int, FrozenTrial]:
        """The pruned trials that have reported something, by number."""
        if self._expected is not None:
            return self._expected
        self._expected = {}
        completed = self._study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        if not completed or len(self._study.directions) > 1:
            return self._expected
        values = [float(trial.value or 0.0) for trial in completed]
        curves = PredictivePruner()
        for trial in self._study.get_trials(deepcopy=False, states=(TrialState.PRUNED,)):
            value = _expected_value(curves, self._study, trial)
            if value is not None:
                seen = copy.copy(trial)
                seen.state = TrialState.COMPLETE
                seen.value = min(max(value, min(values)), max(values))
                self._expected[trial.number] = seen
        return self._expected


def _expected_value(curves: PredictivePruner, study: optuna.Study, trial: FrozenTrial) -> Any:
    """The value that a pruned trial would have had; None where it has reported none."""
    if trial.last_step is None:
        return None
    last = trial.intermediate_values[trial.last_step]
    if not math.isfinite(last):  # diverged
        return math.inf if study.direction is optuna.study.StudyDirection.MINIMIZE else -math.inf
    prediction = curves.prediction(study, trial)
    return last if prediction is None else prediction.likely
