"""A sweep's end by the clock: its time limit, or its study's budget."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from .plan import SweepPlan
from .spending import Spending


@contextmanager
def deadline(plan: SweepPlan, spending: Spending, stop: Callable[..., None]) -> Iterator[None]:
    """Stop the sweep when the time since its call is up, or the study's budget is spent.

    Args:
        stop: `Sweep.stop`.
    """
    limits = []
    if plan.timeout_s is not None:
        left_s = plan.began_s + plan.timeout_s - time.monotonic()
        limits.append((max(left_s, 0.0), f"--timeout after {round(plan.timeout_s, 1):g} s"))
    if spending.left_s is not None:
        limits.append((spending.left_s, "cost.budget, which the study's sweeps have spent"))
    if not limits:
        yield
        return
    limit_s, reason = min(limits)
    if limit_s == 0:
        stop(reason)
        yield
        return
    timer = threading.Timer(limit_s, stop, args=[reason], kwargs={"now": True})
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
