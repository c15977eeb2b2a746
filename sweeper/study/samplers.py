"""Makes the sampler that a parameters file names, and translates search spaces for Optuna."""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import json
import math
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
    distribution_to_json,
)
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial

from ..errors import SettingsError
from ..settings import Settings
from ..settings.messages import as_yaml, nearest
from ..settings.space import (
    AnyDimension,
    ChoiceDimension,
    IntDimension,
    SearchSpace,
    as_scalar,
    from_scalar,
)
from ..trials import Params
from .tpe import SamplerMemory, SteadyTPE

#: In studies of up to this many trials the Gaussian process needs half as many trials as TPE.
_GP_TRIALS = 250
#: Samplers that enumerate all values of a stepped dimension in every proposal, with the number of
#: values that takes half a second and 100 MB.
_MOST_VALUES: Mapping[str, int] = {"gp": 10_000_000, "grid": 1_000_000, "brute_force": 1_000_000}
#: Samplers that walk through one sequence, so that all their proposals need the same seed.
_ONE_SEED = ("qmc", "grid", "brute_force")
#: Samplers that end when they have tried every combination.
EXHAUSTIBLE = ("grid", "brute_force")


class _OneThreadGP(optuna.samplers.GPSampler):
    """Optuna's Gaussian process on one thread; more threads would compete with the trials."""

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Propose params, as the base class does."""
        import torch  # takes seconds, for which a study's first random trials need not wait

        torch.set_num_threads(1)
        return dict(super().sample_relative(study, trial, search_space))


_CLASSES: Mapping[str, type[BaseSampler]] = {
    "tpe": optuna.samplers.TPESampler,
    "gp": _OneThreadGP,
    "random": optuna.samplers.RandomSampler,
    # Optuna's grid sampler ignores the trials of `start`, and has no branches.
    "grid": optuna.samplers.BruteForceSampler,
    "qmc": optuna.samplers.QMCSampler,
    "cmaes": optuna.samplers.CmaEsSampler,
    "nsga2": optuna.samplers.NSGAIISampler,
    "brute_force": optuna.samplers.BruteForceSampler,
}
#: Options that a parameters file cannot set.
_RESERVED = ("self", "seed")


def derived_seed(*parts: object) -> int:
    """A 31-bit seed that is a hash of these parts."""
    text = "/".join(str(part) for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 33


class SamplerFactory:
    """Makes a new sampler for each proposal, from the study's seed and the trial's number.

    A proposal thus depends only on the trials so far and on its number, and is the same after a
    restart. A long-lived sampler would repeat its random stream from the start after a restart.

    Raises:
        SettingsError: the sampler does not suit the space, or an option does not exist.
    """

    def __init__(self, settings: Settings) -> None:
        self._seed = settings.study.seed
        self._space = settings.search_space
        chosen = settings.study.sampler
        where = f"{settings.file or 'settings'}: study.sampler"
        self.name = chosen.name if chosen.name != "auto" else _suitable(settings)
        self._options = dict(chosen.options)
        is_joint = self._options.get("multivariate") is not False and len(settings.objective) == 1
        is_joint = is_joint and not self._options.get("group")
        self._memory = SamplerMemory(is_joint=is_joint)
        parameters = inspect.signature(_CLASSES[self.name]).parameters
        known = [name for name in parameters if name not in _RESERVED]
        for option in self._options:
            if option not in known:
                raise SettingsError(
                    f"{where}: {self.name} has no option {option!r}; {nearest(option, known)}"
                )
        self._check_space(where)
        try:
            self.make(0)
        except (TypeError, ValueError, ImportError) as error:
            raise SettingsError(f"{where}: {self.name}: {error}") from error

    def make(self, number: int) -> BaseSampler:
        """Make the sampler that proposes the trial with this number."""
        seed = derived_seed(self._seed, "sampler", "all" if self.name in _ONE_SEED else number)
        make: Callable[..., BaseSampler] = _CLASSES[self.name]
        if self.name == "tpe":
            make = partial(SteadyTPE, self._memory)
        with warnings.catch_warnings():
            # Optuna marks some samplers as experimental; our tests cover them.
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            return make(seed=seed, **self._options)

    def _check_space(self, where: str) -> None:
        if self.name in EXHAUSTIBLE and self._space.count() is None:
            endless = [n for n, d in self._space.items() if d.count() is None]
            raise SettingsError(
                f"{where}: {self.name} needs a finite space, and {', '.join(endless)} is "
                "continuous; give it a step or choices"
            )
        if self.name == "cmaes" and importlib.util.find_spec("cmaes") is None:
            raise SettingsError(f"{where}: cmaes needs a package: pip install cmaes")
        if self.name == "gp" and importlib.util.find_spec("torch") is None:
            raise SettingsError(f"{where}: gp needs a package: pip install torch")
        if wide := _too_wide(self._space, self.name):
            raise SettingsError(
                f"{where}: {self.name} looks at every value of a range with steps, and "
                f"{', '.join(wide)} has more than {_MOST_VALUES[self.name]:,}; widen the steps, or "
                "take tpe"
            )


def _suitable(settings: Settings) -> str:
    """The sampler that `sampler: auto` means for a study."""
    space = settings.search_space
    is_short = settings.study.trials <= _GP_TRIALS
    has_torch = importlib.util.find_spec("torch") is not None
    is_suitable = is_short and has_torch and space.is_flat and not _too_wide(space, "gp")
    return "gp" if is_suitable else "tpe"


def _too_wide(space: SearchSpace, sampler: str) -> list[str]:
    most = _MOST_VALUES.get(sampler, math.inf)
    return [name for name, dimension in space.items() if (dimension.count() or 0) > most]


def distributions(space: SearchSpace) -> dict[str, BaseDistribution]:
    """Each dimension of a space as Optuna's distribution."""
    return {name: _distribution(dimension) for name, dimension in space.items()}


def _distribution(dimension: AnyDimension) -> BaseDistribution:
    if isinstance(dimension, ChoiceDimension):
        return CategoricalDistribution([as_scalar(choice) for choice in dimension.choices])
    if isinstance(dimension, IntDimension):
        return IntDistribution(
            dimension.low, dimension.high, log=dimension.log, step=dimension.step or 1
        )
    return FloatDistribution(dimension.low, dimension.high, log=dimension.log, step=dimension.step)


def in_words(distribution: BaseDistribution) -> str:
    """A distribution of Optuna's in the words of a parameters file."""
    attributes = json.loads(distribution_to_json(distribution))["attributes"]
    if "choices" in attributes:
        attributes["choices"] = [from_scalar(choice) for choice in attributes["choices"]]
    return as_yaml({key: value for key, value in attributes.items() if value not in (None, False)})


def as_queued(params: Params) -> dict[str, Any]:
    """Params as Optuna's queue stores them: lists and mappings as text."""
    return {name: as_scalar(value) for name, value in params.items()}


def suggest(trial: optuna.Trial, space: SearchSpace) -> dict[str, Any]:
    """Suggest the params of a trial one after the other, only in the branches that they open."""

    def pick(name: str, dimension: AnyDimension) -> Any:
        if isinstance(dimension, ChoiceDimension):
            by_scalar = {as_scalar(choice): choice for choice in dimension.choices}
            return by_scalar[trial.suggest_categorical(name, list(by_scalar))]
        if isinstance(dimension, IntDimension):
            return trial.suggest_int(
                name, dimension.low, dimension.high, log=dimension.log, step=dimension.step or 1
            )
        return trial.suggest_float(
            name, dimension.low, dimension.high, log=dimension.log, step=dimension.step
        )

    return space.sample(pick)
