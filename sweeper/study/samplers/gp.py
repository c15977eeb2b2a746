"""Optuna's sampler with a Gaussian process, beside trials that compute."""

from __future__ import annotations

from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.trial import FrozenTrial, TrialState


class OneThreadGP(optuna.samplers.GPSampler):
    """Optuna's Gaussian process on one thread; more threads would compete with the trials.

    Args:
        n_startup_trials: how many trials complete before the first is fitted; see Optuna's.
    """

    def __init__(self, *, n_startup_trials: int = 10, **options: Any) -> None:
        super().__init__(n_startup_trials=n_startup_trials, **options)
        self._fits_from = n_startup_trials

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Propose params, as the base class does."""
        completed = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        if len(completed) >= self._fits_from:
            import torch  # takes seconds, for which a study's first random trials need not wait

            torch.set_num_threads(1)
        return dict(super().sample_relative(study, trial, search_space))
