"""Removes the checkpoints of ended trials that the parameters file does not keep."""

from __future__ import annotations

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
    for entry in _entries(folder):
        record = last.get(int(entry.name)) if entry.name.isdecimal() else None
        if record is None or record.state not in (TrialState.COMPLETED, TrialState.PRUNED):
            continue
        if not _is_kept(record, best, policy):
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
