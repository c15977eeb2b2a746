"""The state of a study and the result of a sweep, for people and for scripts (`--json`)."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

from ..notebook_api.messages import encode_float
from .chores import Chore
from .confirmation import Confirmation
from .paths import display_path, run_id_of
from .records import GpuUse, KernelUse, Params, TrialRecord, TrialState
from .result_html import headline, link, trials_table

#: So many completed trials tell that a param has no effect.
_TRIALS_TO_TELL = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a running trial is.

    Attributes:
        cell: the number of cells that have begun.
        cells: the number of all cells; 0 while it is unknown.
        step: the step of the last report; None before the first.
        metrics: the last value of each metric.
        memory_bytes: the proportional set size (PSS) of the kernel and its child processes; None
            when the kernel runs on another machine.
        host: the machine where it runs; empty for that of the sweep.
        waits_for: what it waits for before it begins: a place on its machine; empty if it does not.
        is_frozen: whether it stands still.
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
    host: str = ""
    waits_for: str = ""
    is_frozen: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The state of a study while a sweep runs.

    Attributes:
        trials: the number of trials that it should have.
        counts: the number of trials in each state.
        best: the best trials, as in `SweepResult`.
        left_s: the estimated remaining time; None before it can be estimated.
        doing: what is being done beside the trials.
    """

    study: str
    trials: int
    counts: Mapping[str, int]
    objectives: Sequence[str]
    running: Sequence[Progress]
    best: Sequence[TrialRecord]
    left_s: float | None = None
    doing: Sequence[Chore] = ()


def count_by_state(records: Iterable[TrialRecord]) -> dict[str, int]:
    """Count the trials in each state; `running` and `frozen` only where there are any."""
    counts = Counter(record.state for record in records)
    return {str(s): counts[s] for s in TrialState if s.has_ended or counts[s]}


def without_effect(records: Iterable[TrialRecord]) -> list[str]:
    """A remark on params that change no score; none where one does, or too few trials tell."""
    completed = [record for record in records if record.state is TrialState.COMPLETED]
    if len(completed) < _TRIALS_TO_TELL or len({repr(r.scores) for r in completed}) > 1:
        return []
    values = {
        name: {repr(record.params.get(name)) for record in completed}
        for name in completed[0].params
    }
    tried = [name for name in values if len(values[name]) > 1]
    return tried and [
        f"all {len(completed)} completed trials have the same scores to the last bit: "
        f"{', '.join(tried)} had no effect"
    ]


def left_to_begin(records: Iterable[TrialRecord], *, trials: int) -> int:
    """How many of so many trials have not begun."""
    begun = sum(record.is_final or not record.state.has_ended for record in records)
    return max(0, trials - begun)


class Importance(NamedTuple):
    """How much a param matters: its share, and where nine of ten samples of the trials have it."""

    share: float
    low: float
    high: float


class StopCause(StrEnum):
    """What kind of thing ended a sweep before the study had all its trials."""

    ASKED = "asked"  # somebody asked for it, or a limit of time or failures was reached
    BUDGET = "budget"  # the study has cost what it may
    FAULT = "fault"  # of this machine, which no trial is to blame for
    WORTHLESS = "worthless"  # more trials would show nothing

    @property
    def is_failure(self) -> bool:
        """Whether the command fails by it, whatever trials have completed."""
        return self in (StopCause.FAULT, StopCause.WORTHLESS)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SweepResult:
    """The result of a sweep. In Jupyter it shows the best trial, a link to its page, and a table.

    Attributes:
        best: the best trial, or all Pareto-optimal ones where there are several objectives; empty
            when no trial completed. Where the best were run again on fresh seeds, the winner.
        confirmation: what these runs, of another study, have come to; None where there are none.
        confirmation_page: the comparison page of that study; None where there is none.
        importances: what matters for each objective, by param, the greatest share first; empty
            where there are too few trials.
        page: the comparison page; None where it has not been written.
        stopped_by: who or what ended the sweep, and why; None where the study has all its trials.
        stop_cause: what kind of thing that was.
        undelivered: the number of trials whose end MLflow did not take; the next sweep of the study
            sends them again.
        undelivered_because: why MLflow did not take the last of them.
        cost: the cost of all sweeps of the study so far; None when no price is known.
        sync_lag_s: how far the remote copy is behind: 0 when it is complete; None without one.
        kernels: how the kernels of this sweep's trials came to be, in the order of their ends.
        findings: why kernels were not forked, what keeps the notebook from being replicable, and
            which code was changed while the sweep ran.
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
    page: Path | None = None
    stopped_by: str | None = None
    stop_cause: StopCause | None = None
    undelivered: int = 0
    undelivered_because: str | None = None
    duration_s: float = 0.0
    cost: float | None = None
    sync_lag_s: float | None = None
    kernels: Sequence[KernelUse] = ()
    findings: Sequence[str] = ()
    confirmation: Confirmation | None = None
    confirmation_page: Path | None = None
    importances: Mapping[str, Mapping[str, Importance]] = field(default_factory=dict)

    @property
    def counts(self) -> Mapping[str, int]:
        """The number of trials in each state."""
        return count_by_state(self.records)

    @property
    def cost_per_trial(self) -> float | None:
        """The cost of the study so far over its completed trials; None without one, or a price."""
        completed = sum(record.state is TrialState.COMPLETED for record in self.records)
        return self.cost / completed if self.cost is not None and completed else None

    def __repr__(self) -> str:
        return f"<{self.headline}>"

    def _repr_html_(self) -> str:
        stopped = None if self.stopped_by is None else html.escape(f"stopped by {self.stopped_by}")
        page = None if self.page is None else link(self.page, "compare all trials")
        about = [html.escape(self.headline), stopped, page]
        lines = "".join(f"<p>{line}</p>" for line in about if line is not None)
        return lines + trials_table(self.records, self.best, self.objectives)

    @property
    def headline(self) -> str:
        """How many trials there are, and the best, in one line."""
        return headline(
            self.study, self.counts, self.best, self.objectives, confirmation=self.confirmation
        )

    def to_json(self) -> dict[str, Any]:
        """The object that `--json` prints."""
        best = [self._best(record) for record in self.best]
        several = len(self.objectives) > 1
        return {
            "study": self.study,
            "storage": self.storage,
            "tracking_uri": self.tracking_uri,
            "experiment_id": self.experiment_id,
            "counts": dict(self.counts),
            "stopped_by": self.stopped_by,
            "stop_cause": self.stop_cause,
            "best": best if several else next(iter(best), None),
            "confirmation": self._confirmation(),
            "trials": [
                {**trial_json(record), "mlflow_run_id": self.mlflow_run_ids.get(record.run_id)}
                for record in self.records
            ],
            "importances": {
                name: {param: importance._asdict() for param, importance in found.items()}
                for name, found in self.importances.items()
            },
            "cost": _rounded(self.cost, 4),
            "cost_per_trial": _rounded(self.cost_per_trial, 4),
            "sync_lag_s": _rounded(self.sync_lag_s, 1),
            "kernels": {
                "forked": sum(kernel.is_forked for kernel in self.kernels),
                "after_shared_cells": sum(kernel.shared_cells > 0 for kernel in self.kernels),
                "started": sum(not kernel.is_forked for kernel in self.kernels),
                "reasons": dict(Counter(k.reason for k in self.kernels if k.reason)),
            },
            "findings": list(self.findings),
            "page": None if self.page is None else display_path(self.page),
            "compare_url": self.compare_url,
        }

    def _best(self, record: TrialRecord) -> dict[str, Any]:
        """A best trial; where some were confirmed also by what it has won."""
        brief, confirmation = _brief(record), self.confirmation
        if confirmation is None:
            return brief
        winner = confirmation.winner
        return {
            **brief,
            "won_by": confirmation.won_by,
            "confirmed": None if winner is None else winner.to_json(),
            "indistinguishable": [trial.run_id for trial in confirmation.alike],
        }

    def _confirmation(self) -> dict[str, Any] | None:
        if self.confirmation is None:
            return None
        page = self.confirmation_page
        return {
            **self.confirmation.to_json(),
            "page": None if page is None else display_path(page),
        }


def trial_json(record: TrialRecord) -> dict[str, Any]:
    """A trial as `--json` and `--events` print it, without MLflow's id of its run."""
    return {
        **_brief(record),
        "state": str(record.state),
        "reason": None if record.reason is None else str(record.reason),
        "message": record.message,
        "infeasible": record.is_infeasible,
        "seed": record.seed,
        "attempt": record.attempt,
        "retry_of": None if record.retry_of is None else run_id_of(record.retry_of),
        "repeat_of": None if record.repeat_of is None else run_id_of(record.repeat_of),
        "duration_s": round(record.duration_s, 3),
        **({"host": record.host} if record.host else {}),
        **_gpu_of(record.gpu),
    }


def _brief(record: TrialRecord) -> dict[str, Any]:
    return {
        "run_id": record.run_id,
        "params": dict(record.params),
        "scores": {name: encode_float(value) for name, value in record.scores.items()},
        "notebook": display_path(record.notebook),
    }


def _gpu_of(use: GpuUse | None) -> dict[str, Any]:
    """What a trial took of its GPU; every value None where that is not known."""
    return {
        "gpu_peak_bytes": use and use.peak_bytes,
        "gpu_busy_share": use and _rounded(use.busy_share, 3),
    }


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)
