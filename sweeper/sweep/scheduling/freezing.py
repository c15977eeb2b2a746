"""Decides which running trials stand still, which continue in a free slot, and which are pruned."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ...search.pruners import Curves, Outlook, PredictivePruner, Verdict
from ...study.study import Study
from ...trials import RunningTrial
from .decisions import Decision, Freeze, Prune, Thaw


class Freezer:
    """The stop rule of `pruner: auto` where trials can stand still.

    It only decides. A trial that is unlikely to win now is frozen, so that its slot goes to a new
    trial or to the frozen one that is most likely to win. Frozen trials keep their memory as long
    as nobody needs it. Where a trial waits for its place, or finds no room to be frozen, the frozen
    trial that is least likely to win is pruned.

    Args:
        running: Returns the trials that have a kernel, frozen ones too, by number.
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
        """The trials that stand still, by number."""
        running = self._running()
        return {number: trial for number, trial in running.items() if trial.control.is_frozen}

    def judge(self, number: int) -> Decision | None:
        """Decide what becomes of a trial that has just reported."""
        verdict = self._pruner.judge(self._curves(), number, to_begin=self._to_begin())
        if verdict is Verdict.PRUNE:
            return Prune(number, self._study.why_pruned(number, self._pruner))
        trial = self._running().get(number)
        if verdict is Verdict.GO_ON or trial is None or trial.control.is_frozen:
            return None
        if not trial.control.has_room():  # it continues, and is judged again at its next report
            return self.make_room()
        return Freeze(number)

    def fill_slot(self, *, has_begun_all: bool) -> Sequence[Thaw | Prune]:
        """Decide which frozen trial continues in a free slot; empty where a new one should begin.

        Args:
            has_begun_all: Whether no new trial is left. Where then no trial runs and no frozen one
                can still win, all of them are pruned.
        """
        curves = self._curves()
        number = self._pruner.thaw(curves, to_begin=self._to_begin())
        if number is not None:
            return [Thaw(number)]
        if has_begun_all and len(self.frozen) == len(self._running()):
            return [_pruned_where_frozen(outlook) for outlook in self._pruner.order(curves)]
        return []

    def make_room(self) -> Prune | None:
        """Choose the frozen trial that is least likely to win, unless another is just ending."""
        if any(trial.control.stop_reason is not None for trial in self._running().values()):
            return None
        outlooks = self._pruner.order(self._curves())
        return _pruned_where_frozen(outlooks[-1]) if outlooks else None

    def _curves(self) -> Curves:
        return self._study.curves(frozen=self.frozen)


def _pruned_where_frozen(outlook: Outlook) -> Prune:
    message = f"pruned at step {outlook.step}, where it was frozen; {outlook}"
    return Prune(outlook.number, message)
