"""A sweep's end by the clock: its time limit, or its study's budget."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from .spending import Spending


@contextmanager
def deadline(
    *, timeout_s: float | None, spending: Spending, stop: Callable[..., None]
) -> Iterator[None]:
    """Stop the sweep when its time is up, or the study's budget is spent.

    Args:
        timeout_s: how long the sweep may take; None for as long as its trials do.
        stop: `Sweep.stop`.
    """
    limits = [] if timeout_s is None else [(timeout_s, "--timeout")]
    left_s = spending.left_s
    if left_s is not None:
        limits.append((left_s, f"cost.budget, {spending.budget:g},"))
    if not limits:
        yield
        return
    limit_s, limit_name = min(limits)
    if limit_s == 0:
        stop(f"{limit_name} which earlier sweeps of the study have spent")
        yield
        return
    reason = f"{limit_name} after {round(limit_s, 1):g} s"
    timer = threading.Timer(limit_s, stop, args=[reason], kwargs={"now": True})
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
