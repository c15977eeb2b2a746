"""Store how trials have ended, and find the ends of trials that a sweep could not store.

A trial's end is written first to its executed notebook, then to the study. If a sweep was killed in
between, or its storage stayed unavailable, the end is read from the notebook. The trial is not run
again.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from pathlib import Path

import optuna
from optuna.trial import TrialState as OptunaState

from ..notebooks.metadata import TrialMetadata, read_metadata
from ..study_folder.saved import saved_in
from ..trials import (
    Reason,
    StudyPaths,
    TrialOutcome,
    TrialRecord,
    TrialSpec,
    TrialState,
)
from ..trials.records import TrialEnd
from .facts import StudyFacts


def name_objectives(study: optuna.Study, objectives: Sequence[str]) -> None:
    """Store the names of the objectives in Optuna's study, in the order of its scores.

    Optuna's dashboard shows them.
    """
    # Optuna warns that metric names are experimental, as they have been since version 3.2.
    with warnings.catch_warnings(action="ignore", category=optuna.exceptions.ExperimentalWarning):
        study.set_metric_names(list(objectives))


def tell_optuna(study: optuna.Study, record: TrialRecord, objectives: Sequence[str]) -> None:
    """Store Optuna's state and scores of a trial that has ended.

    Args:
        study: Optuna's study. Its sampler must do nothing at the end of a trial.
        record: Record of the trial.
        objectives: Names of the scores in Optuna's order.
    """
    if record.state is TrialState.COMPLETED:
        study.tell(record.number, [record.scores[name] for name in objectives])
    elif record.state is TrialState.PRUNED:
        study.tell(record.number, state=OptunaState.PRUNED)
    else:
        study.tell(record.number, state=OptunaState.FAIL)


def left_open(record: TrialRecord, facts: StudyFacts) -> TrialRecord:
    """Return a trial's record with the end that its executed notebook states.

    This is for a trial that Optuna still stores as running, although its sweep has ended.

    Args:
        record: The study's record of the trial.
        facts: Facts of the study. A notebook that another study wrote is ignored.

    Returns:
        The record with that end. `record` unchanged if it states an end itself, or if the notebook
        states no final end of the same attempt.
    """
    if record.state.has_ended:
        return record
    metadata = read_metadata(record.notebook)
    if metadata is None or metadata.attempt != record.attempt:
        return record
    return record.ended(metadata) if _states_an_end(metadata, facts) else record


def sent_outcome(spec: TrialSpec, facts: StudyFacts) -> TrialOutcome | None:
    """Read the outcome of an attempt from its executed notebook.

    This is for an attempt on a cluster whose worker was lost after it had sent the notebook, but
    before it sent the outcome.

    Args:
        spec: Spec of the attempt.
        facts: Facts of its study.

    Returns:
        The outcome. None if the executed notebook states no final end of this attempt, or if
        artifacts of the trial are missing on this machine. Then the trial must run again.
    """
    metadata = read_metadata(spec.notebook)
    if metadata is None or metadata.attempt != spec.attempt:
        return None
    if not _states_an_end(metadata, facts):
        return None
    if metadata.artifacts and saved_in(spec.artifact_dir) != metadata.artifacts:
        return None
    return TrialOutcome(
        **{part.name: getattr(metadata, part.name) for part in fields(TrialEnd)},
        environment=metadata.environment,
        values_at_end=metadata.values_at_end,
        disagreements=metadata.disagreements,
    )


def unknown_end(
    records: Iterable[TrialRecord], facts: StudyFacts, paths: StudyPaths
) -> Path | None:
    """Return an executed notebook with the end of an attempt that the study's database lacks.

    Such a notebook exists if the database was replaced by an older copy. None if there is none.

    If the database has the attempt but not its end, its notebook is not returned: a cluster's
    worker may have been lost after it sent the notebook and before it sent the trial's artifacts.
    The trial then runs again.

    Args:
        records: Records of the study's trials.
        facts: Facts of the study. A notebook that another study wrote is ignored.
        paths: Paths of the study.
    """
    known = {record.run_id: record.attempt for record in records}
    for run_id, path in paths.written_run_ids().items():
        metadata = read_metadata(path)
        if metadata is None or metadata.attempt <= known.get(run_id, 0):
            continue
        if _states_an_end(metadata, facts):
            return path
    return None


def has_all_scores(end: TrialMetadata | TrialOutcome, objectives: Iterable[str]) -> bool:
    """Return whether a trial has the scores that it must have.

    A completed trial must have a finite value of each objective. Any other trial needs no scores.
    """
    if end.state is not TrialState.COMPLETED:
        return True
    return all(math.isfinite(end.scores.get(name, math.nan)) for name in objectives)


def _states_an_end(metadata: TrialMetadata, facts: StudyFacts) -> bool:
    """Return whether an executed notebook was written by this study and states a final end.

    A completed trial must have its scores. An edited notebook, or one that a faulty worker has
    sent, may lack them.
    """
    if metadata.study_id != facts.id or not metadata.is_final:
        return False
    # A trial that ran out of memory or lost its GPU next to other trials may complete alone.
    shared = (Reason.OUT_OF_MEMORY, Reason.OUT_OF_HOST_MEMORY, Reason.GPU_FAULT)
    if metadata.reason in shared and not metadata.is_infeasible:
        return False
    return has_all_scores(metadata, facts.objectives)


def interrupted(record: TrialRecord) -> TrialRecord:
    """Return the record of a running trial as stopped. Return any other record unchanged."""
    if record.state.has_ended:
        return record
    return replace(
        record,
        state=TrialState.STOPPED,
        reason=Reason.INTERRUPTED,
        message="the sweep was killed",
    )


def never_begun(number: int) -> TrialRecord:
    """Return a substitute for the record of a trial that was killed before its record was stored.

    No cell of such a trial has run.
    """
    return TrialRecord(
        number=number, state=TrialState.STOPPED, params={}, seed=0, attempt=0, notebook=Path()
    )
