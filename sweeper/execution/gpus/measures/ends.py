"""When running trials should end, from how those went that have come to their end."""

from __future__ import annotations

import statistics
from collections import deque
from dataclasses import dataclass

from ....trials import RunningTrial

#: Ends are expected from so many of the latest trials at most, and at least.
_MOST, _LEAST = 8, 2
#: Trials count as equally long if the longest took at most so many times as long as the shortest.
_ALIKE = 1.05
#: The part of its time before or after its expected end in which a trial is about to end.
_ABOUT = 0.03


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ended:
    """A trial that has come to its end.

    Attributes:
        steps: how many steps it made.
        took_s: how long it had its share of the GPU.
        after_s: how long of that lay after its last step.
    """

    steps: int
    took_s: float
    after_s: float


class ExpectedEnds:
    """Expects the end of a trial by its own pace, where all others made the same number of steps.

    A trial that has made 40 of 50 steps in 80 s has 20 s left. Without steps, trials are expected
    to take equally long if those did that have ended. Nothing is known of any other trial.
    """

    def __init__(self) -> None:
        self._ended: deque[_Ended] = deque(maxlen=_MOST)

    def learn(self, running: RunningTrial, *, began_s: float, now_s: float) -> None:
        """Learn from a trial whose share ends now, unless it did not come to its last cell."""
        if running.stop_reason is not None or running.cell < max(1, running.cells):
            return
        after_s = now_s - running.stepped_at_s if running.steps else 0.0
        self._ended.append(_Ended(steps=running.steps, took_s=now_s - began_s, after_s=after_s))

    def is_about_to_end(self, running: RunningTrial, *, began_s: float, now_s: float) -> bool:
        """Whether a trial that has had its share since `began_s` should give it back any moment.

        One that is long overdue is not.
        """
        end_s = self._end_s(running, began_s)
        return end_s is not None and abs(end_s - now_s) <= _ABOUT * (end_s - began_s)

    def _end_s(self, running: RunningTrial, began_s: float) -> float | None:
        """The expected end; None where that is not known."""
        if len(self._ended) < _LEAST:
            return None
        all_steps = {ended.steps for ended in self._ended}
        if len(all_steps) == 1 and 0 < running.steps <= (n_steps := max(all_steps)):
            so_far_s, to_go = running.stepped_at_s - began_s, n_steps - running.steps
            after_s = statistics.median(ended.after_s for ended in self._ended)
            return running.stepped_at_s + so_far_s * to_go / running.steps + after_s
        took_s = [ended.took_s for ended in self._ended]
        if max(took_s) > _ALIKE * min(took_s):
            return None
        return began_s + statistics.fmean(took_s)
