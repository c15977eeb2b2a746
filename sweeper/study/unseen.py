"""Looks at each trial of a growing list once."""

from __future__ import annotations

from optuna.trial import FrozenTrial


class UnseenTrials:
    """Picks the trials that an earlier call did not have, where each list has all before it.

    What follows from thousands of ended trials is then worked out from the few new ones.
    """

    def __init__(self) -> None:
        self._seen: set[int] = set()

    def of(self, trials: list[FrozenTrial]) -> list[FrozenTrial]:
        """The trials that no earlier call had, the last ones first.

        Args:
            trials: by number; all those of the last call, and others.
        """
        missing = len(trials) - len(self._seen)
        unseen: list[FrozenTrial] = []
        for trial in reversed(trials):  # new trials are among the last
            if len(unseen) == missing:
                break
            if trial.number not in self._seen:
                unseen.append(trial)
        self._seen.update(trial.number for trial in unseen)
        return unseen
