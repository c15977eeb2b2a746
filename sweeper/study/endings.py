"""How trials end: the state for Optuna, and the records of trials that an earlier sweep left open.

A trial's end is written to its notebook first and to the study second. When a sweep was killed
between the two writes, or its storage never came back, the end is read from the notebook and the
trial is not run again.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import optuna
from optuna.trial import TrialState as OptunaState

from ..notebooks.metadata import TrialMetadata, read_metadata
from ..trials import Reason, StudyPaths, TrialRecord, TrialState


def name_objectives(study: optuna.Study, objectives: Sequence[str]) -> None:
    """Give Optuna the names of the scores that `tell_optuna` stores, for its dashboard."""
    # Optuna has called the names experimental since its version 3.2.
    with warnings.catch_warnings(action="ignore", category=optuna.exceptions.ExperimentalWarning):
        study.set_metric_names(list(objectives))


def tell_optuna(study: optuna.Study, record: TrialRecord, objectives: Sequence[str]) -> None:
    """Store Optuna's state of a trial that has ended.

    Args:
        study: with a sampler that does nothing at the end of a trial.
        objectives: the names of the study's scores, in Optuna's order.
    """
    if record.state is TrialState.COMPLETED:
        study.tell(record.number, [record.scores[name] for name in objectives])
        return
    is_pruned = record.state is TrialState.PRUNED
    study.tell(record.number, state=OptunaState.PRUNED if is_pruned else OptunaState.FAIL)


def left_open(record: TrialRecord, study_id: str) -> TrialRecord:
    """The record of a trial that Optuna has as running although no sweep is alive.

    Args:
        study_id: Of the record's study. A notebook counts only if this study wrote it.

    Returns:
        with the end that the trial's executed notebook states, where the record states none; the
        same record where the notebook states no final end, so that the trial is to be run again.
    """
    if record.state.has_ended:
        return record
    metadata = read_metadata(record.notebook)
    if metadata is None or metadata.attempt != record.attempt:
        return record
    return record.ended(metadata) if _states_an_end(metadata, study_id) else record


def unknown_end(records: Iterable[TrialRecord], study_id: str, paths: StudyPaths) -> Path | None:
    """Return the executed notebook of an attempt that the study does not know; None for none.

    There is one after an older copy of the study's database was put in its place. The study may
    know an attempt without its end: a cluster's worker brings the notebook home before its answer,
    and is lost in between. Such a trial runs again.
    """
    known = {record.run_id: record.attempt for record in records}
    for run_id, path in paths.written_run_ids().items():
        metadata = read_metadata(path)
        if metadata is None or metadata.attempt <= known.get(run_id, 0):
            continue
        if _states_an_end(metadata, study_id):
            return path
    return None


def _states_an_end(metadata: TrialMetadata, study_id: str) -> bool:
    """Return whether an executed notebook of this study states a final end."""
    was_short = metadata.reason in (Reason.OUT_OF_MEMORY, Reason.OUT_OF_HOST_MEMORY)
    has_room = was_short and not metadata.is_infeasible  # other trials ran beside it
    return metadata.study_id == study_id and metadata.is_final and not has_room


def interrupted(record: TrialRecord) -> TrialRecord:
    """A running trial's record as `stopped`; the record of a trial that has ended is unchanged."""
    if record.state.has_ended:
        return record
    return replace(
        record,
        state=TrialState.STOPPED,
        reason=Reason.INTERRUPTED,
        message="the sweep was killed",
    )


def never_begun(number: int) -> TrialRecord:
    """The record of a trial whose sweep was killed before it wrote one: nothing has run."""
    return TrialRecord(
        number=number, state=TrialState.STOPPED, params={}, seed=0, attempt=0, notebook=Path()
    )
