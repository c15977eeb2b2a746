"""Define the records of a trial: its spec, its outcome, and the record that the study stores."""

from __future__ import annotations

import html
import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from enum import StrEnum
from pathlib import Path
from typing import Any
from urllib.parse import quote

from .paths import run_id_of
from .score_ranks import Disagreement

#: Value of a param. YAML, JSON and a parameters cell can express all of these types.
Value = bool | int | float | str | None | list[Any] | dict[str, Any]
#: Swept params of one trial, by name.
Params = Mapping[str, Value]


def value_text(value: Value) -> str:
    """Format a value for people: lists and mappings as JSON, other values by `str`."""
    if isinstance(value, list | dict):
        return json.dumps(value, ensure_ascii=False)
    return str(value)


def is_number(value: object) -> bool:
    """Return whether a value is a number. A bool does not count as a number."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def short_text(value: Value, digits: int = 4) -> str:
    """Format a value as `value_text` does, but floats in short: `0.497`, `2.412e-4`.

    The comparison page formats floats in the same way.

    Args:
        value: Value to format.
        digits: Number of significant digits of a float. Floats from 1,000 to 100,000 have at least
            four. Floats that are whole numbers below 100,000 have all their digits.
    """
    if not isinstance(value, float):
        return value_text(value)
    size = abs(value)
    if not math.isfinite(value) or (value.is_integer() and size < 1e5):
        return f"{value:g}"
    if 1e-3 <= size < 1e5:
        return f"{float(f'{value:.{max(digits, 4) if size >= 1000 else digits}g}'):g}"
    mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
    return f"{float(mantissa):g}e{int(exponent)}"


def params_line(params: Params) -> str:
    """Format params in one line: `lr=0.01, width=64`."""
    return ", ".join(f"{name}={short_text(value)}" for name, value in params.items())


def clipped(line: str, width: int) -> str:
    """Return a line. Replace its end by `…` if it has more characters than `width`."""
    return line if len(line) <= width else f"{line[: width - 1]}…"


def some_of(names: Sequence[str], most: int) -> str:
    """Join the first names in one line, with the number of further names.

    Args:
        names: The names.
        most: Largest number of names in the line.
    """
    n_more = len(names) - most
    return ", ".join(names[:most]) + (f" and {n_more} more" if n_more > 0 else "")


class TrialState(StrEnum):
    """State of a trial, with the same names in its notebook, in the study and in MLflow."""

    #: The trial runs, or waits for memory or a GPU.
    RUNNING = "running"
    #: `pruner: auto` has paused the kernel. It continues if the trial can still win.
    FROZEN = "frozen"
    #: All cells ran, and the objective has a finite value.
    COMPLETED = "completed"
    #: The pruner ended the trial early. It is not run again.
    PRUNED = "pruned"
    #: The notebook, its params or a limit ended the trial. `retry` queues it again.
    FAILED = "failed"
    #: The trial was interrupted. The same command runs it again, unless the reason is `by_hand`.
    STOPPED = "stopped"

    @property
    def has_ended(self) -> bool:
        """Whether the trial's kernel has ended."""
        return self not in (TrialState.RUNNING, TrialState.FROZEN)


class Reason(StrEnum):
    """Why a trial did not complete."""

    #: A cell raised an exception. Its traceback is in the trial's notebook.
    CELL_ERROR = "cell_error"
    #: No kernel started, so no cell ran. The sweep ends, and the same command runs the trial again.
    KERNEL_START = "kernel_start"
    #: The kernel's process ended, for example by a crash of a library.
    KERNEL_DIED = "kernel_died"
    #: The notebook completed, but its objective has no value that can be read.
    NO_SCORE = "no_score"
    #: The objective's final value is NaN or infinite.
    NOT_FINITE = "not_finite"
    #: The trial ran longer than `limits.trial`.
    TIME_LIMIT = "time_limit"
    #: The trial has a param from an earlier sweep that the changed notebook can no longer set. So
    #: this sweep ran none of its cells.
    PARAM_LOST = "param_lost"
    #: A cell found the disk full, the executed notebook cannot be written, or a file that this
    #: study did not write is at its path. A full disk stops the sweep. The same command runs the
    #: trial again. If the trial then finds the disk full again, it fails.
    FILE = "file"
    #: A defect of notebook-hpo or a fault of the machine ended the trial, not the notebook.
    INTERNAL = "internal"
    #: The sweep was stopped while the trial ran.
    INTERRUPTED = "interrupted"
    #: The trial lost its Dask worker, and runs again. If it has lost its worker or kernel three
    #: times in one sweep, it counts as failed.
    WORKER_LOST = "worker_lost"
    #: The memory of a GPU was too small, even without other trials on it.
    OUT_OF_MEMORY = "out_of_memory"
    #: The machine's memory was too small, even without other trials.
    OUT_OF_HOST_MEMORY = "out_of_host_memory"
    #: An error of CUDA ended the trial, even without other trials on its GPU.
    GPU_FAULT = "gpu_fault"
    #: No working GPU is left. The sweep ends, and the same command runs the trial again.
    NO_GPU = "no_gpu"
    #: The trial ran in a forked kernel, and no comparison has shown that forked kernels give the
    #: same numbers as fresh ones. So it runs again in a fresh kernel.
    UNPROVEN = "unproven"
    #: `stop STUDY RUN_ID` ended the trial. It counts as one of `study.trials`.
    BY_HAND = "by_hand"
    #: The pruner ended the trial.
    PRUNED = "pruned"


#: Reasons of failures that may lie in the params of a trial. No other trial with these params, or
#: with similar ones, is then likely to complete.
OF_PARAMS = frozenset(
    {Reason.CELL_ERROR, Reason.KERNEL_DIED, Reason.NO_SCORE, Reason.NOT_FINITE, Reason.TIME_LIMIT}
)


class Notice(StrEnum):
    """Kind of remark on a trial that a sweep shows its user, in addition to how the trial ended."""

    #: Operations whose results may differ in some bits when they are repeated, by torch's names.
    NOT_REPLICABLE = "not_replicable"
    #: Files next to the notebook that the trial has overwritten, by their relative paths.
    OVERWRITTEN_FILES = "overwritten_files"


class AloneOn(StrEnum):
    """What an attempt must not share with other trials: its GPUs, or the whole machine.

    The reason: an earlier attempt ran out of GPU or host memory, or had a CUDA error.
    """

    GPU = "gpu"
    MACHINE = "machine"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuUse:
    """How an attempt at a trial used its GPUs.

    Attributes:
        peak_bytes: Largest memory in use, in bytes, including what CUDA itself uses. None if it is
            unknown.
        busy_share: Share of the time in which the GPUs were busy, for any program. None if it is
            unknown.
    """

    peak_bytes: int | None = None
    busy_share: float | None = None

    @property
    def is_likely(self) -> bool:
        """Whether the attempt has used memory of its GPUs. True also if that is unknown."""
        return self.peak_bytes is None or self.peak_bytes > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class InputFile:
    """A file or folder that another study's trial has saved, and that this study's trials use.

    Attributes:
        study: Name of the other study.
        study_id: Id of the other study.
        run_id: Run id of the trial that saved the artifact.
        artifact: Name under which the trial saved it.
        sha256: Hash of the file. For a folder, hash of the list of its files with their hashes.
        size_bytes: Size of all files in bytes.
        path: Path of the file or folder. The notebook gets the absolute path as a param.
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
        """Decode the output of `encode`."""
        return cls(**{**data, "path": Path(data["path"])})

    def __str__(self) -> str:
        return f"{self.artifact} of trial {self.run_id} of the study {self.study!r}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedArtifact:
    """A file or folder that a trial has saved for other studies.

    Attributes:
        sha256: Hash of the file. For a folder, hash of the list of its files with their hashes.
        size_bytes: Size of all files in bytes.
    """

    sha256: str
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnedTrial:
    """A completed trial of an earlier study, from which the sampler learns.

    Attributes:
        params: Params of the trial that this study has too.
        score: Score of the trial for this study's objective.
    """

    params: Params
    score: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """Optuna's data of a trial at its start. With it, a lost study can be rebuilt.

    Attributes:
        params: Params in Optuna's form.
        distributions: Distribution of each param, as Optuna's JSON.
        user_attrs: User attributes of the trial, without the trial's record.
        system_attrs: System attributes of the trial.
        noted: Attributes that samplers have stored in the study, and not in the trial.
    """

    params: Mapping[str, Any]
    distributions: Mapping[str, str]
    user_attrs: Mapping[str, Any]
    system_attrs: Mapping[str, Any]
    noted: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialSpec:
    """One attempt at a trial: its params, and the paths of its files.

    Attributes:
        study: Name of the study.
        study_id: Id of the study.
        number: Trial number in the study.
        params: Swept params of the trial.
        fixed: Params that are the same in all trials.
        seed: Seed of the trial.
        attempt: Number of the attempt, from 1.
        notebook: Path of the executed notebook.
        checkpoint_dir: Folder of the trial's checkpoints.
        artifact_dir: Folder of the artifacts that the trial saves for other studies.
        inputs: Artifacts of other studies, by the name of the param that gets the path.
        code: Version of the code, from the study's fingerprint (`notebooks.fingerprint`).
        continues: Executed notebook of an earlier attempt whose checkpoints this attempt may use.
            None if there is none.
        alone_on: What the attempt must not share with other trials. None if it may share all.
        proposal: Optuna's data of the trial, for its executed notebook. None outside of a study.
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
    """How the kernel of a trial was made.

    Attributes:
        is_forked: Whether the kernel was forked from a process that had imported the notebook's
            libraries.
        shared_cells: Number of cells tagged `shared` that ran once, before the fork. 0 if the
            kernel ran all cells.
        reason: Why the kernel was started and not forked. Empty for a forked kernel.
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
    """The end of the last attempt at a trial: what `TrialOutcome` and `TrialRecord` have in common.

    Attributes:
        state: State of the trial.
        scores: Final value of each score.
        reason: Why the trial did not complete. None if it did.
        message: Why the trial did not complete, for people.
        duration_s: Running time in seconds, without waits.
        ended_at_s: Time at which the outcome was decided, in seconds since 1970. 0.0 if it is
            unknown.
        gpu: How the trial used its GPUs. None if it is unknown.
        is_infeasible: Whether the trial ran out of memory although no other trial ran. Then no
            trial with its params fits into memory.
        notices: Remarks on the trial: names of operations or files, by the kind of remark. A kind
            without names is missing.
        host: Name of the machine where the trial ran. Empty if it is the sweep's machine.
    """

    state: TrialState
    scores: Mapping[str, float] = field(default_factory=dict)
    reason: Reason | None = None
    message: str = ""
    duration_s: float = 0.0
    ended_at_s: float = 0.0
    gpu: GpuUse | None = None
    is_infeasible: bool = False
    notices: Mapping[Notice, tuple[str, ...]] = field(default_factory=dict)
    host: str = ""

    @property
    def first_line(self) -> str:
        """The first line of the message."""
        return self.message.strip().partition("\n")[0]

    @property
    def is_final(self) -> bool:
        """Whether the trial has ended for good, so that no later sweep runs it again.

        A trial that was stopped with its sweep is not final: the next sweep runs it again. A trial
        that a user stopped by its run id is final.
        """
        if self.state is TrialState.STOPPED:
            return self.reason is Reason.BY_HAND
        return self.state.has_ended


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialOutcome(TrialEnd):
    """The outcome of one attempt at a trial.

    Attributes:
        series: The (step, value) pairs of each score, in the order of the reports.
        kernel: How the kernel was made. None if the trial had no kernel.
        environment: Name of the file that describes the trial's environment. Empty if there is
            none.
        values_at_end: Values of swept and fixed variables after the last cell: scalars of JSON, and
            a short `repr` of other values. Empty if they could not be read.
        disagreements: Sources that give another value of a score than the source that counts.
    """

    series: Mapping[str, list[tuple[int, float]]] = field(default_factory=dict)
    kernel: KernelUse | None = None
    environment: str = ""
    values_at_end: Mapping[str, Value] = field(default_factory=dict)
    disagreements: tuple[Disagreement, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class TrialRecord(TrialEnd):
    """The study's record of a trial. It is stored as soon as the trial begins.

    Jupyter shows the record as a line with a link to the notebook, and a table of the params.

    Attributes:
        number: Trial number in the study.
        params: Swept params of the trial.
        seed: Seed of the trial.
        attempt: Number of the last attempt, from 1.
        notebook: Path of the executed notebook.
        started_at_s: Time at which the last attempt began, in seconds since 1970.
        retry_of: Number of the trial that this trial retries with the same params, seed and
            checkpoints. For the retry of a retry, number of the first of these trials. None if this
            trial is not a retry.
        repeat_of: Number of the first trial of a proposal, if this trial repeats it on another seed
            or fold. None if this trial is not a repeat.
        by_hand: Whether the trial was queued by hand, in addition to `study.trials`.
    """

    number: int
    params: Params
    seed: int
    attempt: int
    notebook: Path
    started_at_s: float = 0.0
    retry_of: int | None = None
    repeat_of: int | None = None
    by_hand: bool = False

    def __repr__(self) -> str:
        return f"<trial {self.run_id}: {self._ending}; {params_line(self.params)}>"

    def _repr_html_(self) -> str:
        file = html.escape(quote(os.path.relpath(self.notebook)))
        rows = "".join(
            f"<tr><th>{html.escape(name)}</th><td>{html.escape(value_text(value))}</td></tr>"
            for name, value in self.params.items()
        )
        line = f'trial <a href="{file}">{self.run_id}</a>: {html.escape(self._ending)}'
        return f"<p>{line}</p><table>{rows}</table>"

    @property
    def _ending(self) -> str:
        """State, scores and message of the trial in one line."""
        words = [str(self.state)]
        words += [f"{name}={value:.6g}" for name, value in self.scores.items()]
        if self.first_line:
            words.append(self.first_line)
        return ", ".join(words)

    def ended(self, outcome: TrialEnd) -> TrialRecord:
        """Return a copy of the record in which `outcome` replaces all fields of `TrialEnd`."""
        names = [field.name for field in fields(TrialEnd)]
        return replace(self, **{name: getattr(outcome, name) for name in names})

    @property
    def ran_whole(self) -> bool:
        """Whether `duration_s` is the time of the whole trial, and not only since a checkpoint."""
        return self.attempt == 1 and self.retry_of is None

    @property
    def first_number(self) -> int:
        """`retry_of`, or the trial's own number if it is not a retry.

        The folder of the trial's checkpoints has this number, so a retry can resume from them.
        """
        return self.number if self.retry_of is None else self.retry_of

    @property
    def proposal(self) -> int:
        """Number of the first trial of the proposal (the params that the sampler has chosen).

        It is the same for all repeats of the proposal on other seeds or folds.
        """
        return self.first_number if self.repeat_of is None else self.repeat_of

    @property
    def run_id(self) -> str:
        """The trial's name, such as `0007`, in messages, file names and MLflow."""
        return run_id_of(self.number)
