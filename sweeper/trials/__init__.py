"""The records that travel between folders: spec, outcome, running trial, paths, results, events.

What proposes, runs or stores a trial does not belong here.
"""

from .chores import Chore, ChoreKind, Chores
from .confirmation import (
    DEFAULT_BEST,
    DEFAULT_SEEDS,
    Confirmation,
    ConfirmedTrial,
    best_trials,
    confirmed_runs,
    has_score,
    interval_of,
    plan_of,
)
from .control import Control, Phase
from .durations import seconds_left
from .events import Event, Events, Observer, each_of
from .paths import (
    StudyPaths,
    as_template,
    attempt_path,
    display_path,
    facts_beside,
    is_utf8,
    run_id_of,
)
from .points import Points
from .records import (
    AloneOn,
    GpuUse,
    InputFile,
    KernelUse,
    LearnedTrial,
    Params,
    Reason,
    SavedArtifact,
    TrialOutcome,
    TrialRecord,
    TrialSpec,
    TrialState,
    Value,
    short_text,
    value_text,
)
from .repeats import FOLD, FOLDS, Repeats
from .results import (
    Importance,
    Progress,
    Snapshot,
    StopCause,
    SweepResult,
    count_by_state,
    left_to_begin,
    trial_json,
    without_effect,
)
from .running import RunningTrial
from .score_ranks import RANKS, Disagreement, ScoreRank, lesser_name

__all__ = [
    "DEFAULT_BEST",
    "DEFAULT_SEEDS",
    "FOLD",
    "FOLDS",
    "RANKS",
    "AloneOn",
    "Chore",
    "ChoreKind",
    "Chores",
    "Confirmation",
    "ConfirmedTrial",
    "Control",
    "Disagreement",
    "Event",
    "Events",
    "GpuUse",
    "Importance",
    "InputFile",
    "KernelUse",
    "LearnedTrial",
    "Observer",
    "Params",
    "Phase",
    "Points",
    "Progress",
    "Reason",
    "Repeats",
    "RunningTrial",
    "SavedArtifact",
    "ScoreRank",
    "Snapshot",
    "StopCause",
    "StudyPaths",
    "SweepResult",
    "TrialOutcome",
    "TrialRecord",
    "TrialSpec",
    "TrialState",
    "Value",
    "as_template",
    "attempt_path",
    "best_trials",
    "confirmed_runs",
    "count_by_state",
    "display_path",
    "each_of",
    "facts_beside",
    "has_score",
    "interval_of",
    "is_utf8",
    "left_to_begin",
    "lesser_name",
    "plan_of",
    "run_id_of",
    "seconds_left",
    "short_text",
    "trial_json",
    "value_text",
    "without_effect",
]
