"""What becomes of the checkpoints of trials that have ended."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Collection, Iterable
from pathlib import Path

from ..settings.sections import CheckpointPolicy
from ..trials import TrialRecord, TrialState


def clean(
    folder: Path,
    records: Iterable[TrialRecord],
    *,
    best: Collection[int],
    policy: CheckpointPolicy,
) -> None:
    """Remove the checkpoints that the policy does not keep.

    Those of trials that run, will be run again, or have failed and may be retried always stay.

    Args:
        folder: of all checkpoints of a study, in a folder for each trial.
        records: of the study's trials, by number, as they were before `best` was known: a trial
            that ended later may be the best one, and its checkpoints stay.
        best: the numbers of the best trials.
    """
    # A trial that tries another again uses its checkpoints, so the last of them decides.
    last = {record.first_number: record for record in records}
    ended = []
    for entry in _entries(folder):
        record = last.get(int(entry.name)) if entry.name.isdecimal() else None
        if record is None or record.state not in (TrialState.COMPLETED, TrialState.PRUNED):
            continue
        if _is_kept(record, best, policy):
            ended.append((record.number in best, record.started_at_s, entry))
        else:
            shutil.rmtree(entry, ignore_errors=True)
    if policy.limit is not None:
        left = _size_of(folder) - policy.limit
        for _, _, entry in sorted(ended):  # the oldest first, the best last
            if left <= 0:
                return
            left -= _size_of(entry)
            shutil.rmtree(entry, ignore_errors=True)


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:  # it goes, or was never made: there is nothing to clean
        return []


def _is_kept(record: TrialRecord, best: Collection[int], policy: CheckpointPolicy) -> bool:
    if record.state is TrialState.PRUNED:
        return policy.pruned == "keep"
    return policy.completed == "keep" or (policy.completed == "best" and record.number in best)


def _size_of(folder: Path) -> int:
    """Bytes of all files below; one that goes meanwhile counts nothing."""
    total = 0
    for below, _, names in os.walk(folder):  # unlike `rglob`, it passes over a folder that goes
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(below, name)).st_size
    return total
