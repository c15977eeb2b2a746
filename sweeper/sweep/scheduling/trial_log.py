"""Log the trials of a sweep to MLflow, and earlier trials whose ends MLflow lacks."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping

from ...errors import StudyError, first_line
from ...notebook_api.messages import Point, PointSource
from ...notebooks.fingerprint import CODE_TAG, tags_as_run
from ...notebooks.metadata import BLANK, TrialMetadata, metadata_of, read_metadata
from ...notebooks.reading import read_notebook
from ...notebooks.scores import scrape
from ...settings import Settings
from ...study.study import Study
from ...study_folder.snapshots import read_environment
from ...tracking import Tracker, run_params
from ...trials import KernelUse, StudyPaths, TrialOutcome, TrialRecord, run_id_of

_log = logging.getLogger(__name__)

#: Beginning of the names of the tags that MLflow itself uses for the git commit of a run.
_GIT_TAG = "mlflow.source.git"


class TrialLog:
    """Logs the trials of a study to MLflow.

    Args:
        study: The study, open.
        tracker: Sends the trials to MLflow.
        settings: Settings of the sweep.
        paths: Paths of the study.
        tags: Tags that each run in MLflow gets.
    """

    def __init__(
        self,
        study: Study,
        tracker: Tracker,
        settings: Settings,
        *,
        paths: StudyPaths,
        tags: Mapping[str, str],
    ) -> None:
        self._study, self._tracker, self._settings = study, tracker, settings
        self._paths, self._tags = paths, tags

    @property
    def code(self) -> str:
        """Version of the code that the sweep's trials run. Empty if there is none."""
        return self._tags.get(CODE_TAG, "")

    def started(self, record: TrialRecord) -> None:
        """Log that a trial has begun."""
        self._tracker.started(record, self._described(record))

    def reported(self, run_id: str, point: Point) -> None:
        """Log a point of a trial, unless the notebook itself has logged it to MLflow."""
        if point.source is not PointSource.LOGGED:
            self._tracker.reported(run_id, point)

    def ended(self, record: TrialRecord, outcome: TrialOutcome) -> None:
        """Log how a trial has ended.

        Args:
            record: Record of the trial after its end.
            outcome: Outcome of its last attempt.
        """
        tags = self._tags_of(record, self._tags, outcome.environment, outcome.kernel)
        self._tracker.ended(record, self._described(record), outcome.series, tags)

    def finish(self, left_s: Callable[[], float | None], patience_s: Callable[[], float]) -> int:
        """Wait until MLflow has all that was sent to it, then log the trials whose ends it lacks.

        Args:
            left_s: Returns the seconds that the sweep has left. This call may use half of them.
                None for no limit. A limit may be set while the call waits.
            patience_s: Returns the seconds to wait for one answer of MLflow. It may change
                meanwhile.

        Returns:
            Number of trials whose ends MLflow lacks. The next sweep of the study logs them.
        """
        tracker, end_s = self._tracker, math.inf

        def own_s() -> float:
            nonlocal end_s
            left = left_s()
            if math.isinf(end_s) and left is not None:
                end_s = time.monotonic() + left / 2
            return end_s - time.monotonic()

        is_in_time = tracker.wait(own_s, patience_s=patience_s)
        if is_in_time:
            for record in self._lacking():
                self._log_again(record)
            is_in_time = tracker.wait(own_s, patience_s=patience_s)
        tracker.close(lambda: min(own_s(), patience_s()) if is_in_time else 0.0)
        return len(self._lacking())

    def _log_again(self, record: TrialRecord) -> None:
        """Log the end of a trial whose end MLflow lacks, from its executed notebook."""
        metadata = read_metadata(record.notebook) or BLANK
        common = tags_as_run(self._tags, metadata)
        tags = self._tags_of(record, common, metadata.environment, _kernel_of(metadata))
        self._tracker.ended(record, self._described(record), self._series_of(record), tags)

    def _tags_of(
        self,
        record: TrialRecord,
        common: Mapping[str, str],
        environment: str,
        kernel: KernelUse | None,
    ) -> dict[str, str]:
        """Return the tags of a trial's run.

        Args:
            record: Record of the trial.
            common: Tags that all trials with the same code and settings have.
            environment: Name of the file that describes the trial's environment. Empty if there is
                none.
            kernel: How the trial's kernel was made. None if it had none.
        """
        tags = {**common, **self._git(environment)}
        if self._settings.repeat is not None:  # MLflow's table groups the repeats by this tag.
            tags["sweeper.proposal"] = run_id_of(record.proposal)
        if kernel is not None:
            tags["sweeper.kernel_origin"] = str(kernel)
            if kernel.reason:
                tags["sweeper.kernel_reason"] = kernel.reason
        return tags

    def _lacking(self) -> list[TrialRecord]:
        """Return the ended trials whose ends MLflow lacks."""
        return [
            record
            for record in self._study.records()
            if record.state.has_ended and not self._tracker.has_end_of(record)
        ]

    def _described(self, record: TrialRecord) -> Mapping[str, str]:
        return run_params(self._settings.search_space, record.params)

    def _series_of(self, record: TrialRecord) -> Mapping[str, list[tuple[int, float]]]:
        """Return the series of scores of a trial that ended earlier, from its executed notebook."""
        if not record.notebook.exists():
            return {}
        scores, goals = self._settings.scores, self._settings.objective
        try:
            node = read_notebook(record.notebook)
            metadata = metadata_of(node) or BLANK
            return scrape(node.cells, metadata, sources=scores, objectives=goals).series
        except Exception as error:  # noqa: BLE001  one damaged notebook must not end the sweep
            _log.warning(
                "trial %s: MLflow gets its scores, but not its series: %s",
                record.run_id,
                first_line(error),
            )
            return {}

    def _git(self, environment: str) -> Mapping[str, str]:
        """Return the tags for the git commit that a trial ran in. Empty if it is not known.

        Args:
            environment: Name of the file that describes the trial's environment. Empty if there is
                none.
        """
        try:
            found = read_environment(self._paths, environment) if environment else {}
            git = found.get("git")
            if git is None:
                return {}
            dirty = str(git["is_dirty"]).lower()
            return {f"{_GIT_TAG}.commit": str(git["commit"]), f"{_GIT_TAG}.dirty": dirty}
        except (StudyError, LookupError, TypeError) as error:  # The file is damaged.
            _log.info("MLflow is not given the git commit: %s", error)
            return {}


def _kernel_of(metadata: TrialMetadata) -> KernelUse | None:
    """Return how the kernel of an executed notebook was made. None if the notebook has none."""
    if metadata.kernel is None:
        return None
    return KernelUse(
        is_forked=metadata.kernel == "warm",
        shared_cells=metadata.shared_cells,
        reason=metadata.kernel_reason,
    )
