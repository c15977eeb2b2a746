"""Make the pruner that a parameters file names."""

from __future__ import annotations

import math
import statistics
import warnings
from collections.abc import Mapping
from typing import Any

import optuna
from optuna.pruners import BasePruner
from optuna.trial import FrozenTrial, TrialState

from ...errors import SettingsError
from ...settings import Settings
from ..options import check_options
from .curves import curves_of
from .predictive import PredictivePruner

_CLASSES: Mapping[str, type[BasePruner]] = {
    "none": optuna.pruners.NopPruner,
    "auto": PredictivePruner,
    "median": optuna.pruners.MedianPruner,
    "percentile": optuna.pruners.PercentilePruner,
    "hyperband": optuna.pruners.HyperbandPruner,
    "asha": optuna.pruners.SuccessiveHalvingPruner,
    "patient": optuna.pruners.PatientPruner,
    "threshold": optuna.pruners.ThresholdPruner,
    "wilcoxon": optuna.pruners.WilcoxonPruner,
}
#: Values of options that have no default in Optuna.
_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "percentile": {"percentile": 25.0},
    "patient": {"patience": 3, "wrapped_pruner": None},
}


def make_pruner(settings: Settings) -> BasePruner:
    """Return the pruner of a study.

    Raises:
        SettingsError: An option does not exist or is invalid, or there are several objectives.
    """
    chosen = settings.study.pruner
    where = f"{settings.file or 'settings'}: study.pruner"
    if chosen.name != "none" and len(settings.objective) > 1:
        raise SettingsError(
            f"{where}: {chosen.name} needs a single objective, and there are "
            f"{len(settings.objective)}; set study.pruner to none"
        )
    kind = _CLASSES[chosen.name]
    check_options(
        kind, chosen.options, reserved=["wrapped_pruner"], where=f"{where}: {chosen.name}"
    )
    try:
        # Optuna warns that some pruners are experimental. The warning is ignored, because this
        # project's tests cover them.
        with warnings.catch_warnings(
            action="ignore", category=optuna.exceptions.ExperimentalWarning
        ):
            return kind(**{**_DEFAULTS.get(chosen.name, {}), **chosen.options})
    except (TypeError, ValueError) as error:
        raise SettingsError(f"{where}: {chosen.name}: {error}") from error


def why_pruned(pruner: BasePruner, study: optuna.Study, trial: FrozenTrial) -> str:
    """Return a text about a pruned trial: its latest report, and other trials to compare it with.

    With `pruner: auto`, the comparison is the predicted final score. With another pruner, or if the
    report is not finite, it is the median report of completed trials at the same step.
    """
    step = trial.last_step
    assert step is not None, "a trial that has reported nothing is not pruned"
    begins = f"pruned at step {step} with {trial.intermediate_values[step]:.6g}"
    if isinstance(pruner, PredictivePruner) and math.isfinite(trial.intermediate_values[step]):
        (outlook,) = pruner.outlooks(curves_of(study), [trial.number])
        return f"{begins}; {outlook}"
    finished = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    others = [t.intermediate_values[step] for t in finished if step in t.intermediate_values]
    middle = f", median {statistics.median(others):.6g}" if others else ""
    return f"{begins}; {len(others)} completed trials{middle}"
