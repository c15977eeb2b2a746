"""Optuna's sampler with a Gaussian process, beside trials that compute."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.trial import FrozenTrial, TrialState
from threadpoolctl import threadpool_limits


@contextmanager
def on_one_thread() -> Iterator[None]:
    """Have torch, NumPy and SciPy use one thread of this process while the block runs.

    A proposal's matrices are small: with two threads of OpenBLAS it takes more than three times as
    much CPU, which trials lack. Its last bits do not depend on the machine's cores then.
    """
    # What is imported later has no limit. The imports take seconds, for which a study's first
    # trials need not wait.
    import scipy.linalg  # noqa: F401  what Optuna calls
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(limits=1):
            yield
    finally:  # a notebook that sweeps may train afterwards
        torch.set_num_threads(before)


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
        if len(completed) < self._fits_from:
            return dict(super().sample_relative(study, trial, search_space))
        with on_one_thread():
            return dict(super().sample_relative(study, trial, search_space))
