"""Logs trials to MLflow that ended while it was away, from their executed notebooks."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from ...errors import first_line
from ...notebooks import read_executed, read_metadata
from ...notebooks.fingerprint import tags_as_run
from ...notebooks.scores import scrape
from ...settings import Settings
from ...study import Study
from ...tracking import Tracker, run_params
from ...trials import StudyPaths, TrialRecord
from .git_tags import GitTags

_log = logging.getLogger(__name__)

_Series = Mapping[str, list[tuple[int, float]]]


def log_missed_trials(
    study: Study,
    tracker: Tracker,
    settings: Settings,
    *,
    paths: StudyPaths,
    tags: Mapping[str, str],
) -> None:
    """Log all trials that have ended and whose ends MLflow does not have.

    Args:
        tags: for each run in MLflow.
    """
    git_tags = GitTags(paths)
    for record in study.records():
        if record.is_final and not tracker.has_end_of(record):
            tracker.started(record, run_params(settings.search_space, record.params))
            metadata = read_metadata(record.notebook) or {}
            own = {**tags_as_run(tags, metadata), **git_tags.of(metadata.get("environment", ""))}
            tracker.ended(record, _series_of(record, settings), own)


def _series_of(record: TrialRecord, settings: Settings) -> _Series:
    """The series that the notebook of a trial that ended earlier still has."""
    try:
        if not record.notebook.exists():
            return {}
        node = read_executed(record.notebook)
        return scrape(node, sources=settings.scores, objectives=settings.objective).series
    except Exception as error:  # noqa: BLE001  one old file must not keep the study from going on
        _log.warning(
            "trial %s: MLflow is given its scores, but not its series: %s",
            record.run_id,
            first_line(error),
        )
        return {}
