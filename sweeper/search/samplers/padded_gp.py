"""A Gaussian process for spaces with branches, after a first design that covers the space."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.trial import FrozenTrial, TrialState
from threadpoolctl import threadpool_limits

from ...settings.space import SearchSpace
from .padding import Padding
from .views import with_pruned


class PaddedGP(optuna.samplers.GPSampler):
    """Optuna's Gaussian process, which also models dimensions that only some trials have.

    In trials and candidates without a dimension, it has a fixed value, the middle of its range.
    Trials of different branches thus share what they have in common, and no candidate looks
    promising for a value that it will not have. The fixed value is the imputation of Lévesque et
    al., 2017, "Bayesian optimization for conditional hyperparameter spaces". The first trials are
    points of a scrambled Sobol sequence (Owen, 1998, "Scrambling Sobol' and Niederreiter-Xing
    points"), which cover ranges and branches evenly. Pruned trials count with the values that are
    to be expected of them. It computes on one thread, as more would compete with the trials.

    Args:
        space: of the study.
        design_seed: of the first trials; the same for all proposals of a study.
        n_startup_trials: how many trials end so that they count, before the first is fitted.
        **options: of Optuna's sampler.
    """

    def __init__(
        self,
        *,
        space: SearchSpace,
        design_seed: int,
        n_startup_trials: int = 10,
        **options: Any,
    ) -> None:
        super().__init__(n_startup_trials=n_startup_trials, **options)
        self._space = space
        self._design_seed = design_seed
        self._fits_from = n_startup_trials

    @cached_property
    def _padding(self) -> Padding:
        return Padding(self._space)

    def infer_relative_search_space(
        self, study: optuna.Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """The dimensions of all branches."""
        return dict(self._padding.distributions)

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Propose values of the dimensions of all branches, of which the trial uses its own."""
        study = with_pruned(study)
        completed = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        if len(completed) < self._fits_from:
            return self._padding.design(trial.number, seed=self._design_seed)
        with on_one_thread():
            return dict(super().sample_relative(self._padding.seen(study), trial, search_space))

    def _sample_relative_impl(
        self,
        study: optuna.Study,
        completed_trials: list[FrozenTrial],
        running_trials: list[FrozenTrial],
        search_space: dict[str, BaseDistribution],
    ) -> dict[str, Any]:
        # Optuna asks for a trial's values by the names of `search_space`, which are the same.
        proposed = super()._sample_relative_impl(
            study, completed_trials, running_trials, self._padding.modelled
        )
        return self._padding.as_params(proposed)

    def _optimize_acqf(self, acqf: Any, best_params: Any) -> Any:
        return super()._optimize_acqf(self._padding.only_active(acqf), best_params)


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
