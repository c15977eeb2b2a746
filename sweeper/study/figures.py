"""Figures of a study for a paper, as `optuna.visualization.matplotlib` draws them."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import optuna

from ..errors import SettingsError, StudyError, first_line

#: Optuna's functions by our names of the figures.
FIGURES = {
    "parallel": "plot_parallel_coordinate",
    "history": "plot_optimization_history",
    "importances": "plot_param_importances",
    "slice": "plot_slice",
    "pareto": "plot_pareto_front",
}


def figure_of(study: optuna.Study, objectives: Sequence[str], *, kind: str) -> Any:
    """A figure of matplotlib; of several objectives the first one's, but for `pareto`.

    Args:
        kind: a key of `FIGURES`.

    Raises:
        SettingsError: matplotlib is not installed.
        StudyError: the study has not what the figure needs.
    """
    from optuna.importance import FanovaImportanceEvaluator
    from optuna.visualization import matplotlib as drawing

    what: dict[str, Any] = {"target_name": objectives[0]}
    if len(objectives) > 1:  # of one the best trials are the darkest where no target is named
        what["target"] = lambda trial: trial.values[0]
    if kind == "pareto":
        what = {"target_names": [*objectives]}
    with warnings.catch_warnings(action="ignore"):  # all of this counts as experimental in Optuna
        if not drawing.is_available():
            raise SettingsError(
                "--figure needs matplotlib: pip install 'notebook-hpo[figures]' installs it"
            )
        if kind == "importances":
            what["evaluator"] = FanovaImportanceEvaluator(seed=0)
        try:
            axes = getattr(drawing, FIGURES[kind])(study, **what)
        except (ValueError, RuntimeError) as error:
            raise StudyError(f"--figure {kind}: {first_line(error)}") from error
    return np.ravel(axes)[0].figure
