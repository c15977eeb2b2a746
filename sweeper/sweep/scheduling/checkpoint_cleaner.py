"""Remove checkpoints of ended trials while a sweep runs. An error of this module ends no trial."""

from __future__ import annotations

import logging
import shutil
import threading
from collections.abc import Mapping
from pathlib import Path

from ...errors import first_line
from ...settings import Settings
from ...study.study import Study
from ...trials import TrialRecord, TrialState, best_trials, display_path

_log = logging.getLogger(__name__)


class CheckpointCleaner:
    """Removes the checkpoints of ended trials, except those that the parameters file keeps.

    Trials that are running, will be run again, or have failed and may be retried always keep their
    checkpoints.

    Args:
        study: The study, open.
        settings: Settings of the sweep. Its section `checkpoints` says what is kept.
        folder: Folder with the checkpoints of all trials of the study.
    """

    def __init__(self, study: Study, settings: Settings, folder: Path) -> None:
        self._study = study
        self._settings = settings
        self._policy = settings.checkpoints
        self._folder = folder
        self._lock = threading.Lock()
        self._has_failed = False

    def clean(self, records: Mapping[int, TrialRecord]) -> None:
        """Remove the checkpoints that need not be kept. Concurrent calls run one after the other.

        Args:
            records: Records of all trials by number. Other threads may add records.
        """
        with self._lock:
            try:
                if self._folder.is_dir():
                    self._clean(dict(records))
            except Exception as error:  # noqa: BLE001  an error costs disk space, but no trial
                if not self._has_failed:
                    _log.warning(
                        "%s: old checkpoints could not be removed: %s; the sweep continues",
                        display_path(self._folder),
                        first_line(error),
                    )
                self._has_failed = True

    def _clean(self, records: Mapping[int, TrialRecord]) -> None:
        # The best trials are read after `records`. A trial that has ended in between may be the
        # best one. It still counts as running in `records`, so its checkpoints are kept.
        best = self._best(records) if self._policy.completed == "best" else ()
        # All attempts at a trial and its retries use the same checkpoints, so the last attempt
        # decides.
        last = {record.first_number: record for record in records.values()}
        for folder in self._folder.iterdir():
            record = last.get(int(folder.name)) if folder.name.isdecimal() else None
            if record is None or record.state not in (TrialState.COMPLETED, TrialState.PRUNED):
                continue
            is_pruned = record.state is TrialState.PRUNED
            choice = self._policy.pruned if is_pruned else self._policy.completed
            if choice != "keep" and record.number not in best:
                shutil.rmtree(folder, ignore_errors=True)

    def _best(self, records: Mapping[int, TrialRecord]) -> set[int]:
        """Return the numbers of the best trials, or of all trials that will be confirmed."""
        best = self._study.best()
        if self._settings.confirm is not None:
            ((name, goal),) = self._settings.objective.items()
            count = self._settings.confirm.best
            best = best_trials(
                records.values(), objective=name, direction=goal.direction, count=count
            )
        return {record.number for record in best}
