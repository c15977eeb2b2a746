"""Simulate a sweep with `pruner: auto` whose trials fill the memory of a GPU.

`pruning.py` uses this simulation to replay studies from known learning curves. The package's own
`Freezer`, `PredictivePruner` and `Control` decide, as in a real sweep. Only time, slots and memory
are simulated: all trials train equally fast, and a trial begins at once when it has a slot and GPU
memory. A frozen trial is paused, and may leave the GPU: its memory is then copied to host memory.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import replace
from enum import Enum
from typing import Any

from sweeper.search.pruners import Curve, Curves, PredictivePruner
from sweeper.sweep.scheduling.decisions import Freeze, Prune, TakeOff, Thaw
from sweeper.sweep.scheduling.freezing import Freezer
from sweeper.trials import Blocked, Machine, RunningTrial

#: Seconds of one epoch: a trial of 52 epochs takes ten minutes (chosen).
EPOCH_S = 600 / 52
#: Seconds in which a trial leaves the GPU, or returns to it: 8.4 GB at 5 GB/s (assumed).
COPY_S = 2.0


class _Event(Enum):
    REPORTS = "has trained an epoch"
    HAS_LEFT = "has left the GPU"
    IS_BACK = "has returned to the GPU"


class SweepOnGpu:
    """A sweep with as many slots as trials fit into the memory of its one GPU.

    Args:
        known: Learning curves of all trials, in the order in which the trials begin.
        jobs: Number of slots, and of trials that fit into the GPU's memory.
        room: Number of frozen trials that fit into host memory after they have left the GPU.

    Attributes:
        seen: Learning curves so far, by trial number.
        steps: Epochs that all trials have trained.
        seconds: Time since the sweep began.
    """

    def __init__(self, known: Sequence[Sequence[float]], *, jobs: int, room: int) -> None:
        self.seen: dict[int, Curve] = {}
        self.steps, self.seconds = 0, 0.0
        self._known, self._jobs, self._room = known, jobs, room
        study: Any = self  # The freezer asks its study only for `curves` and `why_pruned`.
        self._freezer = Freezer(
            study, PredictivePruner(), running=lambda: self._live, to_begin=self._to_begin
        )
        self._live: dict[int, RunningTrial] = {}
        self._on_gpu: set[int] = set()
        self._queue: deque[int] = deque()
        self._events: list[tuple[float, int, _Event]] = []
        self._leaving: set[int] = set()

    def run(self) -> None:
        """Run the sweep until it ends."""
        self._fill_slots()
        while self._events:
            self.seconds, number, event = heapq.heappop(self._events)
            if event is _Event.REPORTS:
                self._report(number)
            elif event is _Event.HAS_LEFT:
                self._on_gpu.discard(number)
                self._leaving.remove(number)
            else:
                self._live[number].control.is_off_gpu = False
                self._train(number)
            self._fill_slots()
            self._fill_gpu()

    def curves(self, *, frozen: Collection[int]) -> Curves:
        """Return the learning curves so far, in the form in which a real study returns them."""
        by_number = {
            number: replace(curve, state="frozen") if number in frozen else curve
            for number, curve in self.seen.items()
        }
        return Curves(by_number=by_number, sign=1.0)

    def why_pruned(self, number: int, pruner: PredictivePruner) -> str:
        """Return an empty text, because the simulation does not use the reason."""
        return ""

    # --- what happens to a trial ------------------------------------------------------------------

    def _report(self, number: int) -> None:
        """Let a trial report its next score, and carry out what the freezer decides."""
        values, known = self.seen[number].values, self._known[number]
        values = {**values, len(values): known[len(values)]}
        self.seen[number] = Curve(values=values, state="running")
        self.steps += 1
        if len(values) == len(known):
            self._end(number, Curve(values=values, state="completed", final=known[-1]))
            return
        decision = self._freezer.judge(number)
        if isinstance(decision, Freeze):
            assert self._live[number].control.freeze()
            return
        self._make_room(decision)
        if number in self._live:
            self._train(number)

    def _train(self, number: int) -> None:
        """Let a trial train its next epoch."""
        heapq.heappush(self._events, (self.seconds + EPOCH_S, number, _Event.REPORTS))

    def _make_room(self, decision: object) -> None:
        """Take a frozen trial off the GPU, or prune a trial."""
        if isinstance(decision, TakeOff):
            assert self._live[decision.number].control.leave_gpu()
            self._leaving.add(decision.number)
            left_s = self.seconds + COPY_S
            heapq.heappush(self._events, (left_s, decision.number, _Event.HAS_LEFT))
        elif isinstance(decision, Prune):
            self._end(decision.number, replace(self.seen[decision.number], state="pruned"))

    def _end(self, number: int, curve: Curve) -> None:
        self.seen[number] = curve
        self._on_gpu.discard(number)
        del self._live[number]

    # --- slots and memory -------------------------------------------------------------------------

    def _to_begin(self) -> int:
        return len(self._known) - len(self.seen)

    def _fill_slots(self) -> None:
        """Give each free slot the trial that the freezer chooses, or a new trial.

        A sweep decides nothing while a trial leaves the GPU.
        """
        while not self._leaving and len(self._live) - len(self._freezer.frozen) < self._jobs:
            decisions = self._freezer.fill_slot(has_begun_all=not self._to_begin())
            for decision in decisions:
                if isinstance(decision, Thaw):
                    self._thaw(decision.number)
                else:
                    self._make_room(decision)
            if not decisions and not self._to_begin():
                return
            if not decisions:
                self._begin()

    def _begin(self) -> None:
        number, trial = len(self.seen), RunningTrial()
        trial.control.on_freeze(lambda _: True)
        trial.control.note_machine(
            Machine(
                blocked=self._blocked,
                can_leave_gpu=self._has_host_room,
                leave_gpu=lambda: True,
                return_to_gpu=lambda: False,  # The event IS_BACK says when the trial has returned.
            )
        )
        self.seen[number], self._live[number] = Curve(values={}, state="running"), trial
        self._wait_for_gpu(number)

    def _thaw(self, number: int) -> None:
        control = self._live[number].control
        assert control.thaw()
        if control.is_off_gpu:
            self._wait_for_gpu(number)
        else:
            self._train(number)

    def _has_host_room(self) -> bool:
        """Return whether one more frozen trial fits into host memory."""
        return sum(trial.control.is_off_gpu for trial in self._live.values()) < self._room

    def _blocked(self) -> Blocked | None:
        """Return why no other trial could begin if a trial were frozen now.

        That is the case if the GPU is full and host memory has no room for another frozen trial.

        Returns:
            None if another trial could begin.
        """
        is_free = not self._queue and len(self._on_gpu) < self._jobs
        if is_free or self._has_host_room():
            return None
        return Blocked(by=[trial.control for trial in self._freezer.frozen.values()])

    def _wait_for_gpu(self, number: int) -> None:
        self._queue.append(number)
        self._fill_gpu()

    def _fill_gpu(self) -> None:
        """Let waiting trials begin on the GPU, and make room for the first of them."""
        while self._queue:
            if len(self._on_gpu) == self._jobs and not self._leaving:
                frozen = self._freezer.frozen.items()
                on_gpu = [trial.control for number, trial in frozen if number in self._on_gpu]
                self._make_room(self._freezer.make_room(Blocked(by=on_gpu, lacks_gpu=True)))
            if len(self._on_gpu) == self._jobs:
                return
            number = self._queue.popleft()
            self._on_gpu.add(number)
            control = self._live[number].control
            if control.is_off_gpu:
                heapq.heappush(self._events, (self.seconds + COPY_S, number, _Event.IS_BACK))
            else:
                self._train(number)
