"""What MLflow gets of each trial of a sweep, and of those whose ends it lacks."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping

from ...errors import StudyError, first_line
from ...notebook_api.messages import Point, PointSource
from ...notebooks.fingerprint import CODE_TAG, tags_as_run
from ...notebooks.metadata import BLANK, metadata_of, read_metadata
from ...notebooks.reading import read_notebook
from ...notebooks.scores import scrape
from ...settings import Settings
from ...study.study import Study
from ...study_folder.snapshots import read_environment
from ...tracking import Tracker, run_params
from ...trials import KernelUse, StudyPaths, TrialOutcome, TrialRecord, run_id_of

_log = logging.getLogger(__name__)

#: With these tags MLflow itself names the git commit of a run.
_GIT_TAG = "mlflow.source.git"


class TrialLog:
    """Logs the trials of a study to MLflow.

    Args:
        tags: for each run in MLflow.
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
        """The version of the code that the sweep's trials run; empty where it has none."""
        return self._tags.get(CODE_TAG, "")

    def started(self, record: TrialRecord) -> None:
        """Log that a trial has begun."""
        self._tracker.started(record, self._described(record))

    def reported(self, run_id: str, point: Point) -> None:
        """Log a point that a trial has reported, unless MLflow has it from the notebook."""
        if point.source is not PointSource.LOGGED:
            self._tracker.reported(run_id, point)

    def ended(self, record: TrialRecord, outcome: TrialOutcome) -> None:
        """Log how a trial has ended."""
        own = {**self._git(outcome.environment), **self._of_proposal(record)}
        tags = {**self._tags, **own, **_kernel_tags(outcome.kernel)}
        self._tracker.ended(record, self._described(record), outcome.series, tags)

    def finish(self, left_s: Callable[[], float | None], patience_s: Callable[[], float]) -> int:
        """Wait until MLflow has all that it was sent, then log the trials whose ends it lacks.

        Args:
            left_s: how much time the sweep has left, half of which this may take; None for as long
                as MLflow answers. It may become little meanwhile.
            patience_s: how long to wait for an answer of MLflow, likewise.

        Returns:
            how many trials MLflow lacks. The next sweep of the study logs them.
        """
        tracker, end_s = self._tracker, math.inf

        def own_s() -> float:
            nonlocal end_s
            if math.isinf(end_s) and (left := left_s()) is not None:
                end_s = time.monotonic() + left / 2
            return end_s - time.monotonic()

        is_in_time = tracker.wait(own_s, patience_s=patience_s)
        for record in self._lacking() if is_in_time else ():
            metadata = read_metadata(record.notebook) or BLANK
            git = self._git(metadata.environment)
            tags = {**tags_as_run(self._tags, metadata), **git, **self._of_proposal(record)}
            tracker.ended(record, self._described(record), self._series_of(record), tags)
        is_in_time = is_in_time and tracker.wait(own_s, patience_s=patience_s)
        tracker.close(lambda: min(own_s(), patience_s()) if is_in_time else 0.0)
        return len(self._lacking())

    def _lacking(self) -> list[TrialRecord]:
        """The trials that have ended, and whose ends MLflow does not have."""
        ended = (record for record in self._study.records() if record.state.has_ended)
        return [record for record in ended if not self._tracker.has_end_of(record)]

    def _described(self, record: TrialRecord) -> Mapping[str, str]:
        return run_params(self._settings.search_space, record.params)

    def _of_proposal(self, record: TrialRecord) -> dict[str, str]:
        """The tag by which MLflow's table groups the runs of a proposal, and shows their means."""
        repeats = self._settings.repeat is not None
        return {"sweeper.proposal": run_id_of(record.proposal)} if repeats else {}

    def _series_of(self, record: TrialRecord) -> Mapping[str, list[tuple[int, float]]]:
        """The series that the notebook of a trial that ended earlier still has."""
        if not record.notebook.exists():
            return {}
        scores, goals = self._settings.scores, self._settings.objective
        try:
            node = read_notebook(record.notebook)
            metadata = metadata_of(node) or BLANK
            return scrape(node.cells, metadata, sources=scores, objectives=goals).series
        except Exception as error:  # noqa: BLE001  one old file must not keep the study from going on
            _log.warning(
                "trial %s: MLflow is given its scores, but not its series: %s",
                record.run_id,
                first_line(error),
            )
            return {}

    def _git(self, environment: str) -> Mapping[str, str]:
        """The tags of the git commit in which a trial ran; empty where none is known.

        Args:
            environment: the name of the record of where it ran; may be empty.
        """
        try:
            found = read_environment(self._paths, environment) if environment else {}
            if not (git := found.get("git")):
                return {}
            dirty = str(git["is_dirty"]).lower()
            return {f"{_GIT_TAG}.commit": str(git["commit"]), f"{_GIT_TAG}.dirty": dirty}
        except (StudyError, LookupError, TypeError) as error:  # another machine wrote it
            _log.info("MLflow is not given the git commit: %s", error)
            return {}


def _kernel_tags(kernel: KernelUse | None) -> Mapping[str, str]:
    if kernel is None:
        return {}
    reason = {"sweeper.kernel_reason": kernel.reason} if kernel.reason else {}
    return {"sweeper.kernel_origin": str(kernel), **reason}
