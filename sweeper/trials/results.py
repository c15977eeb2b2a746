"""What a study has come to, for people and for scripts."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .paths import display_path, run_id_of
from .records import Params, TrialRecord, TrialState


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a running trial is.

    Attributes:
        cell: how many of its notebook's cells have begun.
        cells: how many there are; 0 before that is known.
        step: of the last report; None when there was none.
        metrics: the last value of each.
        memory_bytes: of its kernel and what that has started, shared pages in parts; None when it
            runs elsewhere.
    """

    run_id: str
    params: Params
    attempt: int
    cell: int
    cells: int
    step: int | None
    metrics: Mapping[str, float]
    elapsed_s: float
    memory_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """How a study stands while it is swept.

    Attributes:
        trials: how many it should have.
        counts: how many are in which state.
        best: as of `SweepResult`.
        left_s: about how long it will take; None before that can be guessed.
        copy_late_s: how far the remote copy is behind; None where there is none, or it keeps up.
    """

    study: str
    trials: int
    counts: Mapping[str, int]
    objectives: Sequence[str]
    running: Sequence[Progress]
    best: Sequence[TrialRecord]
    left_s: float | None = None
    copy_late_s: float | None = None


def counted(records: Iterable[TrialRecord]) -> dict[str, int]:
    """How many trials are in which state; `running` only where there are some."""
    counts = Counter(record.state for record in records)
    ended = {str(s): counts[s] for s in TrialState if s is not TrialState.RUNNING}
    running = {"running": counts[TrialState.RUNNING]} if counts[TrialState.RUNNING] else {}
    return {**ended, **running}


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepResult:
    """What a sweep leaves behind.

    Attributes:
        best: the best trial; with several objectives all Pareto-optimal ones; empty when no trial
            completed.
        is_preempted: whether it ended because the machine is taken away.
        cost: of all sweeps of the study so far; None when no price is known.
        untold: messages that MLflow did not take; the next sweep of the study tells them again.
        sync_lag_s: how far the remote copy is behind: 0 when it has everything; None without one.
        findings: why kernels were not forked, or what keeps the notebook from being replicable.
    """

    study: str
    storage: str
    tracking_uri: str
    experiment_id: str
    objectives: Sequence[str]
    records: Sequence[TrialRecord]
    best: Sequence[TrialRecord]
    mlflow_run_ids: Mapping[str, str]
    compare_url: str | None
    stopped_by: str | None = None
    is_preempted: bool = False
    untold: int = 0
    duration_s: float = 0.0
    cost: float | None = None
    sync_lag_s: float | None = None
    findings: Sequence[str] = ()

    @property
    def counts(self) -> Mapping[str, int]:
        """How many trials of the study are in which state."""
        return counted(self.records)

    def to_json(self) -> dict[str, Any]:
        """The object that `--json` prints."""
        best = [self._trial(record, full=False) for record in self.best]
        several = len(self.objectives) > 1
        return {
            "study": self.study,
            "storage": self.storage,
            "tracking_uri": self.tracking_uri,
            "experiment_id": self.experiment_id,
            "counts": dict(self.counts),
            "best": best if several else (best[0] if best else None),
            "trials": [self._trial(record, full=True) for record in self.records],
            "cost": None if self.cost is None else round(self.cost, 4),
            "sync_lag_s": None if self.sync_lag_s is None else round(self.sync_lag_s, 1),
            "findings": list(self.findings),
            "page": None,
            "compare_url": self.compare_url,
        }

    def _trial(self, record: TrialRecord, *, full: bool) -> dict[str, Any]:
        scores = {n: v if math.isfinite(v) else str(v) for n, v in record.scores.items()}
        brief = {
            "run_id": record.run_id,
            "params": dict(record.params),
            "scores": scores,
            "notebook": display_path(record.notebook),
        }
        if not full:
            return brief
        return {
            **brief,
            "state": str(record.state),
            "reason": None if record.reason is None else str(record.reason),
            "message": record.message,
            "seed": record.seed,
            "attempt": record.attempt,
            "retry_of": None if record.retry_of is None else run_id_of(record.retry_of),
            "duration_s": round(record.duration_s, 3),
            "mlflow_run_id": self.mlflow_run_ids.get(record.run_id),
        }
