"""A trial's record as JSON among Optuna's attributes of that trial."""

from __future__ import annotations

import math
from typing import Any

from optuna.trial import FrozenTrial
from pydantic import TypeAdapter

from ..trials import TrialRecord

#: The attribute's name.
RECORD = "sweeper"

_RECORDS = TypeAdapter(TrialRecord)


def encode(record: TrialRecord) -> dict[str, Any]:
    """A record as JSON, without its number, which Optuna stores."""
    stored: dict[str, Any] = _RECORDS.dump_python(record, mode="json", exclude={"number"})
    # JSON has no NaN and no infinity, and a score may be one.
    stored["scores"] = {k: v if math.isfinite(v) else str(v) for k, v in record.scores.items()}
    return stored


def record_of(trial: FrozenTrial) -> TrialRecord | None:
    """The record that a trial of Optuna's carries; None for a trial that was never begun.

    Raises:
        ValueError: the attribute is no record; the text names the field.
    """
    stored = trial.user_attrs.get(RECORD)
    if stored is None:
        return None
    return _RECORDS.validate_python({**stored, "number": trial.number})
