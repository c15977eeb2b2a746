"""Trials of spaces with branches, with fixed values where they have none."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import optuna
from optuna._gp.search_space import SearchSpace as UnitCube
from optuna.distributions import (
    BaseDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.trial import FrozenTrial

from ...settings.space import ChoiceDimension, SearchSpace, as_scalar
from .distributions import distributions
from .views import StorageView

if TYPE_CHECKING:
    import torch

#: A range of more values than this is continuous to the process, and its values are rounded:
#: Optuna tries the steps of a range in turn, which took ten times as long where four ranges had a
#: thousand values each.
_MOST_STEPS = 16


class Padding:
    """Gives every trial of a space a value of every dimension.

    Attributes:
        distributions: of all dimensions that make a difference.
        modelled: the same as a Gaussian process sees them: long ranges with steps are continuous.
        values: of each dimension for the trials that do not have it: the middle of its range.
    """

    def __init__(self, space: SearchSpace) -> None:
        parents = {parent for _, dimension in space.items() for parent in dimension.when}
        self.distributions = {
            name: distribution
            for name, distribution in distributions(space).items()
            if name in parents or not distribution.single()
        }
        self.modelled = {name: _modelled(d) for name, d in self.distributions.items()}
        self._cube = UnitCube(self.modelled)
        middle = np.where(self._cube.is_categorical, 0.0, 0.5)
        self.values = {
            name: _rounded(self.modelled[name], value)
            for name, value in self._cube.get_unnormalized_param(middle).items()
        }
        fixed = optuna.trial.create_trial(
            params=self.values, distributions=self.modelled, value=0.0
        )
        self._fixed = self._cube.get_normalized_params([fixed])[0]
        self._branches = _branches(space, list(self.distributions))

    def as_params(self, modelled: Mapping[str, Any]) -> dict[str, Any]:
        """Values of `modelled` as values of `distributions`."""
        return {name: _rounded(self.distributions[name], v) for name, v in modelled.items()}

    def design(self, number: int, *, seed: int) -> dict[str, Any]:
        """The point with this number of a scrambled Sobol sequence, as params."""
        rng = np.random.RandomState(seed)
        # A sequence is balanced after powers of two; a longer one begins with the shorter ones.
        points = self._cube.sample_normalized_params(1 << number.bit_length(), rng)
        return self.as_params(self._cube.get_unnormalized_param(points[number]))

    def seen(self, study: optuna.Study) -> optuna.Study:
        """The study, with a value of every dimension in each trial."""
        return StorageView(study._storage, self._filled).study(study)

    def _filled(self, trials: list[FrozenTrial]) -> list[FrozenTrial]:
        filled = [copy.copy(trial) for trial in trials]
        for trial in filled:
            trial.params = {**self.values, **trial.params}
        return filled

    def only_active(self, acquisition: Any) -> Any:
        """An acquisition function for which a dimension has its fixed value where it is missing."""
        return _OnlyActive(acquisition, self) if self._branches else acquisition

    def padded(self, candidates: torch.Tensor) -> torch.Tensor:
        """Candidates with fixed values in place of those that they will not have.

        Args:
            candidates: points of the unit cube, shape (…, dimensions); choices count from 0.
        """
        import torch

        is_active = torch.ones_like(candidates, dtype=torch.bool)
        for column, conditions in self._branches:
            for parent, opens in conditions:
                place = candidates[..., parent].detach().long()
                is_active[..., column] &= torch.from_numpy(opens)[place] & is_active[..., parent]
        return torch.where(is_active, candidates, torch.from_numpy(self._fixed))


class _OnlyActive:
    """An acquisition function that does not look at what a candidate will not have."""

    def __init__(self, acquisition: Any, padding: Padding) -> None:
        self._acquisition = acquisition
        self._padding = padding

    def __getattr__(self, name: str) -> Any:
        return getattr(self._acquisition, name)

    def eval_acqf(self, x: torch.Tensor) -> torch.Tensor:
        """The logarithm of the expected improvement of candidates."""
        value: torch.Tensor = self._acquisition.eval_acqf(self._padding.padded(x))
        return value

    def eval_acqf_no_grad(self, x: Any) -> Any:
        """The same for an array, as an array."""
        import torch

        with torch.no_grad():
            return self.eval_acqf(torch.from_numpy(x)).numpy()


def _branches(
    space: SearchSpace, columns: list[str]
) -> list[tuple[int, list[tuple[int, np.ndarray[Any, Any]]]]]:
    """The columns of dimensions that not all trials have, parents first.

    Returns:
        for each the columns on which it depends, and for each of these which of its choices,
        shape (choices), it needs.
    """
    branches = []
    for name in columns:
        conditions = []
        for parent, values in space[name].when.items():
            decides = space[parent]
            assert isinstance(decides, ChoiceDimension)
            needed = [as_scalar(value) for value in values]
            opens = np.array([as_scalar(choice) in needed for choice in decides.choices])
            conditions.append((columns.index(parent), opens))
        if conditions:
            branches.append((columns.index(name), conditions))
    return branches


def _modelled(distribution: BaseDistribution) -> BaseDistribution:
    if isinstance(distribution, FloatDistribution | IntDistribution) and distribution.step:
        low, high, half = distribution.low, distribution.high, distribution.step / 2
        if (high - low) / distribution.step >= _MOST_STEPS:
            return FloatDistribution(low - half, high + half, log=distribution.log)
    return distribution


def _rounded(distribution: BaseDistribution, value: Any) -> Any:
    """The nearest value that a distribution has."""
    if not isinstance(distribution, FloatDistribution | IntDistribution) or not distribution.step:
        return value
    low, step = distribution.low, distribution.step
    nearest = low + round((value - low) / step) * step
    return min(max(nearest, low), distribution.high)
