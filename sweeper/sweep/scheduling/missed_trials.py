"""Logs trials to MLflow that ended while it was away, from their executed notebooks."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from ...errors import first_line
from ...notebooks import METADATA, read_executed, read_metadata
from ...notebooks.fingerprint import tags_as_run
from ...notebooks.scores import scrape
from ...settings import Settings
from ...study import Study
from ...tracking import Tracker, run_params
from ...trials import GpuSample, StudyPaths, TrialRecord, samples_in
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
            series, gpu_samples = _kept_by(record, settings)
            metadata = read_metadata(record.notebook) or {}
            own = {**tags_as_run(tags, metadata), **git_tags.of(metadata.get("environment", ""))}
            tracker.ended(record, series, own, gpu_samples)


def _kept_by(record: TrialRecord, settings: Settings) -> tuple[_Series, Sequence[GpuSample]]:
    """What the notebook of a trial that ended earlier still has: series, and what GPUs did."""
    try:
        if not record.notebook.exists():
            return {}, ()
        node = read_executed(record.notebook)
        series = scrape(node, sources=settings.scores, objectives=settings.objective).series
        return series, samples_in(node.metadata.get(METADATA, {}))
    except Exception as error:  # noqa: BLE001  one old file must not keep the study from going on
        _log.warning(
            "trial %s: MLflow is given its scores, but not its series: %s",
            record.run_id,
            first_line(error),
        )
        return {}, ()
