"""Collect the learning curves of a study, which are its trials' scores by step, for pruners."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import optuna
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

Array = np.ndarray[Any, np.dtype[np.float64]]
CurveState = Literal["running", "frozen", "completed", "pruned"]
_STATES: Mapping[TrialState, CurveState] = {
    TrialState.RUNNING: "running",
    TrialState.COMPLETE: "completed",
    TrialState.PRUNED: "pruned",
}


@dataclass(frozen=True, kw_only=True)
class Curve:
    """The reports of a trial so far.

    Attributes:
        values: Reported values by step, in any order. They may be NaN.
        state: State of the trial. Failed and waiting trials have no curve.
        final: Final score. None if the trial has not completed.
        ends_at: Step at which the whole training ends, if a param such as `epochs` decides it. None
            if it is not known.
    """

    values: Mapping[int, float]
    state: CurveState
    final: float | None = None
    ends_at: int | None = None


@dataclass(frozen=True, kw_only=True)
class Curves:
    """The learning curves of a study.

    Attributes:
        by_number: Curves by trial number, of trials that have begun and not failed.
        sign: 1 if higher scores are better, else -1. After multiplication by `sign`, higher scores
            are always better.
    """

    by_number: Mapping[int, Curve]
    sign: float


def curves_of(study: optuna.Study, *, frozen: Collection[int] = ()) -> Curves:
    """Return the learning curves of a study with one objective.

    Args:
        study: Optuna's study.
        frozen: Numbers of the trials that are frozen, which means that their kernels are paused.
    """
    found = {}
    trials = study.get_trials(deepcopy=False, states=tuple(_STATES))
    ends = _known_ends(trials)
    for trial in trials:
        state = _STATES[trial.state]
        found[trial.number] = Curve(
            values=trial.intermediate_values,
            state="frozen" if state == "running" and trial.number in frozen else state,
            final=float(trial.values[0]) if state == "completed" else None,
            ends_at=ends.get(trial.number),
        )
    return Curves(by_number=found, sign=1.0 if study.direction is StudyDirection.MAXIMIZE else -1.0)


def _known_ends(trials: Sequence[FrozenTrial]) -> Mapping[int, int]:
    """Return the last step of each trial's training, if a param such as `epochs` decides it.

    A param decides the last step if completed trials had different last steps, and if the last step
    minus the param is the same number in all completed trials.

    Returns:
        The last steps by trial number. Empty if no param decides them.
    """
    lasts = {
        trial.number: trial.last_step
        for trial in trials
        if trial.state is TrialState.COMPLETE and trial.last_step is not None
    }
    if len(set(lasts.values())) < 2:
        return {}
    for name in sorted({name for trial in trials for name in trial.params}):
        counts = {
            trial.number: trial.params[name]
            for trial in trials
            if type(trial.params.get(name)) is int
        }
        if counts.keys() >= lasts.keys():
            apart, *others = {last - counts[number] for number, last in lasts.items()}
            if not others:
                return {number: count + apart for number, count in counts.items()}
    return {}
