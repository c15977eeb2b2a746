"""The state of a study from its files alone, also while it is swept elsewhere or after it died."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any

from .devices import memory_of
from .errors import NotebookError, StudyError
from .existing import ExistingStudy
from .notebook import mark_stopped, read_executed, read_metadata
from .reporting import decode_float
from .results import Progress, Snapshot, SweepResult, counted
from .tracking import Tracker
from .trials import TrialRecord, TrialState, shown


def look(existing: ExistingStudy) -> tuple[SweepResult, Snapshot]:
    """What a study has come to, and how its running trials get on.

    Where no sweep is alive, trials and MLflow runs that one left `running` are corrected first.

    Raises:
        StudyError: the storage cannot be opened.
    """
    study, facts = existing.study, existing.study.facts
    is_alive = existing.owner is not None
    if not is_alive and any(r.state is TrialState.RUNNING for r in study.records()):
        _correct(existing)
    records, best = study.records(), study.best()
    running = [record for record in records if record.state is TrialState.RUNNING]
    result = SweepResult(
        study=study.name,
        storage=existing.storage_url,
        tracking_uri=facts["tracking_uri"],
        experiment_id=facts["experiment_id"],
        objectives=facts["objectives"],
        records=records,
        best=best,
        mlflow_run_ids=facts.get("mlflow_run_ids", {}),
        compare_url=facts.get("compare_url"),
    )
    snapshot = Snapshot(
        study=study.name,
        trials=int(facts.get("trials", len(records))),
        counts=counted(records),
        objectives=facts["objectives"],
        running=[_progress(record) for record in running],
        best=best,
    )
    return result, snapshot


def _progress(record: TrialRecord) -> Progress:
    """How far a trial is, as its notebook on disk has it."""
    told: Mapping[str, Any] = {}
    statuses: list[str] = []
    try:
        node = read_executed(record.notebook)
        told = node.metadata.get("sweeper", {})
        statuses = [cell.metadata.get("papermill", {}).get("status") for cell in node.cells]
    except NotebookError:
        pass  # its kernel is being started
    series = {**told.get("printed", {}), **told.get("series", {})}
    steps = [s["steps"][-1] for s in series.values()]
    last = {name: decode_float(s["values"][-1]) for name, s in series.items()}
    finals = {name: decode_float(value) for name, value in told.get("finals", {}).items()}
    now_s = datetime.datetime.now(datetime.UTC).timestamp()
    pid = told.get("pid")
    return Progress(
        run_id=record.run_id,
        params=record.params,
        attempt=record.attempt,
        cell=sum(status in ("completed", "running") for status in statuses),
        cells=len(statuses),
        step=max(steps, default=None),
        metrics={**last, **finals},
        elapsed_s=now_s - record.started_at_s,
        memory_bytes=memory_of(pid) if isinstance(pid, int) else None,
    )


def _correct(existing: ExistingStudy) -> None:
    study, paths = existing.study, existing.paths
    interrupted: list[TrialRecord] = study.mark_interrupted()
    for record in interrupted:
        if (read_metadata(record.notebook) or {}).get("study_id") == study.study_id:
            mark_stopped(record.notebook, record.message)
    uri = study.facts["tracking_uri"]
    tracker = Tracker.open(
        uri,
        study=study.name,
        study_id=study.study_id,
        embedded=paths.tracking,
        artifacts=paths.artifacts,
    )
    for record in interrupted:
        tracker.ended(record, {}, {})
    if tracker.close():
        raise StudyError(f"{shown(paths.folder)}: MLflow at {uri} does not take the state")
