"""Rename the executed notebook of an earlier attempt, so that it is kept."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

from ..notebooks.metadata import BLANK, read_metadata
from ..study_folder.patience import Patience
from ..trials import Reason, TrialOutcome, TrialSpec, attempt_path
from .verdict import failed


def keep_earlier_attempt(spec: TrialSpec, patience: Patience) -> TrialOutcome | None:
    """Rename the executed notebook of the previous attempt, so that the new one can be written.

    An observed run that continues overwrites it.

    Args:
        spec: Spec of the trial.
        patience: Object that repeats a call while the disk is unavailable.

    Returns:
        The outcome of a failed trial, if the notebook's path has a file that the study did not
        write. Else None.

    Raises:
        OSError: The file cannot be read or renamed.
    """
    path = spec.notebook
    owner = patience.insist(partial(_study_of, path))
    if owner not in (None, spec.study_id):
        message = f"{path} exists but was not written by this study; move it away"
        return failed(Reason.FILE, message)
    if owner is not None and spec.attempt > 1 and spec.continues != path:
        patience.insist(partial(os.replace, path, attempt_path(path, spec.attempt - 1)))
    return None


def _study_of(path: Path) -> str | None:
    """Return the id of the study that wrote a notebook.

    Returns:
        None if there is no file. An empty text if no study wrote the file.
    """
    if not path.exists():
        return None
    return (read_metadata(path) or BLANK).study_id
