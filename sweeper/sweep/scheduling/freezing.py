"""Which running trials stand still while others have their slots, and which of them go on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from ...notebook_api.messages import Point, StopReason
from ...search.pruners import Curves, Outlook, PredictivePruner, Verdict
from ...study.study import Study
from ...trials import RunningTrial, TrialState


class Freezer:
    """The stop rule of `pruner: auto`, which can also have a trial stand still.

    A trial that is unlikely to win now gives its slot to a new one, or to the frozen one that is
    most likely to win. Frozen trials keep their memory as long as nobody needs it: where a trial
    waits for its place, or finds no room to be frozen, the one least likely to win is pruned.

    Args:
        running: the trials that have a kernel, frozen ones too, by number.
        note: stores that a trial is frozen, or runs again.
        to_begin: how many trials the study has still to begin.
    """

    def __init__(
        self,
        study: Study,
        pruner: PredictivePruner,
        objective: str,
        *,
        running: Callable[[], Mapping[int, RunningTrial]],
        note: Callable[[int, TrialState], object],
        to_begin: Callable[[], int],
    ) -> None:
        self._study, self._pruner, self._objective = study, pruner, objective
        self._running, self._note, self._to_begin = running, note, to_begin
        self._lock = threading.RLock()

    @property
    def frozen(self) -> dict[int, RunningTrial]:
        """The trials that stand still, by number."""
        return {number: it for number, it in self._running().items() if it.is_frozen}

    def consider(self, number: int, point: Point) -> str | None:
        """As `StopRule` has it; the study gets the report, and the trial may be frozen."""
        value = point.metrics.get(self._objective)
        if value is None or point.step is None or point.step < 0:
            return None
        with self._lock:
            self._study.note_report(number, point.step, value)
            verdict = self._pruner.judge(self._curves(), number, to_begin=self._to_begin())
            if verdict is Verdict.FREEZE:
                self._freeze(number)
        if verdict is Verdict.PRUNE:
            return self._study.why_pruned(number, self._pruner)
        return None

    def _freeze(self, number: int) -> None:
        trial = self._running().get(number)
        if trial is None or trial.is_frozen:
            return
        if trial.freeze():
            self._note(number, TrialState.FROZEN)
        elif not trial.has_room():  # it goes on, and is judged again at its next report
            self.make_room()

    def thaw(self) -> int | None:
        """Have a frozen trial go on in a free slot; None where that has something better to do."""
        with self._lock:
            number = self._pruner.thaw(self._curves(), to_begin=self._to_begin())
            trial = None if number is None else self.frozen.get(number)
            if number is None or trial is None or not trial.thaw():
                return None
            self._note(number, TrialState.RUNNING)
            return number

    def make_room(self) -> None:
        """Prune the frozen trial that is least likely to win, unless another is just ending."""
        with self._lock:
            is_ending = any(it.stop_reason is not None for it in self._running().values())
            if not is_ending and (outlooks := self._pruner.order(self._curves())):
                self._give_up(outlooks[-1])

    def end(self) -> int | None:
        """As `thaw`, with all trials begun; where nothing runs and none may win, prune all."""
        with self._lock:
            number = self.thaw()
            if number is None and len(self.frozen) == len(self._running()):
                for outlook in self._pruner.order(self._curves()):
                    self._give_up(outlook)
            return number

    def _curves(self) -> Curves:
        return self._study.curves(frozen=self.frozen)

    def _give_up(self, outlook: Outlook) -> None:
        message = f"pruned at step {outlook.step}, where it was frozen; {outlook}"
        if (trial := self.frozen.get(outlook.number)) is not None:  # else it has just been stopped
            trial.stop(StopReason.PRUNED, message)
