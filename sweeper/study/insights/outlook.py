"""What more trials are expected to be good for, as the Gaussian process of the sampler sees it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import optuna
from optuna.trial import TrialState

from ...settings.space import SearchSpace
from ...trials import Outlook
from ..samplers.gp import on_one_thread
from ..samplers.padded_gp import PaddedGP

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: How many more trials the answer is about.
_TRIALS = 10
#: With fewer completed trials it promises too much, such as an accuracy above 1.
_FEWEST = 20
#: Where they may be: points over the whole space, and around the best trial, each this far from it
#: in the unit cube.
_SPREAD, _NEAR = 512, ((64, 0.03), (64, 0.1))
#: How many possible objectives are drawn from the process.
_DRAWS = 512
#: What is added to variances, so that rounding errors leave them positive.
_JITTER = 1e-8


def outlook_of(study: optuna.Study, space: SearchSpace, *, seed: int) -> Outlook | None:
    """How much better the best of ten more trials is expected to be.

    The Gaussian process is fitted to all completed trials. Of a few hundred points the ten are
    taken whose best is expected to improve most on the best trial so far, one after the other
    (Wilson et al., 2018, "Maximizing acquisition functions for Bayesian optimization"). A sweep
    chooses its later trials when it knows the earlier ones, and does a little better.

    Args:
        study: of one objective.
        seed: of the draws; the same trials have the same outlook.

    Returns:
        None with fewer than 20 completed trials, or where they are all alike.
    """
    completed = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    values = np.array([trial.value for trial in completed], dtype=float)
    if len(completed) < _FEWEST or not np.isfinite(values).all() or np.ptp(values) == 0:
        return None
    fitted = _Fitted(space=space, design_seed=0, seed=seed)
    gains = fitted.gains(study, np.random.RandomState(seed)) * float(np.std(values))
    best = np.zeros(_DRAWS)
    for _ in range(_TRIALS):
        best = np.maximum(best, gains[:, _most_on_average(gains, best)])
    return Outlook(trials=_TRIALS, improvement=float(best.mean()), chance=float((best > 0).mean()))


def _most_on_average(gains: NDArray[np.float64], best: NDArray[np.float64]) -> int:
    """The point that adds most to what is expected of the others.

    Args:
        gains: shape (draws, points).
        best: of the points that were taken, shape (draws).
    """
    return int(np.argmax(np.maximum(gains, best[:, np.newaxis]).mean(axis=0)))


class _Fitted(PaddedGP):
    """The sampler, stopped when it has fitted its process."""

    _rng_of_draws: np.random.RandomState
    _gains: NDArray[np.float64]

    def gains(self, study: optuna.Study, rng: np.random.RandomState) -> NDArray[np.float64]:
        """How much better than the best trial points would be, in standard deviations of the
        trials' values, 0 for worse ones; shape (draws, points).
        """
        self._rng_of_draws = rng
        padded = self._padding.seen(study)
        completed = padded.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        with on_one_thread():
            self._sample_relative_impl(padded, completed, [], self._padding.distributions)
        return self._gains

    def _optimize_acqf(self, acqf: Any, best_params: Any) -> Any:
        import torch

        rng = self._rng_of_draws
        points = torch.from_numpy(self._padding.around(best_params[0], _SPREAD, _NEAR, rng))
        with torch.no_grad():
            mean, covariance = acqf._gpr.posterior(self._padding.padded(points), joint=True)
        variances, directions = np.linalg.eigh(covariance.numpy())
        spread = directions * np.sqrt(np.clip(variances, _JITTER, math.inf))
        drawn = mean.numpy() + rng.standard_normal((_DRAWS, len(points))) @ spread.T
        self._gains = np.maximum(drawn - acqf._threshold, 0.0)
        return best_params[0]
