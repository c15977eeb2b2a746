"""A trial's record as JSON among Optuna's attributes of that trial."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter

from ..notebook_api.messages import encode_float
from ..trials import TrialRecord, TrialState

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

#: The attribute's name.
RECORD = "sweeper"

_RECORDS = TypeAdapter(TrialRecord)


def encode(record: TrialRecord) -> dict[str, Any]:
    """A record as JSON, without its number, which Optuna stores, and without unset fields."""
    stored: dict[str, Any] = _RECORDS.dump_python(
        record, mode="json", exclude={"number"}, exclude_defaults=True
    )
    return {**stored, "scores": {name: encode_float(v) for name, v in record.scores.items()}}


def record_of(trial: FrozenTrial) -> TrialRecord | None:
    """The record that a trial of Optuna's carries; None for a trial that was never begun.

    Raises:
        ValueError: the attribute is no record; the text names the field.
    """
    return decode(trial.number, trial.user_attrs[RECORD]) if has_begun(trial) else None


def has_begun(trial: FrozenTrial) -> bool:
    """Whether a trial of Optuna's carries a record of its own."""
    stored = trial.user_attrs.get(RECORD)
    return stored is not None and is_own(stored, has_ended=trial.state.is_finished())


def is_own(stored: Mapping[str, Any], *, has_ended: bool) -> bool:
    """Whether a record is that of the trial which carries it.

    Where another process has taken a trial's number, the trial is stored under the next one, has
    ended in Optuna at once, and still carries the record with which it was to begin.

    Args:
        stored: the record as JSON.
        has_ended: whether the trial has, for Optuna.
    """
    return not has_ended or stored.get("state") != TrialState.RUNNING


def decode(number: int, stored: Mapping[str, Any]) -> TrialRecord:
    """The record of a trial from its JSON.

    Raises:
        ValueError: the JSON is no record; the text names the field.
    """
    return _RECORDS.validate_python({**stored, "number": number})
