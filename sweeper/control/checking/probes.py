"""Run the notebook a few times as trials that no study has, and measure what each takes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from ...execution.local import LocalExecutor
from ...execution.machine.capacity import memory_of
from ...execution.workload import Workload
from ...notebook_api.messages import StopReason
from ...notebooks import read_cells_s
from ...trials import (
    InputFile,
    RunningTrial,
    TrialOutcome,
    TrialSpec,
    TrialState,
    attempt_path,
    run_id_of,
)
from ..side_trials import SideTrials

#: How often a kernel's memory is read.
_POLL_INTERVAL_S = 0.1


class Role(StrEnum):
    """What a probe is for."""

    TYPICAL = "typical"
    AGAIN = "the same again"
    OTHER_SEED = "another seed"
    LARGEST = "the largest sizes"
    OTHER = "other params"
    INTERRUPTED = "interrupted after its first checkpoint"
    CONTINUED = "continued from its checkpoint"
    FULL = "full length, beside others"


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """One run of the notebook.

    Attributes:
        number: of the trial, and of its executed notebook.
        inputs: what trials of other studies have saved.
        attempt: 2 for a run that continues an interrupted one of the same number.
    """

    role: Role
    number: int
    params: Mapping[str, Any]
    fixed: Mapping[str, Any]
    seed: int
    attempt: int = 1
    inputs: Mapping[str, InputFile] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What a probe came to.

    Attributes:
        memory_bytes: the most that its processes had at once; None where that is not known.
        cells_s: for how long its cells ran, without what its kernel took to boot.
        notebook_bytes: the size of its executed notebook.
        checkpoint_bytes: of all checkpoints that it left.
    """

    probe: Probe
    outcome: TrialOutcome
    memory_bytes: int | None
    cells_s: float
    notebook_bytes: int
    checkpoint_bytes: int

    @property
    def is_completed(self) -> bool:
        """Whether it ran to its end and gave every objective a finite score."""
        return self.outcome.state is TrialState.COMPLETED


def run_probes(
    workload: Workload, probes: Sequence[Probe], *, jobs: int, on_begin: Callable[[Probe], None]
) -> tuple[list[Measured], Sequence[str]]:
    """Run probes in their order; none after a typical one that fails.

    Args:
        workload: with paths in a folder that is removed afterwards.
        jobs: how many run at once.
        on_begin: called when a probe begins.

    Returns:
        what each came to, and what the executor found of how kernels came to be.
    """
    source = _Probes(workload, probes, on_begin)
    findings = LocalExecutor.on_this_machine(workload, jobs).run(source)
    return source.measured, findings


class _Probes(SideTrials[Probe]):
    """Gives probes to an executor, and measures those that run."""

    def __init__(
        self, workload: Workload, probes: Sequence[Probe], on_begin: Callable[[Probe], None]
    ) -> None:
        super().__init__(probes)
        self._workload = workload
        self._on_begin = on_begin
        self._watches: dict[int, _Watch] = {}
        self.measured: list[Measured] = []

    def begin(self, item: Probe, running: RunningTrial) -> TrialSpec:
        """Make the spec of a probe, and watch it from now on."""
        self._on_begin(item)
        paths, run_id = self._workload.paths, run_id_of(item.number)
        notebook = paths.notebook(run_id)
        spec = TrialSpec(
            study=paths.study,
            study_id="check",
            number=item.number,
            params=item.params,
            fixed=item.fixed,
            seed=item.seed,
            attempt=item.attempt,
            notebook=notebook,
            checkpoint_dir=paths.checkpoints(run_id),
            artifact_dir=paths.saved(run_id),
            inputs=item.inputs,
            continues=attempt_path(notebook, item.attempt - 1) if item.attempt > 1 else None,
        )
        stops_at = spec.checkpoint_dir if item.role is Role.INTERRUPTED else None
        self._watches[item.number] = _Watch(running, stops_at)
        return spec

    def end(self, item: Probe, spec: TrialSpec, outcome: TrialOutcome) -> None:
        """Note what a probe came to."""
        watch = self._watches.pop(item.number)
        watch.close()
        self.measured.append(
            Measured(
                probe=item,
                outcome=outcome,
                memory_bytes=watch.memory_bytes,
                cells_s=read_cells_s(spec.notebook),
                notebook_bytes=spec.notebook.stat().st_size if spec.notebook.exists() else 0,
                checkpoint_bytes=_size_of(spec.checkpoint_dir),
            )
        )
        is_completed = outcome.state is TrialState.COMPLETED
        if item.role is Role.TYPICAL and not is_completed:
            self.drop(lambda _: True)
        elif item.role is Role.INTERRUPTED and is_completed:
            # It ended before it could be interrupted, so there is nothing to continue.
            self.drop(lambda other: other.role is Role.CONTINUED)


class _Watch:
    """Reads a kernel's memory while its trial runs, on a thread of its own.

    Args:
        stops_at: a folder of checkpoints; the trial is stopped when the first one is complete.
    """

    def __init__(self, running: RunningTrial, stops_at: Path | None) -> None:
        self.memory_bytes: int | None = None
        self._running, self._stops_at = running, stops_at
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._work, name="probe", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread."""
        self._closing.set()
        self._thread.join()

    def _work(self) -> None:
        while not self._closing.wait(_POLL_INTERVAL_S):
            pid = self._running.pid
            if pid is None:
                continue
            memory_bytes = memory_of(pid)
            if memory_bytes is not None:
                self.memory_bytes = max(self.memory_bytes or 0, memory_bytes)
            if self._stops_at is not None and any(self._stops_at.glob("*.ckpt")):
                self._running.stop(StopReason.BY_HAND, "interrupted by the check")


def _size_of(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
