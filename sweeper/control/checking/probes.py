"""Run the notebook a few times as trials that no study has, and measure what each takes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from ...execution.local import LocalExecutor
from ...execution.machine import memory_of
from ...execution.workload import Workload
from ...notebook_api.messages import StopReason
from ...trials import RunningTrial, TrialOutcome, TrialSpec, TrialState, attempt_path

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
        attempt: 2 for a run that continues an interrupted one of the same number.
    """

    role: Role
    number: int
    params: Mapping[str, Any]
    fixed: Mapping[str, Any]
    seed: int
    attempt: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What a probe came to.

    Attributes:
        memory_bytes: the most that its processes had at once; None where that is not known.
        notebook_bytes: the size of its executed notebook.
        checkpoint_bytes: of all checkpoints that it left.
    """

    probe: Probe
    outcome: TrialOutcome
    memory_bytes: int | None
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


class _Probes:
    """Gives probes to an executor, and measures those that run. Safe to call from any thread."""

    def __init__(
        self, workload: Workload, probes: Sequence[Probe], on_begin: Callable[[Probe], None]
    ) -> None:
        self._workload = workload
        self._waiting = list(probes)
        self._on_begin = on_begin
        self._lock = threading.Lock()
        self._running: dict[int, tuple[Probe, RunningTrial, _Watch]] = {}
        self.measured: list[Measured] = []

    def next_trial(self) -> tuple[TrialSpec, RunningTrial] | None:
        """The next probe; None when there are no more."""
        with self._lock:
            if not self._waiting:
                return None
            probe = self._waiting.pop(0)
            running = RunningTrial(trials_left=len(self._waiting))
        self._on_begin(probe)
        paths = self._workload.paths
        run_id = f"{probe.number:04d}"
        notebook = paths.notebook(run_id)
        spec = TrialSpec(
            study=paths.study,
            study_id="check",
            number=probe.number,
            params=probe.params,
            fixed=probe.fixed,
            seed=probe.seed,
            attempt=probe.attempt,
            notebook=notebook,
            checkpoint_dir=paths.checkpoints(run_id),
            continues=attempt_path(notebook, probe.attempt - 1) if probe.attempt > 1 else None,
        )
        stops_at = spec.checkpoint_dir if probe.role is Role.INTERRUPTED else None
        with self._lock:
            self._running[probe.number] = probe, running, _Watch(running, stops_at)
        return spec, running

    def finish_trial(self, spec: TrialSpec, outcome: TrialOutcome) -> None:
        """Note what a probe came to."""
        with self._lock:
            probe, _, watch = self._running.pop(spec.number)
        watch.close()
        self.measured.append(
            Measured(
                probe=probe,
                outcome=outcome,
                memory_bytes=watch.memory_bytes,
                notebook_bytes=spec.notebook.stat().st_size if spec.notebook.exists() else 0,
                checkpoint_bytes=_size_of(spec.checkpoint_dir),
            )
        )
        if probe.role is Role.TYPICAL and outcome.state is not TrialState.COMPLETED:
            self._waiting.clear()
        elif probe.role is Role.INTERRUPTED and outcome.state is TrialState.COMPLETED:
            # It ended before it could be interrupted, so there is nothing to continue.
            self._waiting = [it for it in self._waiting if it.role is not Role.CONTINUED]

    def stop(self, reason: str) -> None:
        """Run no more, and stop the one that runs."""
        with self._lock:
            self._waiting.clear()
            running = [trial for _, trial, _ in self._running.values()]
        for trial in running:
            trial.stop(StopReason.INTERRUPTED, reason)

    def patience_s(self) -> float:
        """Do not wait for a disk that is full."""
        return 0.0

    def left_s(self) -> float | None:
        """As long as it takes."""
        return None


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
