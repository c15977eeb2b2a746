"""Define the state of a study and the result of a sweep, for people and scripts (`--json`)."""

from __future__ import annotations

import html
import math
import struct
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from pathlib import Path
from typing import Any

from ..notebook_api.messages import encode_float
from .chores import Chore
from .confirmation import Confirmation, key_of
from .insights import Importance, Insights
from .notes import NO_NOTE, TrialNote
from .paths import display_path, run_id_of
from .records import KernelUse, Params, TrialRecord, TrialState
from .result_html import counts_line, link, sentences_list, trials_table

#: A score is coarse if it is a fraction with at most this denominator (chosen, not measured), such
#: as an accuracy over 10,000 examples. Different models often have the same accuracy, but never the
#: same log loss to the last bit.
_MOST_EXAMPLES = 10_000
#: A float counts as equal to a fraction if their difference is at most this, relative to the float
#: or to 1, whichever is larger.
_ROUNDING = 1e-12
#: Largest denominator and relative difference for a float of single precision, as torch computes
#: accuracies. With larger denominators, nearly every such float would be near a fraction; with this
#: one, 2 % of them are (computed).
_MOST_EXAMPLES_SINGLE, _ROUNDING_SINGLE = 1_000, 2.0**-24


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The progress of a running trial.

    Attributes:
        run_id: Run id of the trial.
        params: Swept params of the trial.
        attempt: Number of the attempt, from 1.
        cell: Number of cells that have begun.
        cells: Number of all cells. 0 if it is not known yet.
        step: Step of the last report. None before the first report.
        metrics: Last value of each metric.
        elapsed_s: Running time in seconds, without waits.
        memory_bytes: Proportional set size (PSS) of the kernel and its child processes, in bytes.
            None if the kernel runs on another machine.
        host: Name of the machine where the trial runs. Empty if it is the sweep's machine.
        waits_for: What the trial waits for before it begins, such as memory. Empty if it does not
            wait.
        is_frozen: Whether the trial is frozen: its kernel is paused, and it holds no slot.
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
        study: Name of the study.
        trials: Planned number of trials of the study.
        counts: Number of trials by state.
        objectives: Names of the objectives.
        running: Progress of each running trial.
        best: Best trials, as in `SweepResult`.
        left_s: Predicted remaining time in seconds. None if it cannot be predicted yet.
        doing: Chores of the sweep: work other than trials, such as writing the page.
    """

    study: str
    trials: int
    counts: Mapping[str, int]
    objectives: Sequence[str]
    running: Sequence[Progress]
    best: Sequence[TrialRecord]
    left_s: float | None = None
    doing: Sequence[Chore] = ()

    @property
    def n_ended(self) -> int:
        """Number of trials that have ended."""
        return sum(n for state, n in self.counts.items() if TrialState(state).has_ended)


def count_by_state(records: Iterable[TrialRecord]) -> dict[str, int]:
    """Count the trials by state. `running` and `frozen` are left out if they are 0."""
    counts = Counter(record.state for record in records)
    return {str(s): counts[s] for s in TrialState if s.has_ended or counts[s]}


def have_equal_scores(records: Sequence[TrialRecord]) -> bool:
    """Return whether all trials have the same scores to the last bit. False without trials."""
    return len({repr(sorted(record.scores.items())) for record in records}) == 1


def is_coarse(value: float) -> bool:
    """Return whether a score is so coarse that different models often have the same score.

    A score is coarse if it is a whole number, or a share of at most 10,000 examples (such as an
    accuracy), also in percent. A share of single precision is recognized only for at most 1,000
    examples, and for exactly 10,000. NaN and infinities are coarse, too.
    """
    if not math.isfinite(value):
        return True
    fraction = Fraction(value).limit_denominator(_MOST_EXAMPLES)
    if abs(value - fraction) <= _ROUNDING * max(1.0, abs(value)):
        return True
    if abs(value) > 100 or value != struct.unpack("f", struct.pack("f", value))[0]:
        return False
    share = value if abs(value) <= 1 else value / 100
    shares = (
        Fraction(share).limit_denominator(_MOST_EXAMPLES_SINGLE),
        Fraction(round(share * _MOST_EXAMPLES), _MOST_EXAMPLES),
    )
    return any(abs(share - near) <= _ROUNDING_SINGLE * abs(share) for near in shares)


def left_to_begin(
    records: Iterable[TrialRecord], *, trials: int, combinations: int | None = None
) -> int:
    """Return how many of the planned trials have not begun, or were interrupted and must run again.

    Args:
        records: Records of the trials. Trials that were queued by hand do not count as planned.
        trials: Planned number of trials of the study.
        combinations: Number of combinations of params, if the study also ends when all of them
            have run. None if it does not.
    """
    begun = [record for record in records if record.is_final or not record.state.has_ended]
    left = trials - sum(not record.by_hand for record in begun)
    if combinations is not None:
        left = min(left, combinations - len({key_of(record.params) for record in begun}))
    return max(0, left)


class StopCause(StrEnum):
    """Kind of reason that ended a sweep before the study had all its trials."""

    #: A user asked for it, or a limit of time or failures was reached.
    ASKED = "asked"
    #: The study's `cost.budget` is spent.
    BUDGET = "budget"
    #: This machine has a fault, such as a disk that cannot be written.
    FAULT = "fault"
    #: Further trials would show nothing new, because the swept params have no effect.
    WORTHLESS = "worthless"

    @property
    def is_failure(self) -> bool:
        """Whether the command fails for this reason, even if trials have completed."""
        return self in (StopCause.FAULT, StopCause.WORTHLESS)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SweepResult:
    """The result of a sweep.

    Jupyter shows the counts of trials, `why_incomplete`, a link to the comparison page, the
    sentences of `insights`, and a table of the trials. What is None is left out.

    Attributes:
        study: Name of the study.
        study_id: Id of the study. No other study has it, not even one with the same name.
        storage: URL of the Optuna storage.
        tracking_uri: MLflow tracking URI.
        experiment_id: Id of the study's experiment in MLflow.
        objectives: Names of the objectives.
        records: Records of all trials of the study.
        counts_here: Number of trials of the study that ended in this sweep, by state. Trials of
            earlier sweeps are left out.
        confirmed_here: Number of trials, by state, of the study that confirms the best trials on
            fresh seeds. Only trials that ended in this sweep are counted.
        best: The best trial, or all Pareto-optimal trials if there are several objectives. If
            trials were confirmed on fresh seeds, their winner. Empty if no trial has completed.
        mlflow_run_ids: Ids of the trials' runs in MLflow, by run id of the trial.
        compare_url: URL of MLflow's comparison of the runs. None if there is none.
        page: Path of the comparison page. None if it was not written.
        stopped_by: Who or what ended the sweep, and why. None if the study has all its trials.
        stop_cause: Kind of the reason that ended the sweep. None if the study has all its trials.
        undelivered: Number of trials whose end MLflow has not recorded. The next sweep of the study
            sends these ends.
        undelivered_because: Why MLflow did not accept the last of these ends. None if `undelivered`
            is 0.
        duration_s: Duration of the sweep in seconds.
        cost: Cost of all sweeps of the study so far. None if no price is known.
        sync_lag_s: Seconds by which the remote copy is out of date. 0 if the copy is complete. None
            if there is no copy.
        kernels: How the kernels of this sweep's trials were made, in the order in which the trials
            ended.
        findings: Remarks for users, such as why kernels were not forked, why the notebook is not
            replicable, and which code has changed while the sweep ran.
        confirmation: Ranking of trials by their mean scores over several runs: those of the study
            that confirms the best trials on fresh seeds, else those of a search that repeats its
            proposals. None if there are no such runs.
        confirmation_page: Path of the comparison page of the confirming study. None if there is no
            such page.
        not_confirmed: Why the best trials were not confirmed, although the settings ask for it.
            None if nothing prevented it.
        importances: Importance of each param, by objective, then by param, the largest first. Empty
            if there are too few trials.
        insights: The answer of the study: the winner, what mattered, what to do next. None if the
            study has stored no settings, or if the analysis has failed.
        notes: What people have noted about trials, by run id.
    """

    study: str
    study_id: str
    storage: str
    tracking_uri: str
    experiment_id: str
    objectives: Sequence[str]
    records: Sequence[TrialRecord]
    best: Sequence[TrialRecord]
    mlflow_run_ids: Mapping[str, str]
    compare_url: str | None
    counts_here: Mapping[str, int] = field(default_factory=dict)
    confirmed_here: Mapping[str, int] = field(default_factory=dict)
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
    not_confirmed: str | None = None
    importances: Mapping[str, Mapping[str, Importance]] = field(default_factory=dict)
    insights: Insights | None = None
    notes: Mapping[str, TrialNote] = field(default_factory=dict)

    @property
    def counts(self) -> Mapping[str, int]:
        """Number of trials by state."""
        return count_by_state(self.records)

    @property
    def cost_per_trial(self) -> float | None:
        """Cost of the study divided by its number of completed trials.

        None if no price is known or no trial has completed.
        """
        completed = sum(record.state is TrialState.COMPLETED for record in self.records)
        return self.cost / completed if self.cost is not None and completed else None

    @property
    def is_failure(self) -> bool:
        """Whether the command fails even if trials have completed.

        True if a fault ended the sweep, if it ended because the swept params have no effect, or if
        the best trials were not confirmed although the settings ask for it.
        """
        is_fault = self.stop_cause is not None and self.stop_cause.is_failure
        return is_fault or self.not_confirmed is not None

    @property
    def why_incomplete(self) -> str | None:
        """Why trials are missing, or the best ones were not confirmed. None if neither is so."""
        if self.not_confirmed is not None:
            return f"the best trials were not confirmed: {self.not_confirmed}"
        return None if self.stopped_by is None else f"stopped by {self.stopped_by}"

    def __repr__(self) -> str:
        return f"<{self.headline}>"

    def _repr_html_(self) -> str:
        lines = [html.escape(f"study {self.study}: {counts_line(self.counts)}")]
        if self.why_incomplete is not None:
            lines.append(html.escape(self.why_incomplete))
        if self.page is not None:
            lines.append(link(self.page, "compare all trials"))
        shown = "".join(f"<p>{line}</p>" for line in lines)
        if self.insights is not None:
            shown += sentences_list(self.insights.sentences)
        return shown + trials_table(self.records, self.best, self.objectives)

    @property
    def headline(self) -> str:
        """Counts of trials and the best trial, in one line."""
        line = f"study {self.study}: {counts_line(self.counts)}"
        if self.best:
            best = self.best[0]
            scores = [f"{name}={best.scores[name]:.6g}" for name in self.objectives]
            line += f"; best: {', '.join([best.run_id, *scores])}"
            mean = None if self.confirmation is None else self.confirmation.winning_mean
            line += "" if mean is None else f", by a {mean}"
        return line

    def to_json(self) -> dict[str, Any]:
        """Return the object that `--json` prints."""
        best: Any = [self._best(record) for record in self.best]
        if len(self.objectives) == 1:
            best = best[0] if best else None
        return {
            "study": self.study,
            "storage": self.storage,
            "tracking_uri": self.tracking_uri,
            "experiment_id": self.experiment_id,
            "counts": dict(self.counts),
            "stopped_by": self.stopped_by,
            "stop_cause": self.stop_cause,
            "best": best,
            "confirmation": self._confirmation(),
            "not_confirmed": self.not_confirmed,
            "trials": [
                {
                    **trial_json(record),
                    **self.notes.get(record.run_id, NO_NOTE).to_json(),
                    "mlflow_run_id": self.mlflow_run_ids.get(record.run_id),
                }
                for record in self.records
            ],
            "importances": {
                name: {param: importance._asdict() for param, importance in found.items()}
                for name, found in self.importances.items()
            },
            "insights": None if self.insights is None else self.insights.to_json(),
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
        """Return a best trial as JSON. If trials were confirmed, include the winner's mean."""
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
    """Return a trial as `--json` and `--events` print it, without the id of its MLflow run."""
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
        "host": record.host,
        "notices": {str(kind): list(names) for kind, names in record.notices.items()},
        "gpu_peak_bytes": None if record.gpu is None else record.gpu.peak_bytes,
        "gpu_busy_share": None if record.gpu is None else _rounded(record.gpu.busy_share, 3),
    }


def _brief(record: TrialRecord) -> dict[str, Any]:
    return {
        "run_id": record.run_id,
        "params": dict(record.params),
        "scores": {name: encode_float(value) for name, value in record.scores.items()},
        "notebook": display_path(record.notebook),
    }


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)
