"""Make the sampler that a parameters file names."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
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

#: In a study with more trials than this, `sampler: auto` uses TPE alone. In other studies, a
#: Gaussian process needed half as many trials as TPE (measured, but it was not recorded on which
#: tasks).
_GP_TRIALS = 250
#: After this number of proposals, `auto` uses TPE for every second proposal. By then, TPE is as
#: good as the Gaussian process on coarse grids (decision 26).
_TURNS_FROM = 25
#: A dimension may have at most this many values if the sampler lists all of them. The list of this
#: many takes 0.5 s and 100 MB.
_MOST_VALUES = 1_000_000
#: Samplers whose proposals are points of one sequence, which the seed determines. So they get the
#: same seed for all proposals of a study.
_ONE_SEED = ("qmc", "grid", "brute_force")
#: Samplers that end when they have tried every combination of params.
_EXHAUSTIBLE = ("grid", "brute_force")


class IndexedQMC(optuna.samplers.QMCSampler):
    """Optuna's sampler of a quasi-random sequence, which proposes the point with a given index.

    Optuna itself counts proposals in an attribute of the study. After a crash, this count includes
    proposals that were lost. Their points would be left out, and a study with `order: fixed` would
    not propose the same params again.

    Args:
        index: Number of earlier proposals.
        **options: Options of Optuna's sampler.
    """

    def __init__(self, *, index: int, **options: Any) -> None:
        super().__init__(**options)
        self._index = index

    def _find_sample_id(self, study: object, search_space: object) -> int:
        return self._index


_CLASSES: Mapping[str, type[BaseSampler]] = {
    "tpe": optuna.samplers.TPESampler,
    "gp": PaddedGP,
    "random": optuna.samplers.RandomSampler,
    # `grid` uses Optuna's brute force sampler, because its grid sampler ignores the trials of
    # `start`, and does not support branches.
    "grid": optuna.samplers.BruteForceSampler,
    "qmc": IndexedQMC,
    "cmaes": optuna.samplers.CmaEsSampler,
    "nsga2": optuna.samplers.NSGAIISampler,
    "brute_force": optuna.samplers.BruteForceSampler,
}
#: Samplers that propose better params if they see infeasible trials, which do not fit into memory
#: even alone. nsga2 is not one of them: it never makes a proposal from an infeasible trial, so it
#: proposes equally good params without such trials.
_SEES_INFEASIBLE = ("tpe", "gp")
#: Arguments that the factory sets, so that a parameters file cannot set them.
_PASSED = ("seed", "space", "design_seed", "index")


class SamplerFactory:
    """Makes a new sampler for each proposal, from the study's seed and the trial number.

    So a proposal depends only on the seed, its number and the trials so far, and is the same after
    a restart of the sweep. If one sampler made all proposals, it would repeat its first random
    numbers after a restart.

    Args:
        settings: Settings of the study.

    Attributes:
        settings: Settings of the study.
        name: Name of the sampler.

    Raises:
        SettingsError: The sampler does not support the search space, a package is missing, or an
            option is wrong.
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
        kind = _CLASSES[self.name]
        check_options(kind, chosen.options, reserved=_PASSED, where=f"{where}: {self.name}")
        self._check_space(where)
        #: Number of different combinations of params. None if the sampler does not end when it has
        #: tried all of them.
        self._n_combinations = self._space.count() if self.name in _EXHAUSTIBLE else None
        try:
            self.make(0, 0)
        except (TypeError, ValueError, ImportError) as error:
            raise SettingsError(
                f"{where}: the sampler {self.name} cannot be made: {error}"
            ) from error

    def make(self, number: int, index: int) -> BaseSampler:
        """Make the sampler for one proposal.

        Args:
            number: Number of the trial that is proposed.
            index: Number of earlier proposals. With `repeat`, there are fewer of them than trials.
        """
        stream = "all" if self.name in _ONE_SEED else number
        seed = derived_seed(self._seed, "sampler", stream)
        kind: Callable[..., BaseSampler] = _CLASSES[self.name]
        passed = dict(self._options)
        if self._takes_turns and index >= _TURNS_FROM and index % 2:
            kind = ExpectingTPE
            passed = {"space": self._space, "multivariate": True, "group": True}
        elif self.name == "gp":
            design_seed = derived_seed(self._seed, "sampler", "design")
            passed |= {"space": self._space, "design_seed": design_seed, "index": index}
        elif self.name == "qmc":
            passed["index"] = index
        # Optuna warns that some samplers are experimental. The warning is ignored, because this
        # project's tests cover them.
        with warnings.catch_warnings(
            action="ignore", category=optuna.exceptions.ExperimentalWarning
        ):
            return kind(seed=seed, **passed)

    def seen(self, storage: Any, learned: Sequence[Sequence[LearnedTrial]] = ()) -> Any:
        """Return the storage that the sampler reads: the study's, or a view with changed trials.

        Args:
            storage: Storage of the study.
            learned: Trials of each study in `learn_from`, the best first.
        """
        is_adapted = self.name in _ONE_SEED or self._has_other_ranges(storage)
        if self.settings.repeat is not None or is_adapted:
            storage = StorageView(storage, self._proposals)
        if self.name not in _SEES_INFEASIBLE:
            return storage
        studies = [found for trials in learned if (found := self._learned(trials))]
        if studies:
            storage = StorageView(storage, partial(with_learned, studies=studies))
        return StorageView(storage, with_constraints)

    def _learned(self, trials: Sequence[LearnedTrial]) -> list[FrozenTrial]:
        """Return trials of an earlier study in Optuna's form, with the params of the present space.

        Trials with a value outside of the present ranges, which the user may have narrowed, are
        left out.
        """
        known = distributions(self._space)
        found = []
        for trial in trials:
            params = {name: value for name, value in trial.params.items() if name in known}
            if all(self._space[name].allows(value) for name, value in params.items()):
                found.append(as_trial(params, trial.score, known))
        return found

    def _proposals(self, trials: list[FrozenTrial]) -> list[FrozenTrial]:
        """Return one trial per proposal, as if it had been proposed from the present search space.

        For a sampler that proposes the points of one sequence (`_ONE_SEED`), trials with other
        dimensions are left out, because they are not points of this sequence. For `gp`, trials keep
        their dimensions and values, because `gp` knows the present space, and learns from trials
        outside of it, too.
        """
        if self.settings.repeat is not None:
            trials = RepeatedTrials(self.settings, trials).seen()
        if self.name == "gp":
            return trials
        return in_space(trials, self._space, needs_all=self.name in _ONE_SEED)

    def _has_other_ranges(self, storage: Any) -> bool:
        """Return whether trials were proposed from other ranges than those of the present settings.

        The first call reads the trials, and later calls return the same result, because this
        factory proposes all later trials from the present ranges.
        """
        if self._was_changed is None:
            known = distributions(self.settings.search_space)
            self._was_changed = any(
                known.get(name) != own
                for trial in storage.get_all_trials(storage.study_id, deepcopy=False)
                for name, own in trial.distributions.items()
            )
        return self._was_changed

    def has_tried_all(self, trials: list[FrozenTrial]) -> bool:
        """Return whether each combination of params has a trial that has begun.

        Always False for a sampler that does not end when it has tried all combinations.
        """
        if self._n_combinations is None:
            return False
        begun = [trial for trial in self._proposals(trials) if has_begun(trial)]
        tried = {tuple(trial.params.items()) for trial in begun}
        return len(tried) >= self._n_combinations

    def _suitable(self) -> str:
        """Return the name of the sampler that `sampler: auto` means for the study."""
        is_short = self.settings.study.trials <= _GP_TRIALS
        return "gp" if is_short and can_predict() else "tpe"

    def _check_space(self, where: str) -> None:
        if self.name == "cmaes" and importlib.util.find_spec("cmaes") is None:
            raise SettingsError(f"{where}: cmaes needs the package cmaes: pip install cmaes")
        if self.name == "gp" and not can_predict():
            raise SettingsError(f"{where}: gp needs the package torch: pip install torch")
        if self.name not in _EXHAUSTIBLE:
            return
        counts = {name: dimension.count() for name, dimension in self._space.items()}
        endless = [name for name, count in counts.items() if count is None]
        if endless:
            raise SettingsError(
                f"{where}: {self.name} needs a finite space, and {', '.join(endless)} is "
                "continuous; give it a step or choices"
            )
        wide = [name for name, count in counts.items() if count and count > _MOST_VALUES]
        if wide:
            raise SettingsError(
                f"{where}: {self.name} lists all values of a range with steps, and "
                f"{', '.join(wide)} has more than {_MOST_VALUES:,}; give a larger step, or use tpe"
            )
