"""What a fleet of a thousand slots costs its coordinator, and whether the slots stay busy.

    TMPDIR=/dev/shm uv run benchmarks/fleet.py [--slots 1000] [--trials 3000]

Scheduler, study, pruner, sampler, SQLite and MLflow are those of a sweep; trials take simulated
time: ten minutes with a spread of a quarter, two of a hundred three times as long, ten reports
each, and the median pruner may end them. The coordinator has one core: each call of the scheduler
takes as much simulated time as it takes CPU in reality, that of threads beside it included, and a
call waits for the one before. What the coordinator only waits for, disks and the network, is not in
it. "ask" and "tell" are the CPU before a trial and after one, "wait" how long a slot is idle
between two trials, each as median and 95th percentile; "CPU" is the coordinator's per trial. "busy"
is the share of the slots' time with a trial, until a slot finds no more. The last line is JSON.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import json
import logging
import math
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar

import nbformat

from sweeper import Settings, Sweep
from sweeper.execution.executor import TrialSource
from sweeper.notebook_api.messages import Point
from sweeper.testing import write_notebook
from sweeper.trials import (
    KernelUse,
    Reason,
    RunningTrial,
    TrialOutcome,
    TrialSpec,
    TrialState,
)

T = TypeVar("T")
SPACE = {
    "lr": {"low": 1e-5, "high": 1.0, "log": True},
    "dropout": {"low": 0.0, "high": 0.6},
    "width": {"type": "int", "low": 64, "high": 1024, "step": 64},
    "batch_size": [64, 128, 256, 512],
    "optimizer": ["sgd", "adam"],
    "momentum": {"low": 0.8, "high": 0.99, "when": {"optimizer": "sgd"}},
}
PARAMETERS = (
    "lr = 0.1\ndropout = 0.1\nwidth = 256\nbatch_size = 128\noptimizer = 'adam'\nmomentum = 0.9"
)
REPORTS, TRIAL_S = 10, 600.0
#: How much durations differ, of their logarithm; how many trials take how many times as long.
SPREAD, STRAGGLERS, SLOWER = 0.25, 0.02, 3.0


@dataclass(kw_only=True)
class Figures:
    """CPU seconds of each call, simulated seconds that slots waited, and trials that ended."""

    ask: list[float] = field(default_factory=list)
    tell: list[float] = field(default_factory=list)
    wait: list[float] = field(default_factory=list)
    cpu_s: float = 0.0
    busy_s: float = 0.0
    n_ended: int = 0


class FleetExecutor:
    """Runs trials in simulated time, under a coordinator that takes its own CPU.

    Args:
        jobs: trials at once.
        on_end: called after each trial.

    Attributes:
        now_s: the simulated time.
        busy_share: of the slots' time until the first one found no more trials.
    """

    description = "simulated"

    def __init__(self, *, jobs: int, on_end: Callable[[Figures], None]) -> None:
        self.jobs = jobs
        self.figures = Figures()
        self.now_s = 0.0
        self.busy_share: float | None = None
        self._on_end = on_end
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._free_at_s = 0.0
        self._all_s, self._own_s = time.process_time(), time.thread_time()
        self._running: dict[int, float] = {}

    def run(self, source: TrialSource) -> Sequence[str]:
        """Run the source's trials until there are no more."""
        self._source = source
        for _ in range(self.jobs):
            self._at(0.0, self._ask)
        while self._events:
            self.now_s, _, event = heapq.heappop(self._events)
            event()
        return []

    def _at(self, at_s: float, event: Callable[[], None]) -> None:
        heapq.heappush(self._events, (at_s, next(self._order), event))

    def _serve(self, call: Callable[[], T]) -> tuple[T, float, float]:
        """A call's result, when it was answered in simulated time, and its CPU seconds."""
        before_s = time.process_time()
        # The simulation's own work does not count, that of threads beside the calls does.
        beside_s = max(0.0, before_s - self._all_s - (time.thread_time() - self._own_s))
        began_s = max(self.now_s, self._free_at_s + beside_s)
        result = call()
        self._all_s, self._own_s = time.process_time(), time.thread_time()
        took_s = self._all_s - before_s
        self._free_at_s = began_s + took_s
        self.figures.cpu_s += beside_s + took_s
        return result, self._free_at_s, took_s

    def _ask(self) -> None:
        trial, answered_s, took_s = self._serve(self._source.next_trial)
        if trial is None:
            if self.busy_share is None:
                running_s = sum(self.now_s - begun_s for begun_s in self._running.values())
                self.busy_share = (self.figures.busy_s + running_s) / (self.now_s * self.jobs)
            return
        self.figures.ask.append(took_s)
        self.figures.wait.append(answered_s - self.now_s)
        spec, running = trial
        self._running[spec.number] = answered_s
        write_executed(spec, "running")
        self._at(answered_s + step_s(spec), partial(self._report, spec, running, 0))

    def _report(self, spec: TrialSpec, running: RunningTrial, step: int) -> None:
        if running.stop_reason is not None:  # the report raises
            self._end(spec, step, TrialState.PRUNED)
            return
        point = Point(step=step, metrics={"loss": loss(spec, step)})
        self._serve(partial(running.publish, point))
        if step + 1 == REPORTS:
            self._end(spec, step + 1, TrialState.COMPLETED)
        else:
            self._at(self.now_s + step_s(spec), partial(self._report, spec, running, step + 1))

    def _end(self, spec: TrialSpec, steps: int, state: TrialState) -> None:
        series = [(step, loss(spec, step)) for step in range(steps)]
        is_completed = state is TrialState.COMPLETED
        took_s = self.now_s - self._running.pop(spec.number)
        write_executed(spec, str(state))
        outcome = TrialOutcome(
            state=state,
            scores={"loss": series[-1][1]} if is_completed else {},
            series={"loss": series},
            reason=None if is_completed else Reason.PRUNED,
            duration_s=took_s,
            kernel=KernelUse(is_forked=True),
        )
        _, _, recorded_s = self._serve(partial(self._source.finish_trial, spec, outcome))
        self.figures.tell.append(recorded_s)
        self.figures.busy_s += took_s
        self.figures.n_ended += 1
        self._on_end(self.figures)
        self._ask()


def step_s(spec: TrialSpec) -> float:
    """The simulated time of a trial between two of its reports."""
    chance = random.Random(f"duration {spec.seed}")
    trial_s = TRIAL_S * chance.lognormvariate(0.0, SPREAD)
    return trial_s * (SLOWER if chance.random() < STRAGGLERS else 1.0) / REPORTS


def loss(spec: TrialSpec, step: int) -> float:
    """What a trial reports: a curve to a value by its params, with noise by its seed."""
    numbers = {name: float(str(spec.params[name])) for name in ("lr", "width", "dropout")}
    value = (math.log10(numbers["lr"]) + 2.5) ** 2 / 4 + abs(numbers["width"] - 512) / 2000
    noise = random.Random(f"{spec.seed} {step}").gauss(0.0, 0.02)
    return 0.2 + value + numbers["dropout"] ** 2 / 4 + 2 * math.exp(-0.5 * (step + 1)) + noise


def write_executed(spec: TrialSpec, state: str) -> None:
    """Write the executed notebook of a trial, as its worker does."""
    metadata = {
        "study": spec.study,
        "study_id": spec.study_id,
        "run_id": f"{spec.number:04d}",
        "state": state,
        "params": dict(spec.params),
        "seed": spec.seed,
        "attempt": spec.attempt,
    }
    cells = [nbformat.v4.new_code_cell("train()")]
    node = nbformat.v4.new_notebook(cells=cells, metadata={"sweeper": metadata})
    part = Path(f"{spec.notebook}.part")
    part.write_text(json.dumps(node))
    part.replace(spec.notebook)


def in_ms(values_s: Sequence[float]) -> str:
    """Median and 95th percentile in milliseconds."""
    known = sorted(values_s) or [0.0]
    return f"{1e3 * statistics.median(known):.1f} / {1e3 * known[int(0.95 * len(known))]:.1f}"


def main() -> None:
    """Simulate one sweep, and print a table and one JSON object."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--slots", type=int, default=1000, help="(default: 1000)")
    parser.add_argument("--trials", type=int, default=3000, help="(default: 3000)")
    parser.add_argument("--rows", type=int, default=3, help="of the table (default: 3)")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    os.environ.pop("MLFLOW_TRACKING_URI", None)
    size = max(1, options.trials // options.rows)
    seen_cpu_s = 0.0
    print("| trials | CPU ms | ask ms | tell ms | wait ms |\n|---|---|---|---|---|", flush=True)

    def row(figures: Figures) -> None:
        nonlocal seen_cpu_s
        if figures.n_ended % size:
            return
        parts = [in_ms(of[-size:]) for of in (figures.ask, figures.tell, figures.wait)]
        cpu_ms = 1e3 * (figures.cpu_s - seen_cpu_s) / size
        seen_cpu_s = figures.cpu_s
        print(f"| to {figures.n_ended} | {cpu_ms:.0f} | {' | '.join(parts)} |", flush=True)

    fleet = FleetExecutor(jobs=options.slots, on_end=row)
    with tempfile.TemporaryDirectory() as root:
        sweep = Sweep.from_settings(
            Settings.from_mapping(
                {
                    "objective": {"loss": "minimize"},
                    "space": SPACE,
                    "study": {"name": "fleet", "trials": options.trials, "pruner": "median"},
                }
            ),
            notebook=write_notebook(Path(root) / "nb.ipynb", "train()", parameters=PARAMETERS),
            output=f"{root}/out/{{run_id}}.ipynb",
            executor=lambda _: fleet,
            observer=lambda *_: None,
        )
        result = sweep.run()
    figures = fleet.figures
    print(
        json.dumps(
            {
                "counts": result.counts,
                "simulated_h": round(fleet.now_s / 3600, 2),
                "busy": round(fleet.busy_share or 0.0, 4),
                "coordinator_cpu_ms": round(1e3 * figures.cpu_s / figures.n_ended, 1),
            }
        )
    )


if __name__ == "__main__":
    main()
