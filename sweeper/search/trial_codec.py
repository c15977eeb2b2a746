"""Convert a trial's record to JSON, which Optuna's trial stores as an attribute, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter

from ..notebook_api.messages import encode_float
from ..trials import TrialRecord, TrialState

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

#: Name of the attribute of Optuna's trial in which the `TrialRecord` is stored as JSON.
RECORD = "sweeper"

_RECORDS = TypeAdapter(TrialRecord)


def encode(record: TrialRecord) -> dict[str, Any]:
    """Encode a trial's record as JSON, for an attribute of Optuna's trial.

    Leave out the trial number, which Optuna stores itself, and default values. The scores are
    always included.
    """
    stored: dict[str, Any] = _RECORDS.dump_python(
        record, mode="json", exclude={"number"}, exclude_defaults=True
    )
    stored["scores"] = {name: encode_float(score) for name, score in record.scores.items()}
    return stored


def record_of(trial: FrozenTrial) -> TrialRecord | None:
    """Return the record that Optuna's trial has. Return None if the trial has never begun.

    Raises:
        ValueError: The attribute `RECORD` of the trial is not a valid record. The message names the
            wrong field.
    """
    return decode(trial.number, trial.user_attrs[RECORD]) if has_begun(trial) else None


def has_begun(trial: FrozenTrial) -> bool:
    """Return whether a trial has begun: the sweep has stored a record of it in Optuna's trial.

    The record of a trial that was never run does not count (see `is_own`).
    """
    stored = trial.user_attrs.get(RECORD)
    return stored is not None and is_own(stored, has_ended=trial.state.is_finished())


def is_own(stored: Mapping[str, Any], *, has_ended: bool) -> bool:
    """Return whether the trial in which a record is stored has really begun.

    Another process, such as `enqueue` in another terminal, may use the number of a trial that is
    about to begin. Then the sweep's trial is stored under the next number, marked as failed at
    once, and never run. Its record still has the state running, although the trial has ended in
    Optuna. Such a record is to be ignored.

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
