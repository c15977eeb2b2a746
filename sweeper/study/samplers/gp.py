"""Optuna's sampler with a Gaussian process, beside trials that compute."""

from __future__ import annotations

from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.trial import FrozenTrial


class OneThreadGP(optuna.samplers.GPSampler):
    """Optuna's Gaussian process on one thread; more threads would compete with the trials."""

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Propose params, as the base class does."""
        import torch  # takes seconds, for which a study's first random trials need not wait

        torch.set_num_threads(1)
        return dict(super().sample_relative(study, trial, search_space))
