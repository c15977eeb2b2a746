"""Trials that an earlier sweep has left open, as they should be.

A trial's notebook has its end before the study has: when a sweep was killed between the two, or its
storage was away for good, the end is read there, and the trial is not run again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from optuna.trial import FrozenTrial

from ..notebook_api.messages import decode_float
from ..notebooks import read_metadata
from ..trials import Reason, TrialRecord, TrialState
from .trial_codec import record_of


def left_open(
    trials: Iterable[FrozenTrial], facts: Mapping[str, Any]
) -> Iterator[tuple[bool, TrialRecord]]:
    """The records of trials that Optuna takes for running, while no sweep is alive.

    Args:
        facts: about the study.

    Yields:
        whether the storage says that the trial runs, and its record, with the end that it has come
        to if that is known.
    """
    for trial in trials:
        record = record_of(trial)
        if record is None:
            # Killed between asking and recording: nothing ran, nobody saw the number.
            yield False, _never_begun(trial.number)
        elif record.state is TrialState.RUNNING:
            yield True, _end_in_notebook(record, study_id=facts.get("id")) or record
        else:
            yield False, record


def interrupted(record: TrialRecord) -> TrialRecord:
    """The record of a trial that ran when its sweep was killed; one that has ended stays so."""
    if record.state is not TrialState.RUNNING:
        return record
    return replace(
        record,
        state=TrialState.STOPPED,
        reason=Reason.INTERRUPTED,
        message="the sweep was killed",
    )


def _never_begun(number: int) -> TrialRecord:
    return TrialRecord(
        number=number, state=TrialState.STOPPED, params={}, seed=0, attempt=0, notebook=Path()
    )


def _end_in_notebook(record: TrialRecord, *, study_id: str | None) -> TrialRecord | None:
    """The record of a running trial with the end that its executed notebook has.

    Args:
        study_id: of its study, which must have written the file.

    Returns:
        None where there is none for good: the trial is to be run again.
    """
    told = read_metadata(record.notebook) or {}
    try:
        if told["study_id"] != study_id or told["attempt"] != record.attempt:
            return None
        ended = replace(
            record,
            state=TrialState(told["state"]),
            scores={name: decode_float(value) for name, value in told["scores"].items()},
            reason=Reason(told["reason"]) if "reason" in told else None,
            message=told.get("message", ""),
            duration_s=float(told.get("duration_s", 0.0)),
        )
    except (KeyError, ValueError, TypeError, AttributeError):
        return None  # somebody has changed it by hand
    return ended if ended.is_final else None
