"""Convert a trial's record to JSON, which Optuna's trial stores as an attribute, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter

from ..notebook_api.messages import encode_float
from ..trials import TrialRecord, TrialState

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

#: Name of Optuna's trial attribute that has the `TrialRecord`.
RECORD = "sweeper"

_RECORDS = TypeAdapter(TrialRecord)


def encode(record: TrialRecord) -> dict[str, Any]:
    """Encode a record as JSON. Leave out default values, and the number, which Optuna stores."""
    stored: dict[str, Any] = _RECORDS.dump_python(
        record, mode="json", exclude={"number"}, exclude_defaults=True
    )
    stored["scores"] = {name: encode_float(score) for name, score in record.scores.items()}
    return stored


def record_of(trial: FrozenTrial) -> TrialRecord | None:
    """Return the record that Optuna's trial has. Return None if the trial has never begun.

    Raises:
        ValueError: The attribute is not a record. The message names the field.
    """
    return decode(trial.number, trial.user_attrs[RECORD]) if has_begun(trial) else None


def has_begun(trial: FrozenTrial) -> bool:
    """Return whether a trial has begun. Only then does it have a record that belongs to it."""
    stored = trial.user_attrs.get(RECORD)
    return stored is not None and is_own(stored, has_ended=trial.state.is_finished())


def is_own(stored: Mapping[str, Any], *, has_ended: bool) -> bool:
    """Return whether a record belongs to the trial that has it.

    Another process, such as `enqueue` in another terminal, may use the number of a trial that is
    about to begin. Then the trial is stored under the next number, and is marked as failed at once.
    It still has the record with which it was to begin, whose state is running. That record does not
    belong to it.

    Args:
        stored: The record as JSON.
        has_ended: Whether the trial has ended in Optuna.
    """
    return not has_ended or stored.get("state") != TrialState.RUNNING


def decode(number: int, stored: Mapping[str, Any]) -> TrialRecord:
    """Decode the record of a trial from its JSON.

    Raises:
        ValueError: The JSON is not a record. The message names the field.
    """
    return _RECORDS.validate_python({**stored, "number": number})
