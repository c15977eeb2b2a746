"""The records of a trial: what to run, how it ended, and what the study stores of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from .paths import run_id_of
from .score_ranks import Disagreement

#: A value of a parameter, of a type that YAML, JSON and a parameters cell have in common.
Value = bool | int | float | str | None | list[Any] | dict[str, Any]
#: The swept parameters of one trial, by name.
Params = Mapping[str, Value]


def value_text(value: Value) -> str:
    """Format a value for people: lists and mappings as JSON, all else by `str`."""
    if isinstance(value, list | dict):
        return json.dumps(value, ensure_ascii=False)
    return str(value)


def short_text(value: Value) -> str:
    """The same, and real numbers in four digits."""
    return f"{value:.4g}" if isinstance(value, float) else value_text(value)


class TrialState(StrEnum):
    """The state of a trial, the same in its notebook, in the study and in MLflow."""

    RUNNING = "running"
    FROZEN = "frozen"  # it stands still, and goes on if it may still win
    COMPLETED = "completed"
    PRUNED = "pruned"
    FAILED = "failed"
    STOPPED = "stopped"

    @property
    def has_ended(self) -> bool:
        """Whether no kernel of the trial is alive."""
        return self not in (TrialState.RUNNING, TrialState.FROZEN)


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
    WORKER_LOST = "worker_lost"
    OUT_OF_MEMORY = "out_of_memory"  # of a GPU
    OUT_OF_HOST_MEMORY = "out_of_host_memory"
    GPU_FAULT = "gpu_fault"
    NO_GPU = "no_gpu"  # is left that works
    BY_HAND = "by_hand"
    PRUNED = "pruned"


class AloneOn(StrEnum):
    """What an attempt at a trial has for itself, because an earlier one ran out of memory."""

    GPU = "gpu"
    MACHINE = "machine"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuUse:
    """What an attempt at a trial took of its GPU, or GPUs; None for what is not known.

    Attributes:
        peak_bytes: the most memory that it held at once, CUDA's own share included.
        busy_share: of the time, in which its GPU worked for anybody.
    """

    peak_bytes: int | None = None
    busy_share: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InputFile:
    """What a trial of another study has saved, as a parameter of this one.

    Attributes:
        study: the other study's name; `study_id` is its id.
        run_id: of the trial that saved it.
        artifact: the name under which it was saved.
        sha256: of the content; of a folder, that of the list of its files with theirs.
        path: the file or folder, whose absolute path the notebook gets.
    """

    study: str
    study_id: str
    run_id: str
    artifact: str
    sha256: str
    size_bytes: int
    path: Path

    def encode(self) -> dict[str, Any]:
        """Encode as JSON data."""
        return {**asdict(self), "path": str(self.path)}

    @classmethod
    def decode(cls, data: Mapping[str, Any]) -> InputFile:
        """Decode what `encode` has made."""
        return cls(**{**data, "path": Path(data["path"])})

    def __str__(self) -> str:
        return f"{self.artifact} of trial {self.run_id} of the study {self.study!r}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedArtifact:
    """What a trial has saved for other studies.

    Attributes:
        sha256: Hash of the file; for a folder, hash of the list of its files with their hashes.
        size_bytes: Size of all files.
    """

    sha256: str
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnedTrial:
    """A completed trial of an earlier study, from which the sampler learns.

    Attributes:
        params: Its params, as far as this study has them.
        score: Its objective.
    """

    params: Params
    score: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """What Optuna has of a trial that begins, from which a lost study is made again.

    Attributes:
        params: Params as Optuna has them.
        distributions: Distribution of each param, as Optuna's JSON.
        user_attrs: User attributes of the trial, without our record.
        system_attrs: System attributes of the trial.
        noted: What samplers have noted about the study.
    """

    params: Mapping[str, Any]
    distributions: Mapping[str, str]
    user_attrs: Mapping[str, Any]
    system_attrs: Mapping[str, Any]
    noted: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialSpec:
    """One attempt at a trial: everything that decides what runs and where it is written.

    Attributes:
        code: the version of the study's fingerprint (`notebooks.fingerprint`).
        artifact_dir: for what the trial saves for other studies.
        inputs: what trials of other studies have saved, by the name of the parameter that gets its
            path.
        continues: the executed notebook of an earlier attempt, from whose checkpoints this one may
            continue; None where there is none.
        alone_on: what it has for itself; None where it runs beside others.
        proposal: what Optuna has of the trial, for its executed notebook; None in no study.
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
    artifact_dir: Path
    inputs: Mapping[str, InputFile] = field(default_factory=dict)
    code: str = ""
    continues: Path | None = None
    alone_on: AloneOn | None = None
    proposal: Proposal | None = None

    @property
    def run_id(self) -> str:
        """The trial's name for people, files and MLflow, the same in all attempts."""
        return run_id_of(self.number)


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelUse:
    """How the kernel of a trial came to be.

    Attributes:
        is_forked: whether it was forked with the notebook's libraries imported.
        shared_cells: how many tagged cells had run before the fork; 0 where it ran all itself.
        reason: why the kernel was started and not forked; empty for a forked one.
    """

    is_forked: bool
    shared_cells: int = 0
    reason: str = ""

    def __str__(self) -> str:
        if not self.is_forked:
            return "started"
        return f"forked after {self.shared_cells} cells" if self.shared_cells else "forked"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialEnd:
    """What an outcome and a record say of the last attempt at a trial.

    Attributes:
        scores: the final value of each score.
        message: why the trial did not complete, for people.
        gpu: what it took of its GPU; None where that is not known.
        is_infeasible: whether it ran out of memory with no other trial beside it, so that no trial
            with its params fits.
        not_replicable: the operations that need not repeat bit for bit, by torch's own names.
        host: the machine where it ran; empty for that of the sweep.
    """

    state: TrialState
    scores: Mapping[str, float] = field(default_factory=dict)
    reason: Reason | None = None
    message: str = ""
    duration_s: float = 0.0
    gpu: GpuUse | None = None
    is_infeasible: bool = False
    not_replicable: tuple[str, ...] = ()
    host: str = ""

    @property
    def is_final(self) -> bool:
        """Whether no later sweep runs the trial again.

        A trial that was stopped with its sweep is run again; one that was stopped by name is not.
        """
        if self.state is TrialState.STOPPED:
            return self.reason is Reason.BY_HAND
        return self.state.has_ended


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialOutcome(TrialEnd):
    """How one attempt at a trial ended.

    Attributes:
        series: the (step, value) pairs of each score, in the order of the reports.
        kernel: how its kernel came to be; None where it had none.
        environment: the name of the record of where it ran; empty where there is none.
        values_at_end: Values that swept and fixed variables had after the last cell: scalars of
            JSON, and a short `repr` of all else. Empty where they could not be read.
        disagreements: the sources that give other scores than those that count.
    """

    series: Mapping[str, list[tuple[int, float]]] = field(default_factory=dict)
    kernel: KernelUse | None = None
    environment: str = ""
    values_at_end: Mapping[str, Value] = field(default_factory=dict)
    disagreements: tuple[Disagreement, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRecord(TrialEnd):
    """What the study stores of a trial, from its start on.

    Attributes:
        retry_of: the number of the first trial with the same params, seed and checkpoints, where
            this one retries it; None for a trial that is no retry.
        repeat_of: the number of the first trial of a proposal, of which this one is a further run;
            None for the first one.
    """

    number: int
    params: Params
    seed: int
    attempt: int
    notebook: Path
    started_at_s: float = 0.0
    retry_of: int | None = None
    repeat_of: int | None = None

    def ended(self, outcome: TrialEnd) -> TrialRecord:
        """The record after an attempt that ended so."""
        names = [field.name for field in fields(TrialEnd)]
        return replace(self, **{name: getattr(outcome, name) for name in names})

    @property
    def first_number(self) -> int:
        """The number of the trial that this one retries, else its own: that of the checkpoints."""
        return self.number if self.retry_of is None else self.retry_of

    @property
    def proposal(self) -> int:
        """The number of the first trial of its proposal, of which there may be several runs."""
        return self.first_number if self.repeat_of is None else self.repeat_of

    @property
    def run_id(self) -> str:
        """The trial's name for people, files and MLflow."""
        return run_id_of(self.number)
