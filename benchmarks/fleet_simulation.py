"""A fleet of machines whose trials take simulated time, and a coordinator that takes its own CPU.

Each call of the scheduler takes as much simulated time as it takes CPU in reality, and the
coordinator has one core: a call waits until the one before it, and what that left to threads beside
(the next proposal, the pruner), has been dealt with. So a slot is idle from the end of a trial
until the coordinator has recorded that end and given out the next trial.
"""

from __future__ import annotations

import heapq
import itertools
import json
import math
import queue
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import nbformat

from sweeper.execution.executor import TrialSource
from sweeper.notebook_api.messages import Point
from sweeper.study import Study
from sweeper.trials import (
    GpuUse,
    KernelUse,
    Params,
    Reason,
    RunningTrial,
    TrialOutcome,
    TrialSpec,
    TrialState,
)

T = TypeVar("T")

#: Reports of a trial, each with a checkpoint; a trial that has lost its machine goes on from there.
REPORTS = 10
#: Slots of a machine, which are lost together.
MACHINE = 8
#: How soon the sweep knows that a machine is gone, and how soon another one takes its place.
NOTICED_S, REPLACED_S = 30.0, 180.0
#: How much durations differ, of their logarithm; how many trials take how many times as long.
SPREAD, STRAGGLERS, SLOWER = 0.25, 0.02, 3.0
#: How often the fleet waits for MLflow, in simulated seconds.
LOOK_S = 60.0

_WAIT_S = 600.0


class WatchedStudy(Study):
    """A study that reports when the threads beside the scheduler are done with it."""

    #: The CPU seconds of each proposal that was made ahead, and of each judged report.
    prepared: queue.SimpleQueue[float] = queue.SimpleQueue()
    judged: queue.SimpleQueue[float] = queue.SimpleQueue()

    def prepare(self, *args: Any) -> None:
        """Make a proposal ahead."""
        began_s = time.thread_time()
        try:
            super().prepare(*args)
        finally:
            self.prepared.put(time.thread_time() - began_s)

    def report(self, *args: Any) -> str | None:
        """Judge a report."""
        began_s = time.thread_time()
        try:
            return super().report(*args)
        finally:
            self.judged.put(time.thread_time() - began_s)


@dataclass(kw_only=True)
class Figures:
    """What is measured, of a part of the trials or of all; times in seconds.

    Attributes:
        ask: of each trial, the CPU of `next_trial`; `tell` of `finish_trial`.
        propose: of each proposal made ahead; `judge` of each report.
        wait: of each slot, how long it was idle between two trials, in simulated time.
        busy: of slots, with trials that have ended, in simulated time; `away` without a machine.
        lost: of the trials whose machine was lost, the time since their last checkpoint.
        cpu: the coordinator's, of all its threads.
    """

    ask: list[float] = field(default_factory=list)
    tell: list[float] = field(default_factory=list)
    propose: list[float] = field(default_factory=list)
    judge: list[float] = field(default_factory=list)
    wait: list[float] = field(default_factory=list)
    busy: float = 0.0
    away: float = 0.0
    lost: float = 0.0
    cpu: float = 0.0
    n_ended: int = 0
    n_lost: int = 0


class Coordinator:
    """Serves one call after the other on a core of its own.

    Args:
        server_s: the CPU that the storage's server has used for this process, in seconds.
        figures: where the CPU goes.
    """

    def __init__(self, server_s: Callable[[], float]) -> None:
        self._server_s = server_s
        self.figures = Figures()
        self.free_at_s = 0.0
        self._all_s, self._own_s = self._used_s(), time.thread_time()

    def _used_s(self) -> float:
        return time.process_time() + self._server_s()

    def serve(
        self, at_s: float, call: Callable[[], T], settle: Callable[[T], None]
    ) -> tuple[T, float, float]:
        """Make a call that comes in at a simulated time.

        Args:
            settle: waits until what the call has left to other threads is done.

        Returns:
            the call's result, when it was answered, and the CPU seconds until then.
        """
        before_s = self._used_s()
        # The simulation's own work does not count, that of threads beside does.
        beside_s = max(0.0, before_s - self._all_s - (time.thread_time() - self._own_s))
        began_s = max(at_s, self.free_at_s + beside_s)
        result = call()
        took_s = self._used_s() - before_s
        settle(result)
        self._all_s, self._own_s = self._used_s(), time.thread_time()
        self.free_at_s = began_s + self._all_s - before_s
        self.figures.cpu += beside_s + self._all_s - before_s
        return result, began_s + took_s, took_s


@dataclass(frozen=True, kw_only=True)
class SlotTimes:
    """Of all slots together, in simulated seconds.

    Attributes:
        busy_s: with a trial.
        away_s: without a machine.
    """

    all_s: float
    busy_s: float
    away_s: float

    @property
    def idle_s(self) -> float:
        """With a machine and without a trial."""
        return self.all_s - self.busy_s - self.away_s

    @property
    def busy_share(self) -> float:
        """Of the time with a machine."""
        return self.busy_s / (self.all_s - self.away_s)


@dataclass(kw_only=True)
class Slot:
    """A place for a trial, and the trial in it."""

    machine: int
    spec: TrialSpec | None = None
    running: RunningTrial | None = None
    begun_s: float = 0.0
    #: When the last checkpoint was saved, or the attempt began.
    saved_s: float = 0.0
    #: Since when it has neither a trial nor lost its machine; None while it has.
    free_since_s: float | None = 0.0
    #: Counts trials, so that events of one that was lost are known.
    turn: int = 0
    is_lost: bool = False
    is_done: bool = False


class FleetExecutor:
    """Runs trials on simulated machines, in simulated time.

    Args:
        trial_s: the median duration of a trial.
        preempted_share: of the machines, each hour.
        seed: of durations and losses.
        on_end: called after each trial, with the simulated time.
        catch_up: called now and again with the simulated time, before it goes on.
        events: what happens besides, each at its simulated time.

    Attributes:
        now_s: the simulated time.
        cpu_at_end_s: the CPU of this process when the last trial has ended.
        full: the times of all slots until the first one found no more trials.
    """

    description = "simulated"

    def __init__(
        self,
        coordinator: Coordinator,
        *,
        jobs: int,
        trial_s: float,
        preempted_share: float,
        seed: int,
        on_end: Callable[[float], None],
        catch_up: Callable[[float], None],
        events: Sequence[tuple[float, Callable[[], None]]] = (),
    ) -> None:
        self._coordinator = coordinator
        self._jobs = jobs
        self._trial_s = trial_s
        self._chance = random.Random(seed)
        self._on_end, self._catch_up = on_end, catch_up
        self._slots = [Slot(machine=number // MACHINE) for number in range(jobs)]
        self._machines = math.ceil(jobs / MACHINE)
        self._lost_per_s = self._machines * preempted_share / 3600
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._n_events = len(events)
        for at_s, event in events:
            self._at(at_s, partial(self._happen, event))
        #: The reports of trials whose checkpoints are kept, by their numbers.
        self._steps: dict[int, int] = {}
        self.now_s = 0.0
        self.cpu_at_end_s = 0.0
        self.full: SlotTimes | None = None

    @property
    def jobs(self) -> int:
        """How many trials run at once."""
        return self._jobs

    def _at(self, at_s: float, event: Callable[[], None]) -> None:
        heapq.heappush(self._events, (at_s, next(self._order), event))

    def run(self, source: TrialSource) -> Sequence[str]:
        """Run the source's trials until there are no more."""
        self._source = source
        for slot in self._slots:
            self._at(0.0, partial(self._ask, slot))
        self._plan_loss()
        self._at(LOOK_S, self._look)
        while self._n_events or not all(slot.is_done for slot in self._slots):
            self.now_s, _, event = heapq.heappop(self._events)
            event()
        self.cpu_at_end_s = time.process_time()
        return []

    def _happen(self, event: Callable[[], None]) -> None:
        self._n_events -= 1
        event()

    # --- a slot ---------------------------------------------------------------------------------

    def _ask(self, slot: Slot) -> None:
        def settle(trial: object) -> None:
            if trial is not None:
                figures.propose.append(WatchedStudy.prepared.get(timeout=_WAIT_S))

        figures = self._coordinator.figures
        trial, answered_s, took_s = self._coordinator.serve(
            self.now_s, self._source.next_trial, settle
        )
        if trial is None:
            slot.is_done = True
            if self.full is None:
                self.full = self._slot_times()
            return
        figures.ask.append(took_s)
        assert slot.free_since_s is not None
        figures.wait.append(answered_s - slot.free_since_s)
        slot.spec, slot.running = trial
        slot.begun_s = slot.saved_s = answered_s
        slot.free_since_s, slot.turn = None, slot.turn + 1
        spec = slot.spec
        spec.checkpoint_dir.mkdir(parents=True, exist_ok=True)
        (spec.checkpoint_dir / "000000.ckpt").write_bytes(b"0" * 100)
        _write_notebook(spec, "running", {})
        self._at(answered_s + self._step_s(spec), partial(self._report, slot, slot.turn))

    def _step_s(self, spec: TrialSpec) -> float:
        """The simulated time of a trial between two of its reports."""
        chance = random.Random(f"duration {spec.seed}")
        trial_s = self._trial_s * chance.lognormvariate(0.0, SPREAD)
        return trial_s * (SLOWER if chance.random() < STRAGGLERS else 1.0) / REPORTS

    def _report(self, slot: Slot, turn: int) -> None:
        if slot.turn != turn:
            return
        spec, running = slot.spec, slot.running
        assert spec is not None and running is not None
        if running.stop_reason is not None:  # the next report raises
            self._end(slot, TrialState.PRUNED)
            return
        step = self._steps.get(spec.number, 0)
        self._steps[spec.number] = step + 1
        slot.saved_s = self.now_s
        point = Point(step=step, metrics={"loss": loss(spec, step), "accuracy": 0.5})
        figures = self._coordinator.figures
        self._coordinator.serve(
            self.now_s,
            partial(running.publish, point),
            lambda _: figures.judge.append(WatchedStudy.judged.get(timeout=_WAIT_S)),
        )
        if step + 1 == REPORTS:
            self._end(slot, TrialState.COMPLETED)
        else:
            self._at(self.now_s + self._step_s(spec), partial(self._report, slot, turn))

    def _end(self, slot: Slot, state: TrialState) -> None:
        spec, running = slot.spec, slot.running
        assert spec is not None and running is not None
        steps = range(self._steps.get(spec.number, 0))
        series = {"loss": [(step, loss(spec, step)) for step in steps]}
        is_completed = state is TrialState.COMPLETED
        scores = {"loss": series["loss"][-1][1]} if is_completed else {}
        _write_notebook(spec, str(state), scores)
        outcome = TrialOutcome(
            state=state,
            scores=scores,
            series={**series, "accuracy": [(step, 0.5) for step in steps]},
            reason=None if is_completed else Reason.PRUNED,
            message=running.message,
            duration_s=self.now_s - slot.begun_s,
            kernel=KernelUse(is_forked=True),
            gpu=GpuUse(peak_bytes=gpu_bytes(spec.params)),
            host=f"machine-{slot.machine}",
        )
        self._finish(slot, outcome)
        self._steps.pop(spec.number, None)
        self._on_end(self.now_s)
        slot.free_since_s = self.now_s
        self._ask(slot)

    def _finish(self, slot: Slot, outcome: TrialOutcome) -> None:
        assert slot.spec is not None
        figures = self._coordinator.figures
        tell = partial(self._source.finish_trial, slot.spec, outcome)
        _, _, took_s = self._coordinator.serve(self.now_s, tell, lambda _: None)
        figures.tell.append(took_s)
        figures.busy += outcome.duration_s
        figures.n_ended += outcome.state is not TrialState.STOPPED
        slot.spec = slot.running = None
        slot.turn += 1

    def _slot_times(self) -> SlotTimes:
        running = [slot for slot in self._slots if slot.spec is not None and not slot.is_lost]
        busy_s = sum(self.now_s - slot.begun_s for slot in running)
        figures = self._coordinator.figures
        return SlotTimes(
            all_s=self.now_s * self._jobs, busy_s=figures.busy + busy_s, away_s=figures.away
        )

    # --- machines -------------------------------------------------------------------------------

    def _plan_loss(self) -> None:
        if self._lost_per_s:
            pause_s = self._chance.expovariate(self._lost_per_s)
            self._at(self.now_s + pause_s, self._lose_machine)

    def _lose_machine(self) -> None:
        self._plan_loss()
        machine = self._chance.randrange(self._machines)
        figures = self._coordinator.figures
        for slot in self._slots:
            if slot.machine != machine or slot.is_done or slot.is_lost:
                continue
            slot.is_lost = True
            figures.lost += self.now_s - slot.saved_s
            figures.away += REPLACED_S
            figures.n_lost += 1
            slot.turn += 1
            self._at(self.now_s + NOTICED_S, partial(self._end_lost, slot, self.now_s))
            self._at(self.now_s + REPLACED_S, partial(self._replace, slot))

    def _end_lost(self, slot: Slot, lost_at_s: float) -> None:
        outcome = TrialOutcome(
            state=TrialState.STOPPED,
            reason=Reason.WORKER_LOST,
            message="the machine was taken away",
            duration_s=lost_at_s - slot.begun_s,
            host=f"machine-{slot.machine}",
        )
        self._finish(slot, outcome)

    def _replace(self, slot: Slot) -> None:
        slot.is_lost, slot.free_since_s = False, self.now_s
        self._ask(slot)

    def _look(self) -> None:
        self._catch_up(self.now_s)
        self._at(self.now_s + LOOK_S, self._look)


def loss(spec: TrialSpec, step: int) -> float:
    """What a trial reports: a curve to a value by its params, with noise by its seed."""
    params = spec.params
    value = (math.log10(_number(params, "lr")) + 2.5) ** 2 / 4
    value += (math.log10(_number(params, "weight_decay")) + 4) ** 2 / 20
    value += abs(_number(params, "width") - 512) / 2000 + _number(params, "dropout") ** 2 / 4
    value += 0.0 if params["optimizer"] == "adam" else abs(_number(params, "momentum") - 0.92)
    noise = random.Random(f"{spec.seed} {step}").gauss(0.0, 0.02)
    return 0.2 + value + 2 * math.exp(-0.5 * (step + 1)) + noise


def gpu_bytes(params: Params) -> int:
    """What a trial takes of its GPU's memory."""
    return round(1e9 + 3e4 * _number(params, "width") * _number(params, "batch_size"))


def _number(params: Params, name: str) -> float:
    return float(str(params[name]))


def _write_notebook(spec: TrialSpec, state: str, scores: dict[str, float]) -> None:
    """Write the executed notebook, as the worker does."""
    v4 = nbformat.v4
    lines = "".join(f"epoch {step}: loss {loss(spec, step):.4f}\n" for step in range(REPORTS))
    code = [
        ("import torch", ""),
        ("\n".join(f"{name} = {value!r}" for name, value in spec.params.items()), ""),
        ("model = make(width, dropout)\nfor epoch in range(10):\n    train(model)", lines),
    ]
    cells = [
        v4.new_code_cell(
            source,
            id=f"cell-{i}",
            outputs=[v4.new_output("stream", name="stdout", text=text)] if text else [],
        )
        for i, (source, text) in enumerate(code)
    ]
    metadata = {
        "study": spec.study,
        "study_id": spec.study_id,
        "run_id": f"{spec.number:04d}",
        "state": state,
        "params": dict(spec.params),
        "seed": spec.seed,
        "scores": scores,
        "attempt": spec.attempt,
    }
    node = v4.new_notebook(cells=cells, metadata={"sweeper": metadata})
    part = Path(f"{spec.notebook}.part")
    part.write_text(json.dumps(node))
    part.replace(spec.notebook)
