"""Keep the starts of trials that MLflow did not accept, and decide when each is sent again.

A start is the call that creates the MLflow run of a trial when the trial begins.
"""

from __future__ import annotations

from .messages import Call

#: Seconds until a refused start is sent again (chosen, not measured). The pause is short, because
#: the trial's notebook may wait for its MLflow run, for a minute at most. The pause doubles with
#: each refusal, because the server may always refuse this start. Each repetition has a cost: if the
#: trial has run before, all points of its run are read from MLflow.
_AGAIN_S = 5.0


class RefusedStarts:
    """Keeps the calls for starts of trials that MLflow did not accept, to send them again."""

    def __init__(self) -> None:
        self._waiting: dict[str, tuple[float, Call]] = {}
        self._pauses_s: dict[str, float] = {}

    def add(self, start: Call, now_s: float) -> None:
        """Keep a refused start until a pause is over, after which it is sent again.

        The first pause takes `_AGAIN_S` seconds. Each further refusal of a start of the same trial
        doubles the pause.

        Args:
            start: Call for the start of a trial.
            now_s: Time of the refusal on a monotonic clock.
        """
        pause_s = self._pauses_s.get(start.about, _AGAIN_S)
        self._waiting[start.about] = (now_s + pause_s, start)
        self._pauses_s[start.about] = 2 * pause_s

    def forget(self, run_id: str) -> None:
        """Forget the start of a trial, because MLflow has it, or because the trial has ended."""
        self._waiting.pop(run_id, None)
        self._pauses_s.pop(run_id, None)

    def pop_due(self, now_s: float) -> list[Call]:
        """Remove and return the starts whose pauses are over.

        Args:
            now_s: Time on a monotonic clock.
        """
        due = [start for again_s, start in self._waiting.values() if again_s <= now_s]
        for start in due:
            del self._waiting[start.about]
        return due
