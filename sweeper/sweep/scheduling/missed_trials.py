"""Logs trials to MLflow from their executed notebooks, where it lacks how they have ended."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping

from ...errors import first_line
from ...notebooks import read_executed, read_metadata
from ...notebooks.fingerprint import tags_as_run
from ...notebooks.scores import scrape
from ...settings import Settings
from ...study import Study
from ...tracking import Tracker, run_params
from ...trials import StudyPaths, TrialRecord, TrialState
from .git_tags import GitTags

_log = logging.getLogger(__name__)

#: At a sweep's end the process that writes may die so often.
_MOST_DEATHS = 3
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
            _log_one(record, tracker, settings, git_tags=git_tags, tags=tags)


def log_the_rest(
    study: Study,
    tracker: Tracker,
    settings: Settings,
    *,
    paths: StudyPaths,
    tags: Mapping[str, str],
    left_s: float | None,
) -> int:
    """Wait until MLflow has all trials, of which some were lost if its process has died.

    Each of these is waited for alone: the process may die over one of them again.

    Args:
        left_s: how long this may take; None for as long as MLflow takes something every minute.

    Returns:
        how many trials MLflow lacks. The next command on the study logs them.
    """
    until_s = None if left_s is None else time.monotonic() + left_s

    def patience_s() -> float | None:
        return None if until_s is None else max(until_s - time.monotonic(), 0.0)

    git_tags, n_deaths = GitTags(paths), tracker.n_deaths
    goes_on = tracker.wait(patience_s=patience_s())
    for record in study.records():
        is_missing = record.state is not TrialState.RUNNING and not tracker.has_end_of(record)
        if is_missing and goes_on and tracker.n_deaths - n_deaths <= _MOST_DEATHS:
            _log_one(record, tracker, settings, git_tags=git_tags, tags=tags)
            goes_on = tracker.wait(patience_s=patience_s())
    return tracker.close(patience_s=patience_s() if goes_on else 0.0)


def _log_one(
    record: TrialRecord,
    tracker: Tracker,
    settings: Settings,
    *,
    git_tags: GitTags,
    tags: Mapping[str, str],
) -> None:
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
