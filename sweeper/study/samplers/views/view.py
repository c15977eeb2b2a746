"""A study as one sampler is to see it."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

import optuna
from optuna.trial import FrozenTrial, TrialState


class StudyView:
    """Stands in for a study in one proposal; subclasses change the trials that it has."""

    def __init__(self, study: optuna.Study) -> None:
        self._study = study

    def __getattr__(self, name: str) -> Any:
        return getattr(self._study, name)

    def get_trials(
        self, deepcopy: bool = True, states: Container[TrialState] | None = None
    ) -> list[FrozenTrial]:
        """The trials, as the sampler is to see them."""
        return self._trials(states, deepcopy=deepcopy)

    def _get_trials(
        self,
        deepcopy: bool = True,
        states: Container[TrialState] | None = None,
        use_cache: bool = False,
    ) -> list[FrozenTrial]:
        return self._trials(states, deepcopy=deepcopy, use_cache=use_cache)

    def _trials(self, states: Container[TrialState] | None, **reading: bool) -> list[FrozenTrial]:
        """The trials in these states, or all of them.

        Args:
            **reading: `deepcopy` and `use_cache`, as Optuna has them.
        """
        return self._study._get_trials(states=states, **reading)
