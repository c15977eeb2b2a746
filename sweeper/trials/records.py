"""The records that travel between the rooms: what to run, where it goes, how it ended."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from .paths import run_id_of

#: A value that a parameter can take; what YAML, JSON and a `parameters` cell have in common.
Value = bool | int | float | str | None | list[Any] | dict[str, Any]


Params = Mapping[str, Value]


def value_text(value: Value) -> str:
    """A value as people read it: lists and mappings as JSON."""
    if isinstance(value, list | dict):
        return json.dumps(value, ensure_ascii=False)
    return str(value)


class TrialState(StrEnum):
    """The state of a trial, as it stands in the notebook, in the study and in MLflow."""

    RUNNING = "running"
    COMPLETED = "completed"
    PRUNED = "pruned"
    FAILED = "failed"
    STOPPED = "stopped"


class Reason(StrEnum):
    """Why a trial did not complete."""

    CELL_ERROR = "cell_error"
    KERNEL_START = "kernel_start"
    KERNEL_DIED = "kernel_died"
    NO_SCORE = "no_score"
    NOT_FINITE = "not_finite"
    TIME_LIMIT = "time_limit"
    FILE = "file"
    INTERNAL = "internal"
    INTERRUPTED = "interrupted"
    BY_HAND = "by_hand"
    PRUNED = "pruned"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialSpec:
    """One try at a trial: everything that decides what will run, and where it is written.

    Attributes:
        code: the version of what the trials of its study are made of.
        continues: the executed notebook of an earlier try, from whose checkpoints this one may go
            on; None when there was none.
    """

    study: str
    study_id: str
    number: int
    params: Params
    fixed: Params
    seed: int
    attempt: int
    notebook: Path
    checkpoint_dir: Path
    code: str = ""
    continues: Path | None = None

    @property
    def run_id(self) -> str:
        """The trial's name for people, files and MLflow; stable over attempts."""
        return run_id_of(self.number)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialOutcome:
    """How one try at a trial ended. `series` has (step, value) pairs in the order reported."""

    state: TrialState
    scores: Mapping[str, float] = field(default_factory=dict)
    series: Mapping[str, list[tuple[int, float]]] = field(default_factory=dict)
    reason: Reason | None = None
    message: str = ""
    duration_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRecord:
    """What the study remembers of a trial, from its first second on.

    Attributes:
        retry_of: the number of the first trial that this one tries again, with the same params,
            seed and checkpoints.
    """

    number: int
    state: TrialState
    params: Params
    seed: int
    attempt: int
    notebook: Path
    scores: Mapping[str, float] = field(default_factory=dict)
    reason: Reason | None = None
    message: str = ""
    started_at_s: float = 0.0
    duration_s: float = 0.0
    retry_of: int | None = None

    @property
    def first(self) -> int:
        """The number of the first try, whose checkpoints all later ones use."""
        return self.number if self.retry_of is None else self.retry_of

    @property
    def is_final(self) -> bool:
        """Whether the trial is over for good.

        One that was stopped with its sweep is run again by the next; one that was singled out is
        not.
        """
        if self.state is TrialState.STOPPED:
            return self.reason is Reason.BY_HAND
        return self.state is not TrialState.RUNNING

    @property
    def run_id(self) -> str:
        """The trial's name for people, files and MLflow."""
        return run_id_of(self.number)
