"""Our record of a trial, as it lies among Optuna's attributes of it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from optuna.trial import FrozenTrial

from ..trials import Reason, TrialRecord, TrialState

#: The attribute's name.
RECORD = "sweeper"


def encode(record: TrialRecord) -> dict[str, Any]:
    """A record as JSON."""
    return {
        "state": str(record.state),
        "params": dict(record.params),
        "seed": record.seed,
        "attempt": record.attempt,
        "notebook": str(record.notebook),
        # JSON has no NaN; a score that is not finite is still told.
        "scores": {k: v if math.isfinite(v) else str(v) for k, v in record.scores.items()},
        "reason": None if record.reason is None else str(record.reason),
        "message": record.message,
        "started_at_s": record.started_at_s,
        "duration_s": record.duration_s,
        "retry_of": record.retry_of,
    }


def record_of(trial: FrozenTrial) -> TrialRecord | None:
    """What we know of a trial; None when it was never begun."""
    told = trial.user_attrs.get(RECORD)
    if told is None:
        return None
    return TrialRecord(
        number=trial.number,
        state=TrialState(told["state"]),
        params=told["params"],
        seed=told["seed"],
        attempt=told["attempt"],
        notebook=Path(told["notebook"]),
        scores={name: float(value) for name, value in told["scores"].items()},
        reason=None if told["reason"] is None else Reason(told["reason"]),
        message=told["message"],
        started_at_s=told["started_at_s"],
        duration_s=told["duration_s"],
        retry_of=told.get("retry_of"),
    )
