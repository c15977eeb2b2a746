"""Read the state of a study from its files, even while another process sweeps the study."""

from __future__ import annotations

import datetime
import math
from collections.abc import Sequence
from contextlib import suppress

from ..answer import answer_of_study
from ..errors import SettingsError, StudyError
from ..machine.capacity import memory_of
from ..notebooks.metadata import BLANK, read_progress
from ..notebooks.scores import series_of
from ..settings.messages import nearest
from ..study_folder.heartbeat import elsewhere_s
from ..study_folder.notes import Notes
from ..study_folder.ownership import is_held
from ..trials import (
    Progress,
    Snapshot,
    SweepResult,
    TrialRecord,
    TrialState,
    Value,
    count_by_state,
    left_to_begin,
    seconds_left,
)
from .lookup import ExistingStudy


def look(existing: ExistingStudy) -> tuple[SweepResult, Snapshot]:
    """Return the results of a study so far, and the progress of its running trials."""
    study, facts = existing.study, existing.study.facts
    records, confirmation = study.records(), existing.confirmation()
    best = existing.best(confirmation)
    running = [record for record in records if not record.state.has_ended]
    planned = len(records) if facts.trials is None else facts.trials
    to_start = left_to_begin(records, trials=planned)
    importances = study.known_importances()
    insights = None
    at_work, process = existing.at_work()
    with suppress(SettingsError, StudyError):
        # The study has no settings, or settings of another version.
        insights = answer_of_study(
            existing,
            existing.settings,
            confirmation=confirmation,
            importances=importances,
            is_running=process is not None and at_work is existing,
            is_confirming=at_work is not existing,
        )
    result = SweepResult(
        study=study.name,
        study_id=facts.id,
        storage=str(existing.storage_url),
        tracking_uri=str(existing.tracking),
        experiment_id=facts.experiment_id,
        objectives=facts.objectives,
        records=records,
        best=best,
        mlflow_run_ids=facts.mlflow_run_ids,
        compare_url=facts.compare_url,
        page=existing.paths.page if existing.paths.page.exists() else None,
        cost=existing.cost(),
        confirmation=confirmation,
        importances=importances or {},
        insights=insights,
        notes=Notes(existing.paths.notes).read(),
    )
    is_here = is_held(existing.paths) and elsewhere_s(existing.paths.owner) is None
    progress = [_progress(record, is_here=is_here) for record in running]
    snapshot = Snapshot(
        study=study.name,
        trials=planned,
        counts=count_by_state(records),
        objectives=facts.objectives,
        running=progress,
        best=best,
        left_s=(seconds_left(records, progress, to_start=to_start) if progress else None),
    )
    return result, snapshot


def sort(
    existing: ExistingStudy, records: Sequence[TrialRecord], *, by: str | None
) -> list[TrialRecord]:
    """Return the ended trials that have a certain score or param, sorted by it.

    Args:
        existing: The study.
        records: Trials to choose from.
        by: Name of an objective, of another score, or of a param. None for the first objective. For
            an objective, only completed trials are returned, the best first. Otherwise, the
            smallest value is first: numbers, then texts, then NaN and None.

    Raises:
        SettingsError: No trial has such a score or param.
        StudyError: The study has not stored its settings, which say which scores are best.
    """
    objectives = existing.settings.objective
    name = by if by is not None else next(iter(objectives))
    known: list[tuple[Value, TrialRecord]] = []
    names: set[str] = set()
    for record in records:
        if record.state.has_ended:
            values = {**record.params, **record.scores}
            names.update(values)
            if name in values:
                known.append((values[name], record))
    if not known and by is not None:
        raise SettingsError(
            f"--sort {by}: no trial has such a score or param; {nearest(by, sorted(names))}"
        )
    is_maximized = False
    if name in objectives:  # Only a completed trial has a final score.
        is_maximized = objectives[name].direction == "maximize"
        known = [pair for pair in known if pair[1].state is TrialState.COMPLETED]
    known.sort(key=lambda pair: _rank(pair[0], is_maximized))
    return [record for _, record in known]


def _rank(value: Value, is_maximized: bool) -> tuple[int, float, str]:
    """Return the key by which values are sorted: numbers first, then texts, then NaN and None."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return 2, 0.0, ""
    if isinstance(value, int | float):
        return 0, -value if is_maximized else value, ""
    return 1, 0.0, str(value)


def _progress(record: TrialRecord, *, is_here: bool) -> Progress:
    """Return the progress of a running trial, read from its executed notebook.

    Args:
        record: The trial.
        is_here: Whether the trial runs on this machine, so that its memory can be measured.
    """
    noted, statuses = read_progress(record.notebook)  # Both are empty until the kernel has started.
    metadata = noted or BLANK
    steps: list[int] = []
    last: dict[str, float] = {}
    for name, points in series_of(metadata).items():
        step, last[name] = points[-1]
        steps.append(step)
    now = datetime.datetime.now(datetime.UTC)
    # While the trial waits for memory or a GPU, its time has not begun.
    began = now if metadata.waits_for else metadata.started_at or now
    until = metadata.frozen_at or now
    memory_bytes = None
    if is_here and not metadata.host and metadata.pid is not None:
        memory_bytes = memory_of(metadata.pid)
    return Progress(
        run_id=record.run_id,
        params=record.params,
        attempt=record.attempt,
        cell=sum(status in ("completed", "running") for status in statuses),
        cells=len(statuses),
        step=max(steps, default=None),
        metrics={**last, **metadata.finals},
        elapsed_s=max(0.0, (until - began).total_seconds()),  # The machine's clock may be set back.
        memory_bytes=memory_bytes,
        host=metadata.host,
        waits_for=metadata.waits_for,
        is_frozen=record.state is TrialState.FROZEN,
    )
