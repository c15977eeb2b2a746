"""Propose params by a Gaussian process, after first trials that cover the space evenly.

The process supports branches: dimensions that exist only in trials in which other params have
certain values.
"""

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
from .views import with_expected_scores


class PaddedGP(optuna.samplers.GPSampler):
    """Optuna's Gaussian process, which also models dimensions that only some trials have.

    In trials and candidates without a dimension, the dimension has a fixed value: the middle of its
    range, or its first choice. So the model learns from the trials of all branches about the
    dimensions that they have in common, and does not prefer a candidate for a value that its trial
    will not have. The fixed value is the imputation of Lévesque et al., 2017, "Bayesian
    optimization for conditional hyperparameter spaces".

    The first trials are points of a scrambled Sobol sequence (Owen, 1998, "Scrambling Sobol' and
    Niederreiter-Xing points"), which cover ranges and branches evenly. Pruned trials count with
    their predicted scores. A score that is far worse than most is raised, so that it does not hide
    the differences between the others. The sampler computes on one thread, because more threads
    would slow down the trials.

    Args:
        space: Search space of the study.
        design_seed: Seed of the first trials, the same for all proposals of a study.
        index: Number of earlier proposals. One of the first trials gets the point of the sequence
            with this index. The trial number would skip points, because trials that repeat a
            proposal have numbers, too. Then the points would not cover the ranges evenly.
        n_startup_trials: Trials that must have a score before the process is fitted, at least 1.
        **options: Further options of Optuna's sampler.

    Raises:
        ValueError: `n_startup_trials` is out of its range.
    """

    def __init__(
        self,
        *,
        space: SearchSpace,
        design_seed: int,
        index: int,
        n_startup_trials: int = 10,
        **options: Any,
    ) -> None:
        if n_startup_trials < 1:
            raise ValueError(f"n_startup_trials must be at least 1; got {n_startup_trials}")
        super().__init__(n_startup_trials=n_startup_trials, **options)
        self._space = space
        self._design_seed = design_seed
        self._index = index
        self._fits_from = n_startup_trials

    @cached_property
    def _padding(self) -> Padding:
        return Padding(self._space)

    def infer_relative_search_space(
        self, study: optuna.Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """Return the distributions of all dimensions that the process models, by name.

        Dimensions that exist only in some trials, because of their `when`, are included.
        """
        return dict(self._padding.distributions)

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Propose values for all dimensions that the process models.

        The trial uses only the values of those dimensions that exist in it, by their `when`.
        """
        study = self._padding.seen(with_expected_scores(study, is_clipped=True))
        completed = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        if len(completed) < self._fits_from:
            return self._padding.design(self._index, seed=self._design_seed)
        with on_one_thread():
            return dict(super().sample_relative(study, trial, search_space))

    def _sample_relative_impl(
        self,
        study: optuna.Study,
        completed_trials: list[FrozenTrial],
        running_trials: list[FrozenTrial],
        search_space: dict[str, BaseDistribution],
    ) -> dict[str, Any]:
        # Use `modelled`, in which ranges with many steps are continuous, in place of
        # `search_space`. Optuna reads a trial's values by name, and both have the same names.
        proposed = super()._sample_relative_impl(
            study, completed_trials, running_trials, self._padding.modelled
        )
        return self._padding.as_params(proposed)

    def _optimize_acqf(self, acqf: Any, best_params: Any) -> Any:
        return super()._optimize_acqf(self._padding.only_active(acqf), best_params)


@contextmanager
def on_one_thread() -> Iterator[None]:
    """Let torch, NumPy and SciPy use one thread of this process during the block.

    The matrices for a proposal are small. With two threads of OpenBLAS, a proposal takes more than
    three times as much CPU time, which the trials then lack. With one thread, the last bits of a
    proposal do not depend on the number of cores.
    """
    # The limit applies only to libraries that are already imported, so import them before it is
    # set. They are not imported at the top of the module, because their imports take seconds, and
    # the first trials of a study do not need them.
    import scipy.linalg  # noqa: F401  Optuna uses it
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(limits=1):
            yield
    finally:  # The caller may be a notebook that trains with torch afterwards.
        torch.set_num_threads(before)
