"""The questions that the trials of a study can answer."""

from __future__ import annotations

from collections.abc import Sequence

import optuna

from ...settings import Settings
from ...trials import ImportanceRange, Outlook
from ..samplers import SamplerFactory
from .importances import importance_ranges, param_importances
from .outlook import outlook_of
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

    def outlook(self, settings: Settings, samplers: SamplerFactory) -> Outlook | None:
        """What more trials are expected to be good for; None where that is not known.

        It is known where a Gaussian process proposes the trials of a single objective, from the
        twentieth completed trial on.
        """
        if samplers.name != "gp" or len(self._objectives) != 1:
            return None
        return outlook_of(self._study, settings.search_space, seed=settings.study.seed)
