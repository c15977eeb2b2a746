"""The learning curves of a study, as pruners see them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import optuna
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

#: Of numbers, one for each trial or step.
Array = np.ndarray[Any, np.dtype[np.float64]]
CurveState = Literal["running", "frozen", "completed", "pruned"]
_STATES: Mapping[TrialState, CurveState] = {
    TrialState.RUNNING: "running",
    TrialState.COMPLETE: "completed",
    TrialState.PRUNED: "pruned",
}


@dataclass(frozen=True, kw_only=True)
class Curve:
    """What a trial has reported so far.

    Attributes:
        values: what it reported, by step, in any order, also NaN.
        state: failed and waiting trials have no curve.
        final: its final score; None unless it has completed.
        ends_at: its last step; None as long as nobody knows it.
    """

    values: Mapping[int, float]
    state: CurveState
    final: float | None = None
    ends_at: int | None = None


@dataclass(frozen=True, kw_only=True)
class Curves:
    """What the trials of a study have reported.

    Attributes:
        by_number: of the trials that have begun and not failed.
        sign: 1 or -1, by which scores are multiplied, so that higher ones are better.
    """

    by_number: Mapping[int, Curve]
    sign: float


def curves_of(study: optuna.Study, *, frozen: Collection[int] = ()) -> Curves:
    """The curves of a study of one objective; the running trials among `frozen` stand still."""
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
    """The last step of each trial, where completed trials of several lengths show what decides it.

    They do when the last step of each is as far from one of its params as those of the others.
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
