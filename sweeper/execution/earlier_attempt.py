"""Prepare the paths of an attempt: keep earlier notebooks, remove checkpoints of other trials."""

from __future__ import annotations

import os
import shutil
from functools import partial
from pathlib import Path

from ..kernels import Proof
from ..notebooks.metadata import BLANK, read_metadata
from ..study_folder.patience import Patience
from ..trials import Reason, TrialOutcome, TrialSpec, attempt_path
from .verdict import failed


def make_way(spec: TrialSpec, patience: Patience) -> TrialOutcome | None:
    """Prepare the paths of an attempt: rename an earlier notebook, remove unusable checkpoints.

    The executed notebook of the previous attempt is renamed, so that it is kept. It is not renamed
    if the attempt continues it under the same name (`spec.continues`), as in an observed run, which
    is made only to draft a parameters file.

    Checkpoints are removed if no earlier attempt has written a notebook: then no attempt has saved
    them, and another study with the same folder may have left them there. They are also removed if
    the earlier attempt ran in a forked kernel that was not proven to give the same results.

    Args:
        spec: Spec of the trial.
        patience: Object that repeats a call while the disk is unavailable.

    Returns:
        The outcome of a failed trial, if the notebook's path has a file that the study did not
        write. Else None.

    Raises:
        OSError: The notebook cannot be read or renamed, or the checkpoints cannot be removed.
    """
    path = spec.notebook
    owner = patience.insist(partial(_study_of, path))
    if owner not in (None, spec.study_id):
        message = f"{path} exists but was not written by this study; move it away"
        return failed(Reason.FILE, message)
    if owner is not None and spec.attempt > 1 and spec.continues != path:
        patience.insist(partial(os.replace, path, attempt_path(path, spec.attempt - 1)))
    has_run = spec.continues is not None and spec.continues.exists()
    if (not has_run or is_unproven(spec)) and spec.checkpoint_dir.exists():
        patience.insist(partial(shutil.rmtree, spec.checkpoint_dir))
    return None


def is_unproven(spec: TrialSpec) -> bool:
    """Return whether the earlier attempt ran in a forked kernel before forking was proven.

    If so, its results may differ, and the new attempt does not resume from its checkpoints.
    """
    earlier = None if spec.continues is None else read_metadata(spec.continues)
    return earlier is not None and earlier.proof == Proof.PENDING


def path_problem(error: OSError, spec: TrialSpec) -> str:
    """Return which path has a problem, and why.

    If the error names no path, it is about the trial's executed notebook.
    """
    return f"{error.filename or spec.notebook}: {error.strerror or error}"


def _study_of(path: Path) -> str | None:
    """Return the id of the study that wrote a notebook.

    Returns:
        None if there is no file. An empty text if no study wrote the file.
    """
    if not path.exists():
        return None
    return (read_metadata(path) or BLANK).study_id
