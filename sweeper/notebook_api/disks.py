"""Repeat the writes of a trial while its disk is full, read-only or unavailable."""

from __future__ import annotations

import os
import shutil
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from .messages import TRIAL_VARIABLE

T = TypeVar("T")

#: A write that fails in a trial is repeated for `PATIENCE_S` seconds, with pauses of `_PAUSE_S`
#: seconds (chosen, not measured). A disk that is full or unavailable for a while must not fail a
#: trial.
PATIENCE_S, _PAUSE_S = 60.0, 0.5


def is_in_sweep() -> bool:
    """Return whether this notebook runs as a trial."""
    return TRIAL_VARIABLE in os.environ


def insist(write: Callable[[], T], *, is_patient: bool = True) -> T:
    """Call `write` until it succeeds, and return its result.

    In a notebook that is run by hand, call it only once.

    Args:
        write: Function that writes to a disk.
        is_patient: Whether the call is repeated in a trial, for `PATIENCE_S` seconds.

    Raises:
        OSError: The last call failed.
    """
    until_s = time.monotonic() + PATIENCE_S
    is_told = False
    while True:
        try:
            return write()
        except OSError as error:
            may_repeat = is_patient and is_in_sweep() and not _is_of_the_source(error)
            if not may_repeat or time.monotonic() >= until_s:
                raise
            if not is_told:
                warnings.warn(f"{error}; trying again for {PATIENCE_S:g} s", stacklevel=3)
                is_told = True
        time.sleep(_PAUSE_S)


def _is_of_the_source(error: OSError) -> bool:
    """Return whether copying a folder failed because a file in the folder does not exist.

    For example, a symbolic link has no target. Such a copy is not repeated: it would fail again.
    """
    if not isinstance(error, shutil.Error):
        return False
    sources = [Path(source) for source, *_ in error.args[0]]
    return any(not source.exists() for source in sources)
