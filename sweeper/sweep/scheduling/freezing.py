"""Decide which running trials are frozen, which continue in a free slot, and which are pruned."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from ...search.pruners import Curves, Outlook, PredictivePruner, Verdict
from ...study.study import Study
from ...trials import Blocked, Control, RunningTrial
from .decisions import Decision, Freeze, Prune, TakeOff, Thaw


class Freezer:
    """The stop rule of `pruner: auto` if the executor can freeze trials.

    The rule only decides, and the scheduler acts. A trial that is unlikely to win is frozen. Its
    slot goes to a new trial, or to the frozen trial that is most likely to win. A frozen trial
    keeps its memory as long as no other trial needs it. If frozen trials use the memory or the GPU
    for which a trial waits, or without which no trial can be frozen, one of them leaves its GPU. If
    none can, or if that would not help, the one that is least likely to win is pruned.

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

        If frozen trials use what is missing to freeze it, one of them makes room, and the trial
        continues until its next report.
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
        """Decide which frozen trial continues in a free slot. Empty if a new trial should begin.

        Args:
            has_begun_all: Whether no new trial is left. If all running trials are frozen then, and
                none of them can still win, all of them are pruned.
        """
        curves = self._curves()
        number = self._pruner.thaw(curves, to_begin=self._to_begin())
        if number is not None:
            return [Thaw(number)]
        if has_begun_all and len(self.frozen) == len(self._running()):
            return [_pruned_where_frozen(outlook) for outlook in self._pruner.order(curves)]
        return []

    def make_room(self, blocked: Blocked) -> TakeOff | Prune | None:
        """Decide which of the frozen trials in the way leaves its GPU, or else is pruned.

        It is the one that is least likely to win. Return None if no frozen trial is in the way, or
        if one of them has left its place since the machine was asked. Then what it has freed may be
        enough.
        """
        if not blocked.by or any(_has_left(control, blocked) for control in blocked.by):
            return None
        running = dict(self._running())
        outlooks = [
            outlook
            for outlook in self._pruner.order(self._curves())
            if outlook.number in running and running[outlook.number].control in blocked.by
        ]
        for outlook in reversed(outlooks):
            if blocked.lacks_gpu and running[outlook.number].control.can_leave_gpu():
                return TakeOff(outlook.number)
        return _pruned_where_frozen(outlooks[-1]) if outlooks else None

    def _curves(self) -> Curves:
        """Return the curves of the trials that have ended, run in this sweep, or are frozen."""
        running, curves = self._running(), self._study.curves(frozen=self.frozen)
        # For Optuna, two others run too: a proposal that was made ahead, and a trial that a killed
        # sweep has left. They need no slot yet.
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
