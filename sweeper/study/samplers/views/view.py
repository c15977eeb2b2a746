"""A study's storage as one sampler is to see it."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

import optuna
from optuna.trial import FrozenTrial, TrialState


class StorageView:
    """Stands in for a study's storage in one proposal; subclasses change the trials that it has.

    Args:
        storage: of Optuna's kind, or another view.
    """

    def __init__(self, storage: Any) -> None:
        self._storage = storage

    def __getattr__(self, name: str) -> Any:
        return getattr(self._storage, name)

    def get_all_trials(
        self,
        study_id: int,
        deepcopy: bool = True,
        states: Container[TrialState] | None = None,
    ) -> list[FrozenTrial]:
        """The study's trials, as the sampler is to see them."""
        seen = self._seen(self._storage.get_all_trials(study_id, deepcopy=deepcopy))
        return [trial for trial in seen if states is None or trial.state in states]

    def study(self, like: optuna.Study) -> optuna.Study:
        """A study as Optuna loads it from this view."""
        storage: Any = self  # it has all of a storage's methods
        return optuna.load_study(
            study_name=like.study_name, storage=storage, sampler=like.sampler, pruner=like.pruner
        )

    def _seen(self, trials: list[FrozenTrial]) -> list[FrozenTrial]:
        raise NotImplementedError
