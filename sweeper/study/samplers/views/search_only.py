"""Has a sampler see the trials of the search alone, without those that confirm the best ones.

The best trials are chosen by their scores, so that further scores at their params would make a
sampler believe in them the more, and none of these runs was its proposal.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from optuna.storages import InMemoryStorage
from optuna.trial import FrozenTrial, TrialState

#: The attribute of a trial that confirms another one: `of` which number, `repetition` and `seed`.
CONFIRMS = "sweeper.confirms"


class SearchOnly:
    """Stands in for a study's storage while one trial is proposed.

    Args:
        storage: of the study.
    """

    def __init__(self, storage: InMemoryStorage) -> None:
        self._storage = storage

    def __getattr__(self, name: str) -> Any:
        return getattr(self._storage, name)

    def get_all_trials(
        self,
        study_id: int,
        deepcopy: bool = True,
        states: Container[TrialState] | None = None,
    ) -> list[FrozenTrial]:
        """The trials of the search."""
        trials = self._storage.get_all_trials(study_id, deepcopy=deepcopy, states=states)
        return [trial for trial in trials if CONFIRMS not in trial.user_attrs]
