"""Keep the executed notebook of an earlier attempt under another name."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

from ..notebooks.metadata import BLANK, read_metadata
from ..study_folder.patience import Patience
from ..trials import Reason, TrialOutcome, TrialSpec, attempt_path
from .verdict import failed


def keep_earlier_attempt(spec: TrialSpec, patience: Patience) -> TrialOutcome | None:
    """Rename the executed notebook of the attempt before, so that this one can be written.

    Args:
        spec: Spec of the trial.
        patience: Repeats a call while the disk is unavailable.

    Returns:
        The failure of the trial, if a file that the study did not write has the notebook's path.
        Else None.

    Raises:
        OSError: The file cannot be read or renamed.
    """
    path = spec.notebook
    owner = patience.insist(partial(_study_of, path))
    if owner not in (None, spec.study_id):
        message = f"{path} appeared meanwhile and was not written by this study"
        return failed(Reason.FILE, message)
    if owner is not None and spec.attempt > 1:
        patience.insist(partial(os.replace, path, attempt_path(path, spec.attempt - 1)))
    return None


def _study_of(path: Path) -> str | None:
    """Return the id of the study that wrote a notebook. None if there is no file.

    Empty if no study wrote the file.
    """
    if not path.exists():
        return None
    return (read_metadata(path) or BLANK).study_id
