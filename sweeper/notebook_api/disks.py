"""Repeat the writes of a trial while its disk is full, read-only or away."""

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

#: In a sweep a write that fails is repeated for so long, with such pauses (chosen): a fault of the
#: machine is no outcome of a trial.
PATIENCE_S, _PAUSE_S = 60.0, 0.5


def is_in_sweep() -> bool:
    """Whether this notebook runs as a trial, so that its folders are the sweep's."""
    return TRIAL_VARIABLE in os.environ


def insist(write: Callable[[], T], *, limit_s: float | None = None) -> T:
    """Call until the call succeeds, in a notebook run by hand once.

    Args:
        limit_s: For how many seconds; default: `PATIENCE_S`.

    Raises:
        OSError: the call's error, when it outlasts the limit.
    """
    limit_s = PATIENCE_S if limit_s is None else limit_s
    until_s, is_told = time.monotonic() + limit_s, False
    while True:
        try:
            return write()
        except OSError as error:
            is_late = time.monotonic() >= until_s
            if is_late or not is_in_sweep() or _is_of_the_source(error):
                raise
            if not is_told:
                is_told = True
                warnings.warn(f"{error}; it is tried again for {limit_s:g} s", stacklevel=3)
        time.sleep(_PAUSE_S)


def _is_of_the_source(error: OSError) -> bool:
    """Whether something that was to be copied does not exist, such as the target of a link."""
    if not isinstance(error, shutil.Error):
        return False
    return any(not Path(source).exists() for source, *_ in error.args[0])
