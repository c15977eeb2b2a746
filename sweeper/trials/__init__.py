"""The records that travel between folders: spec, outcome, running trial, paths, results, events.

No behaviour beyond their own values: what asks, runs or stores a trial does not belong here.
"""

from .events import Event, Events, Observer
from .paths import StudyPaths, attempt_path, run_id_of, shown
from .records import (
    Params,
    Reason,
    TrialOutcome,
    TrialRecord,
    TrialSpec,
    TrialState,
    Value,
    written,
)
from .results import Progress, Snapshot, SweepResult, counted
from .running import Channel

__all__ = [
    "Channel",
    "Event",
    "Events",
    "Observer",
    "Params",
    "Progress",
    "Reason",
    "Snapshot",
    "StudyPaths",
    "SweepResult",
    "TrialOutcome",
    "TrialRecord",
    "TrialSpec",
    "TrialState",
    "Value",
    "attempt_path",
    "counted",
    "run_id_of",
    "shown",
    "written",
]
