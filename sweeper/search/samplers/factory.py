"""Make the sampler that a parameters file names."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any

import optuna
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial

from ...errors import SettingsError
from ...settings import Settings
from ...trials import LearnedTrial
from ..options import check_options
from ..repeats import RepeatedTrials
from ..seeds import derived_seed
from ..trial_codec import has_begun
from .distributions import as_trial, distributions, in_space
from .padded_gp import PaddedGP
from .score_model import can_predict
from .views import ExpectingTPE, StorageView, with_constraints, with_learned

#: In a study with more trials, `auto` uses TPE alone. Up to this number, a Gaussian process needed
#: half as many trials as TPE (measured, but it was not recorded on which tasks).
_GP_TRIALS = 250
#: After this number of proposals, `auto` uses TPE for every second one. On coarse grids, TPE has
#: caught up with the Gaussian process by then (decision 26).
_TURNS_FROM = 25
#: A stepped dimension has at most this many values. A sampler that enumerates so many takes 0.5 s
#: and 100 MB.
_MOST_VALUES = 1_000_000
#: Samplers whose proposals are points of one sequence, so all of them need the same seed.
_ONE_SEED = ("qmc", "grid", "brute_force")
#: Samplers that end when they have tried every combination of params.
_EXHAUSTIBLE = ("grid", "brute_force")

_CLASSES: Mapping[str, type[BaseSampler]] = {
    "tpe": optuna.samplers.TPESampler,
    "gp": PaddedGP,
    "random": optuna.samplers.RandomSampler,
    # `grid` uses Optuna's brute force sampler, because its grid sampler ignores the trials of
    # `start`, and does not support branches.
    "grid": optuna.samplers.BruteForceSampler,
    "qmc": optuna.samplers.QMCSampler,
    "cmaes": optuna.samplers.CmaEsSampler,
    "nsga2": optuna.samplers.NSGAIISampler,
    "brute_force": optuna.samplers.BruteForceSampler,
}
#: Samplers that propose better params if they see infeasible trials. nsga2 is not one of them: an
#: infeasible trial is never a parent there, so nsga2 proposes equally good params without such
#: trials.
_SEES_INFEASIBLE = ("tpe", "gp")
#: Arguments that the factory sets, so that a parameters file cannot set them.
_PASSED = ("seed", "space", "design_seed", "index")


class SamplerFactory:
    """Makes a new sampler for each proposal, from the study's seed and the trial number.

    So a proposal depends only on its number and on the trials so far, and is the same after a
    restart. A sampler that is kept would repeat its random stream from the start after a restart.

    Args:
        settings: Settings of the study.

    Attributes:
        settings: Settings of the study.
        name: Name of the sampler.

    Raises:
        SettingsError: The sampler does not support the space, or an option does not exist.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._seed = settings.study.seed
        self._space = settings.proposed_space
        chosen = settings.study.sampler
        where = f"{settings.file or 'settings'}: study.sampler"
        self.name = chosen.name if chosen.name != "auto" else self._suitable()
        self._takes_turns = chosen.name == "auto" and self.name == "gp"
        self._options = dict(chosen.options)
        self._was_changed: bool | None = None
        check_options(
            _CLASSES[self.name], chosen.options, reserved=_PASSED, where=f"{where}: {self.name}"
        )
        self._check_space(where)
        try:
            self.make(0, 0)
        except (TypeError, ValueError, ImportError) as error:
            raise SettingsError(
                f"{where}: the sampler {self.name} cannot be made: {error}"
            ) from error

    def make(self, number: int, index: int) -> BaseSampler:
        """Return the sampler of a proposal.

        Args:
            number: Number of the trial that is proposed.
            index: Number of earlier proposals. With `repeat`, there are fewer of them than trials.
        """
        seed = derived_seed(self._seed, "sampler", "all" if self.name in _ONE_SEED else number)
        kind: Callable[..., BaseSampler] = _CLASSES[self.name]
        passed = dict(self._options)
        if self._takes_turns and index >= _TURNS_FROM and index % 2:
            kind = ExpectingTPE
            passed = {"space": self._space, "multivariate": True, "group": True}
        elif issubclass(_CLASSES[self.name], PaddedGP):
            design_seed = derived_seed(self._seed, "sampler", "design")
            passed |= {"space": self._space, "design_seed": design_seed, "index": index}
        # Optuna warns that some samplers are experimental. The warning is ignored, because this
        # project's tests cover them.
        with warnings.catch_warnings(
            action="ignore", category=optuna.exceptions.ExperimentalWarning
        ):
            return kind(seed=seed, **passed)

    def seen(self, storage: Any, learned: Sequence[Sequence[LearnedTrial]] = ()) -> Any:
        """Return the storage that the sampler reads: the study's storage, or a view of it.

        Args:
            storage: Storage of the study.
            learned: Trials of each earlier study, the best first.
        """
        is_adapted = self.name in _ONE_SEED or self._has_other_ranges(storage)
        if self.settings.repeat is not None or is_adapted:
            storage = StorageView(storage, self._proposals)
        if self.name not in _SEES_INFEASIBLE:
            return storage
        known, space = distributions(self._space), self._space
        found = [
            [
                as_trial(trial.params, trial.score, known)
                for trial in trials
                # Leave out trials with a value outside of the present ranges, which the user may
                # have narrowed.
                if all(space[n].allows(v) for n, v in trial.params.items() if n in space)
            ]
            for trials in learned
        ]
        studies = [trials for trials in found if trials]
        seen = StorageView(storage, partial(with_learned, studies=studies)) if studies else storage
        return StorageView(seen, with_constraints)

    def _proposals(self, trials: list[FrozenTrial]) -> list[FrozenTrial]:
        """Return one trial per proposal, as if the present space had proposed it.

        A sampler of points in a sequence cannot have proposed trials with other dimensions. A
        Gaussian process knows the present space, and learns from trials outside of it, too.
        """
        if self.settings.repeat is not None:
            trials = RepeatedTrials(self.settings, trials).seen()
        if self.name == "gp":
            return trials
        return in_space(trials, self._space, needs_all=self.name in _ONE_SEED)

    def _has_other_ranges(self, storage: Any) -> bool:
        """Return whether trials of the study have been proposed from other ranges than the present.

        The first call reads the trials and stores the answer. The answer stays the same, because
        this factory proposes all later trials from the present ranges.
        """
        if self._was_changed is None:
            known = distributions(self.settings.search_space)
            self._was_changed = any(
                known.get(name) != own
                for trial in storage.get_all_trials(storage.study_id, deepcopy=False)
                for name, own in trial.distributions.items()
            )
        return self._was_changed

    @cached_property
    def combinations(self) -> int | None:
        """Number of different combinations of params.

        None if the sampler does not end when it has tried all of them.
        """
        return self._space.count() if self.name in _EXHAUSTIBLE else None

    def has_tried_all(self, trials: list[FrozenTrial]) -> bool:
        """Return whether a trial has begun with every combination of params."""
        begun = filter(has_begun, self._proposals(trials) if self.combinations else ())
        tried = {tuple(trial.params.items()) for trial in begun}
        return self.combinations is not None and len(tried) >= self.combinations

    def _suitable(self) -> str:
        """Return the name of the sampler that `sampler: auto` means for the study."""
        is_short = self.settings.study.trials <= _GP_TRIALS
        return "gp" if is_short and can_predict() else "tpe"

    def _check_space(self, where: str) -> None:
        if self.name in _EXHAUSTIBLE and self._space.count() is None:
            endless = [n for n, d in self._space.items() if d.count() is None]
            raise SettingsError(
                f"{where}: {self.name} needs a finite space, and {', '.join(endless)} is "
                "continuous; give it a step or choices"
            )
        wide = [n for n, d in self._space.items() if (d.count() or 0) > _MOST_VALUES]
        if self.name in _EXHAUSTIBLE and wide:
            raise SettingsError(
                f"{where}: {self.name} lists all values of a range with steps, and "
                f"{', '.join(wide)} has more than {_MOST_VALUES:,}; widen the steps, or use tpe"
            )
        if self.name == "cmaes" and importlib.util.find_spec("cmaes") is None:
            raise SettingsError(f"{where}: cmaes needs the package cmaes: pip install cmaes")
        if self.name == "gp" and not can_predict():
            raise SettingsError(f"{where}: gp needs the package torch: pip install torch")
