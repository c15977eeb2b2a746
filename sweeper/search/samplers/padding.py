"""Give trials a fixed value for each dimension that does not exist in their branch.

A dimension with `when` exists only in trials in which another param, its parent, has certain
values. These trials are a branch. A Gaussian process needs a value of every dimension.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import optuna
from optuna._gp.search_space import SearchSpace as UnitCube
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.trial import FrozenTrial

from ...settings.space import ChoiceDimension, SearchSpace, as_scalar, from_scalar
from .distributions import distributions
from .views import StorageView

if TYPE_CHECKING:
    import torch

Array = np.ndarray[Any, Any]

#: Ranges with at least this many steps are modelled as continuous, and proposed values are rounded.
#: Otherwise, Optuna would try the steps of a range one after the other. This took ten times as long
#: for four ranges with a thousand values each.
_MOST_STEPS = 16


#: Index of a dimension that only some trials have, and its conditions. A condition is the index of
#: a parent dimension, and for each choice of the parent whether the dimension exists with this
#: choice.
_Branch = tuple[int, list[tuple[int, Array]]]


class Padding:
    """Gives every trial of a space a value of each dimension that does not exist in its branch.

    A branch is the trials in which the `when` of a dimension is true, so that its param exists.
    Trials are converted to points of a unit cube, to which all ranges are scaled. In a point, a
    choice is the index of its value.

    Attributes:
        distributions: Distributions of all dimensions that have more than one value, or that the
            `when` of another dimension names.
        modelled: The same dimensions as a Gaussian process models them: long ranges with steps are
            continuous.
        values: Value of each dimension for trials in whose branch it does not exist: the middle of
            its range, or its first choice.
    """

    def __init__(self, space: SearchSpace) -> None:
        self._space = space
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

    @property
    def is_choice(self) -> Array:
        """For each dimension, whether it is a choice and not a range."""
        return np.array(self._cube.is_categorical)

    def points(self, trials: list[FrozenTrial]) -> Array:
        """Return trials as points of the unit cube, to which all ranges are scaled.

        In a point, a choice is the index of its value.

        Args:
            trials: Trials with a value of every dimension, as in the view that `seen` returns.
        """
        return np.array(self._cube.get_normalized_params(trials))

    def places(self, column: int, most: int) -> Array:
        """Return a grid of coordinates along one dimension of the unit cube.

        For a choice, these are the indices of its values. For a range, they are evenly spaced
        numbers from 0 to 1.

        Args:
            column: Index of the dimension.
            most: Number of coordinates for a range.
        """
        distribution = list(self.distributions.values())[column]
        if isinstance(distribution, CategoricalDistribution):
            return np.arange(float(len(distribution.choices)))
        return np.linspace(0, 1, most)

    def values_at(self, column: int, places: Array) -> Array:
        """Return the values that a param has at coordinates along its dimension of the unit cube.

        For a range, the values are rounded as by `as_params`. For a choice, return the coordinates
        unchanged: they are the indices of its values.

        Args:
            column: Index of the dimension.
            places: Coordinates, as the method `places` returns them.
        """
        name = list(self.distributions)[column]
        if self.is_choice[column]:
            return places
        points = np.tile(self._fixed, (len(places), 1))
        points[:, column] = places
        params = [self._params_at(point) for point in points]
        return np.array([of_point[name] for of_point in params])

    def as_params(self, modelled: Mapping[str, Any]) -> dict[str, Any]:
        """Return proposed values, rounded to values that the search space contains.

        Args:
            modelled: Values by name, from the distributions in the attribute `modelled`.
        """
        params = {}
        for name, value in modelled.items():
            params[name] = _rounded(self.distributions[name], value)
        return params

    def design(self, index: int, *, seed: int) -> dict[str, Any]:
        """Return the params of one of a study's first trials: a point of a Sobol sequence.

        Args:
            index: Index of the point, from 0.
            seed: Seed with which the sequence is scrambled.
        """
        rng = np.random.RandomState(seed)
        # A Sobol sequence covers the cube evenly after 1, 2, 4, 8, … points, so make such a number
        # of them. The point with this index is the same in a longer sequence.
        points = self._cube.sample_normalized_params(1 << index.bit_length(), rng)
        return self._params_at(points[index])

    def _params_at(self, point: Array) -> dict[str, Any]:
        """Convert a point of the unit cube to params, which are rounded as by `as_params`."""
        return self.as_params(self._cube.get_unnormalized_param(point))

    def spread(self, count: int, samples: int) -> list[Array]:
        """Return samples of points of the unit cube. Each sample covers the cube evenly.

        The samples are independent of each other. In a point, a choice is the index of its value.

        Args:
            count: Number of points in each sample. It is a power of two, because a Sobol sequence
                covers the cube evenly after such a number of points.
            samples: Number of samples.
        """
        from scipy.stats import qmc

        n_columns = len(self.distributions)
        sequence = qmc.Sobol(samples * n_columns, rng=np.random.default_rng(0))
        spread = np.split(sequence.random(count), samples, axis=1)
        for column in np.flatnonzero(self.is_choice):
            n_choices = len(self.places(int(column), 0))
            for points in spread:
                points[:, column] = np.floor(points[:, column] * n_choices)
        return spread

    def seen(self, study: optuna.Study) -> optuna.Study:
        """Return a view of the study in which each trial has a value of every dimension.

        A trial without params is left out: it is being proposed, or waits in the queue. A trial
        that ran before a dimension was swept is left out, too: which value of the dimension it had
        is not known here.
        """
        return StorageView(study._storage, self._filled).study(study)

    def _filled(self, trials: list[FrozenTrial]) -> list[FrozenTrial]:
        filled = []
        for trial in trials:
            if trial.params and not self._lacks(trial):
                trial = copy.copy(trial)
                trial.params = {**self.values, **trial.params}
                filled.append(trial)
        return filled

    def _lacks(self, trial: FrozenTrial) -> bool:
        """Return whether a trial lacks the value of any dimension that exists in its branch."""
        if self.distributions.keys() <= trial.params.keys():
            return False
        params = {name: from_scalar(value) for name, value in trial.params.items()}
        return not self.distributions.keys().isdisjoint(self._space.missing(params))

    def only_active(self, acquisition: Any) -> Any:
        """Return an acquisition function that ignores dimensions that a candidate does not have.

        If every dimension in `distributions` exists in all trials, return Optuna's function
        unchanged.

        Args:
            acquisition: Acquisition function of Optuna.
        """
        return _OnlyActive(acquisition, self) if self._branches else acquisition

    def padded(self, candidates: torch.Tensor) -> torch.Tensor:
        """Return candidates, with a fixed value for each dimension that does not exist in them.

        A dimension does not exist if its `when` is false, or if a param that `when` names does not
        exist.

        Args:
            candidates: Points of the unit cube, shape (…, dimensions). A choice is the index of its
                value.
        """
        import torch

        is_active = torch.ones_like(candidates, dtype=torch.bool)
        for column, conditions in self._branches:
            for parent, opens in conditions:
                place = candidates[..., parent].detach().long()
                is_active[..., column] &= torch.from_numpy(opens)[place] & is_active[..., parent]
        return torch.where(is_active, candidates, torch.from_numpy(self._fixed))


class _OnlyActive:
    """An acquisition function that ignores the dimensions that a candidate does not have.

    It calls Optuna's function with the fixed values of these dimensions (`Padding.padded`).
    """

    def __init__(self, acquisition: Any, padding: Padding) -> None:
        self._acquisition = acquisition
        self._padding = padding

    def __getattr__(self, name: str) -> Any:
        return getattr(self._acquisition, name)

    def eval_acqf(self, x: torch.Tensor) -> torch.Tensor:
        """Return the logarithm of the expected improvement of candidates."""
        value: torch.Tensor = self._acquisition.eval_acqf(self._padding.padded(x))
        return value

    def eval_acqf_no_grad(self, x: Any) -> Any:
        """Return what `eval_acqf` returns, as an array instead of a tensor."""
        import torch

        with torch.no_grad():
            return self.eval_acqf(torch.from_numpy(x)).numpy()


def _branches(space: SearchSpace, columns: list[str]) -> list[_Branch]:
    """Return the dimensions that have a `when`, each with its conditions.

    A dimension comes after its parents, which are the dimensions that its `when` names.

    Args:
        space: Search space of the study.
        columns: Names of the dimensions that a Gaussian process models, in their order.
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
    """Return a value, rounded to the nearest one that a range with steps contains.

    For a range without steps and for a choice, return the value unchanged.
    """
    if not isinstance(distribution, FloatDistribution | IntDistribution) or not distribution.step:
        return value
    low, step = distribution.low, distribution.step
    nearest = low + round((value - low) / step) * step
    return min(max(nearest, low), distribution.high)
