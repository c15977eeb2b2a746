"""Removes the checkpoints of ended trials that the parameters file does not keep."""

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

    Checkpoints of trials that run, will be run again, or have failed and may be retried stay.

    Args:
        folder: the checkpoints of a study, with one folder per trial.
        records: the study's trials by number, read before `best`: a trial that ended between the
            two may be the best one, so its checkpoints stay.
        best: the numbers of the best trials.
    """
    # All tries at a trial use the same checkpoints, so the last try decides.
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
        for _, _, entry in sorted(ended):  # from the oldest to the newest, then the best
            if left <= 0:
                return
            left -= _size_of(entry)
            shutil.rmtree(entry, ignore_errors=True)


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:  # the folder was never made, or is being removed
        return []


def _is_kept(record: TrialRecord, best: Collection[int], policy: CheckpointPolicy) -> bool:
    if record.state is TrialState.PRUNED:
        return policy.pruned == "keep"
    return policy.completed == "keep" or (policy.completed == "best" and record.number in best)


def _size_of(folder: Path) -> int:
    """The bytes of all files below a folder; a file that is removed meanwhile counts nothing."""
    total = 0
    for below, _, names in os.walk(folder):  # unlike `rglob`, it skips folders that vanish
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(below, name)).st_size
    return total
