"""The records that travel between folders: spec, outcome, running trial, paths, results, events.

What proposes, runs or stores a trial does not belong here.
"""

from .events import Event, Events, Observer
from .paths import StudyPaths, attempt_path, display_path, run_id_of
from .records import (
    GpuNeed,
    GpuUse,
    KernelUse,
    Params,
    Reason,
    TrialOutcome,
    TrialRecord,
    TrialSpec,
    TrialState,
    Value,
    value_text,
)
from .results import Progress, Snapshot, SweepResult, count_by_state
from .running import RunningTrial

__all__ = [
    "Event",
    "Events",
    "GpuNeed",
    "GpuUse",
    "KernelUse",
    "Observer",
    "Params",
    "Progress",
    "Reason",
    "RunningTrial",
    "Snapshot",
    "StudyPaths",
    "SweepResult",
    "TrialOutcome",
    "TrialRecord",
    "TrialSpec",
    "TrialState",
    "Value",
    "attempt_path",
    "count_by_state",
    "display_path",
    "run_id_of",
    "value_text",
]
