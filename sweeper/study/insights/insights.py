"""The questions that the trials of a study can answer."""

from __future__ import annotations

from collections.abc import Sequence

import optuna

from ...trials import ImportanceRange
from .importances import importance_ranges, param_importances
from .pruning import better_ones_pruned


class Insights:
    """What the trials of one study say, at the time of each call.

    Args:
        objectives: their names.
    """

    def __init__(self, study: optuna.Study, objectives: Sequence[str]) -> None:
        self._study = study
        self._objectives = objectives

    def importances(self) -> dict[str, dict[str, float]]:
        """How much each param matters for each objective; see `param_importances`."""
        return param_importances(self._study, self._objectives)

    def importance_ranges(self) -> dict[str, dict[str, ImportanceRange]]:
        """How much each param matters, and how sure that is; see `importance_ranges`."""
        return importance_ranges(self._study, self._objectives)

    def better_ones_pruned(self) -> float | None:
        """How many pruned trials would have been better than the best one; None if not known."""
        return better_ones_pruned(self._study) if len(self._objectives) == 1 else None
