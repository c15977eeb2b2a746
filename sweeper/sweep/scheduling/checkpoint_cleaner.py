"""Remove checkpoints of ended trials while a sweep runs. An error of this module ends no trial."""

from __future__ import annotations

import logging
import shutil
import threading
from collections.abc import Mapping
from functools import cached_property

from ...errors import first_line
from ...search.repeats import plan_of_repeats
from ...settings import Settings
from ...study.located import LocatedStudy
from ...trials import (
    Confirmation,
    Repeats,
    TrialRecord,
    TrialState,
    best_trials,
    display_path,
    run_id_of,
)

_log = logging.getLogger(__name__)


class CheckpointCleaner:
    """Removes the checkpoints of ended trials, except those that the parameters file keeps.

    Trials that are running, will be run again, or have failed and may be retried always keep their
    checkpoints.

    Args:
        located: The study, open, with its paths.
        settings: Settings of the sweep. Its section `checkpoints` says what is kept.
    """

    def __init__(self, located: LocatedStudy, settings: Settings) -> None:
        self._located = located
        self._settings = settings
        self._policy = settings.checkpoints
        self._folder = located.paths.all_checkpoints
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
        needed = self._needed(records) if self._policy.completed == "best" else ()
        # All attempts at a trial and its retries use the same checkpoints, so the last attempt
        # decides.
        last = {run_id_of(record.first_number): record for record in records.values()}
        choices = {
            TrialState.COMPLETED: self._policy.completed,
            TrialState.PRUNED: self._policy.pruned,
        }
        for folder in self._folder.iterdir():
            record = last.get(folder.name)
            if record is None or record.number in needed:
                continue
            if choices.get(record.state, "keep") != "keep":
                shutil.rmtree(folder, ignore_errors=True)

    def _needed(self, records: Mapping[int, TrialRecord]) -> set[int]:
        """Return the numbers of the trials whose checkpoints `completed: best` keeps.

        These are the best trials so far, those that `confirm` would now run again on fresh seeds,
        and the winner of an earlier confirmation. With `repeat`, and in NAME-confirm, several
        trials run the same params, and the mean of their scores is known only after the last one.
        So all of them are included as long as their params may be the best or be confirmed.
        """
        study, confirm = self._located.study, self._settings.confirm
        count = 1 if confirm is None else confirm.best
        # Only trials that the parameters file still allows are confirmed.
        possible = [
            record
            for record in records.values()
            if confirm is None or self._settings.can_run_again(record.params)
        ]
        needed = [*study.best()]
        if self._settings.repeat is not None:
            repeats = Repeats(plan_of_repeats(self._settings), possible)
            contenders = repeats.contenders(count)
            needed += [run for proposal in contenders for run in proposal.runs.values()]
        elif (plan := study.facts.confirms) is not None:
            runs = Confirmation.of(study.name, plan, records.values())
            needed += [run for trial in runs.contenders for run in trial.runs.values()]
        elif confirm is not None:
            ((name, goal),) = self._settings.objective.items()
            needed += best_trials(possible, objective=name, direction=goal.direction, count=count)
        if self._confirmed is not None:
            needed += self._confirmed.best_of(records.values(), ())
        return {record.number for record in needed}

    @cached_property
    def _confirmed(self) -> Confirmation | None:
        """Ranking of this study's best trials on fresh seeds (NAME-confirm). None if there is none.

        The checkpoints of its winner are kept. If reading the ranking raises an error, the next
        access reads it again. Otherwise, the winner would lose its checkpoints if a storage was
        unavailable once.
        """
        confirming = self._located.readable_following("confirm")
        return None if confirming is None else confirming.study.confirmation
