"""The trials of the search alone, without those that confirm the best ones.

The best trials are chosen by their scores, so that further scores at their params would make a
sampler believe in them the more, and none of these runs was its proposal. The same goes for what
the trials of a study say.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any

from optuna.storages import InMemoryStorage
from optuna.trial import FrozenTrial, TrialState

from .view import StudyView

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
        return _of_search(self._storage.get_all_trials(study_id, deepcopy=deepcopy, states=states))


class SearchStudy(StudyView):
    """A study with the trials of its search alone."""

    def _trials(self, states: Container[TrialState] | None, **reading: bool) -> list[FrozenTrial]:
        return _of_search(super()._trials(states, **reading))


def _of_search(trials: Iterable[FrozenTrial]) -> list[FrozenTrial]:
    return [trial for trial in trials if CONFIRMS not in trial.user_attrs]
