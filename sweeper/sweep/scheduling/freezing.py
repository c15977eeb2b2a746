"""Decide which running trials are frozen (paused), continued in a free slot, or pruned."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from ...search.pruners import Curves, Outlook, PredictivePruner, Verdict
from ...study.study import Study
from ...trials import Blocked, Control, RunningTrial
from .decisions import Decision, Freeze, Prune, TakeOff, Thaw


class Freezer:
    """The stop rule of `pruner: auto` if the executor can freeze trials.

    The rule only decides, and the scheduler acts. A trial that is unlikely to win is frozen: its
    kernel is paused. Its slot goes to a new trial, or to the frozen trial that is most likely to
    win. A frozen trial keeps its memory as long as no other trial needs it. If frozen trials use
    the memory or the GPU that another trial needs to begin or to be frozen, one of them moves its
    GPU memory to host memory. If none can, or if that would not help, the frozen trial that is
    least likely to win is pruned.

    Args:
        study: The study, open.
        pruner: Predicts which trials can still win.
        running: Returns the trials that have a kernel, including frozen trials, by number.
        to_begin: Returns how many trials the study has still to begin.
    """

    def __init__(
        self,
        study: Study,
        pruner: PredictivePruner,
        *,
        running: Callable[[], Mapping[int, RunningTrial]],
        to_begin: Callable[[], int],
    ) -> None:
        self._study, self._pruner = study, pruner
        self._running, self._to_begin = running, to_begin

    @property
    def frozen(self) -> dict[int, RunningTrial]:
        """The frozen trials by number."""
        running = self._running()
        return {number: trial for number, trial in running.items() if trial.control.is_frozen}

    def judge(self, number: int) -> Decision | None:
        """Decide whether a trial that has just reported a score is pruned, frozen, or continues.

        A trial can be frozen only if the machine has memory for another one. If frozen trials use
        this memory, the decision is that of `make_room`: a frozen trial moves its GPU memory to
        host memory, or is pruned, or nothing is done. The trial that has reported continues until
        its next report.
        """
        curves = self._curves()
        if number not in curves.by_number:  # The trial has ended meanwhile.
            return None
        verdict = self._pruner.judge(curves, number, to_begin=self._to_begin())
        if verdict is Verdict.PRUNE:
            return Prune(number, self._study.why_pruned(number, self._pruner))
        trial = self._running().get(number)
        if verdict is Verdict.GO_ON or trial is None or trial.control.is_frozen:
            return None
        blocked = trial.control.blocked()
        return Freeze(number) if blocked is None else self.make_room(blocked)

    def fill_slot(self, *, has_begun_all: bool) -> Sequence[Thaw | Prune]:
        """Decide which frozen trial continues in a free slot.

        Args:
            has_begun_all: Whether no new trial is left. If all running trials are frozen then, and
                none of them can still win, all of them are pruned.

        Returns:
            A `Thaw` of one trial, or a `Prune` of each frozen trial. Empty if a new trial should
            begin, or if no frozen trial can still win while other trials run.
        """
        curves = self._curves()
        number = self._pruner.thaw(curves, to_begin=self._to_begin())
        if number is not None:
            return [Thaw(number)]
        if has_begun_all and len(self.frozen) == len(self._running()):
            return [_pruned_where_frozen(outlook) for outlook in self._pruner.order(curves)]
        return []

    def make_room(self, blocked: Blocked) -> TakeOff | Prune | None:
        """Decide which frozen trial frees memory or a GPU that another trial needs.

        If GPU memory is missing, a frozen trial moves the part that it uses to host memory. If none
        can, or if host memory is missing, a frozen trial that uses what is missing is pruned. Of
        several such trials, the one least likely to win is chosen. Return None if no frozen trial
        uses what is missing, or if one of them has just freed a part, which may be enough.

        Args:
            blocked: What is missing, and which frozen trials use it.
        """
        if not blocked.by or any(_has_left(control, blocked) for control in blocked.by):
            return None
        running = self._running()
        blocking = [
            outlook
            for outlook in self._pruner.order(self._curves())
            if outlook.number in running and running[outlook.number].control in blocked.by
        ]
        blocking.reverse()  # The trial least likely to win comes first.
        for outlook in blocking:
            if blocked.lacks_gpu and running[outlook.number].control.can_leave_gpu():
                return TakeOff(outlook.number)
        return _pruned_where_frozen(blocking[0]) if blocking else None

    def _curves(self) -> Curves:
        """Return the learning curves of trials that have completed, were pruned, run or are frozen.

        Trials that run only according to the storage, and not in this sweep, are left out.
        """
        running = self._running()
        curves = self._study.curves(frozen=self.frozen)
        # Leave out trials that run only according to Optuna: a proposal that was made ahead of
        # time, and a trial that a killed sweep left open. They hold no slot.
        known = {
            number: curve
            for number, curve in curves.by_number.items()
            if curve.state in ("completed", "pruned") or number in running
        }
        return replace(curves, by_number=known)


def _has_left(control: Control, blocked: Blocked) -> bool:
    return not control.is_frozen or (blocked.lacks_gpu and control.is_off_gpu)


def _pruned_where_frozen(outlook: Outlook) -> Prune:
    message = f"pruned at step {outlook.step}, where it was frozen; {outlook}"
    return Prune(outlook.number, message)
