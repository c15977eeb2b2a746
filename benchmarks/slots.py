"""How long slots wait for the sweep's process, and what a trial costs it, with many at once.

    uv run benchmarks/slots.py [--jobs 64] [--kernels 2,8,16]

"simulated" trials only wait, on a thread of the sweep's process: what remains is the work of the
scheduler, the study and the tracker. Trials in kernels run a notebook that waits. Both wait for
five seconds and report twice. "wait" lies between the end of one trial's work and the start of the
next one's on its slot: for kernels, between their last and first cells. CPU is from the first to
the last trial's end: of the sweep's own process, of the one that writes to MLflow, and of all.
"""

from __future__ import annotations

import argparse
import datetime
import json
import logging
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from sweeper import Settings, Sweep
from sweeper.notebook_api.messages import Point
from sweeper.testing import InlineExecutor, write_notebook
from sweeper.trials import (
    Event,
    RunningTrial,
    TrialOutcome,
    TrialRecord,
    TrialSpec,
    TrialState,
)

#: How long each trial waits.
WORK_S = 5.0
CELLS = (
    f"import time, sweeper\nsweeper.report(0, val=x)\ntime.sleep({WORK_S})",
    "sweeper.report(1, val=x * 2)",
)


@dataclass(kw_only=True)
class Usage:
    """CPU seconds at some trials' ends."""

    at: list[tuple[float, float, float, float]] = field(default_factory=list)
    #: What looking for them has taken, which is no part of a sweep.
    looked_s: float = 0.0

    def observe(self, event: Event, _: TrialRecord | None) -> None:
        """Take the CPU times at the end of a trial."""
        if event is not Event.TRIAL_ENDED:
            return
        began_s = time.thread_time()
        process = psutil.Process()
        own, writer, others = time.process_time() - self.looked_s, 0.0, 0.0
        for child in process.children(recursive=True):
            try:
                times, line = child.cpu_times(), " ".join(child.cmdline())
            except psutil.Error:
                continue
            used_s = times.user + times.system
            writer += used_s if "writing_process" in line else 0.0
            others += 0.0 if "writing_process" in line else used_s
            others += times.children_user + times.children_system
        ended = process.cpu_times()
        others += ended.children_user + ended.children_system
        self.at.append((time.monotonic(), own, writer, others))
        self.looked_s += time.thread_time() - began_s

    def per_trial_ms(self, skip: int) -> tuple[float, float, float]:
        """Milliseconds of CPU a trial: of this process, of the writer, of all."""
        first, last = self.at[skip], self.at[-1]
        n_trials = len(self.at) - 1 - skip
        own, writer, others = (
            1e3 * (after - before) / n_trials
            for before, after in zip(first[1:], last[1:], strict=True)
        )
        return own, writer, own + writer + others


def simulated(folder: Path, jobs: int, trials: int) -> tuple[list[float], Usage]:
    """The waits of trials that only wait."""
    ends: dict[int, float] = {}
    waits: list[float] = []

    def run_trial(spec: TrialSpec, running: RunningTrial) -> TrialOutcome:
        now_s = time.monotonic()
        ended_s = ends.pop(threading.get_ident(), None)
        if ended_s is not None:
            waits.append(now_s - ended_s)
        x = float(spec.params["x"])  # type: ignore[arg-type]
        running.publish(Point(step=0, metrics={"val": x}))
        time.sleep(WORK_S)
        running.publish(Point(step=1, metrics={"val": 2 * x}))
        ends[threading.get_ident()] = time.monotonic()
        series = {"val": [(0, x), (1, 2 * x)]}
        return TrialOutcome(state=TrialState.COMPLETED, scores={"val": 2 * x}, series=series)

    usage = Usage()
    _sweep(
        folder,
        jobs,
        trials,
        usage,
        executor=lambda _: InlineExecutor(run_trial, jobs=jobs),
    ).run()
    return waits[jobs:], usage


def in_kernels(folder: Path, jobs: int, trials: int) -> tuple[list[float], Usage]:
    """The waits of trials in kernels, between the cells of one and those of the next."""
    usage = Usage()
    result = _sweep(folder, jobs, trials, usage).run()
    assert result.counts["completed"] == trials, result.records
    starts, ends = [], []
    for record in result.records:
        cells = json.loads(record.notebook.read_text())["cells"]
        times = [cell["metadata"].get("papermill", {}) for cell in cells]
        starts.append(min(_seconds(t["start_time"]) for t in times if t.get("start_time")))
        ends.append(max(_seconds(t["end_time"]) for t in times if t.get("end_time")))
    # The slot that is free first starts the next trial.
    pairs = zip(sorted(ends), sorted(starts)[jobs:], strict=False)
    return [start - end for end, start in pairs][2 * jobs :], usage


def _seconds(text: str) -> float:
    return datetime.datetime.fromisoformat(text).timestamp()


def _sweep(folder: Path, jobs: int, trials: int, usage: Usage, **options: object) -> Sweep:
    data = {
        "objective": {"val": "maximize"},
        "space": {"x": {"low": 0.0, "high": 1.0}},
        "study": {"name": "slots", "trials": trials, "sampler": "random"},
    }
    return Sweep.from_settings(
        Settings.from_mapping(data),
        notebook=write_notebook(folder / "nb.ipynb", *CELLS, parameters="x = 0.5"),
        output=f"{folder}/out/{{run_id}}.ipynb",
        jobs=jobs,
        observer=usage.observe,
        **options,  # type: ignore[arg-type]
    )


def main() -> None:
    """Measure and print one table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--jobs", default="64", help="simulated slots (default: 64)")
    parser.add_argument("--kernels", default="2,8,16", help="slots with kernels (default: 2,8,16)")
    parser.add_argument("--each", type=int, default=6, help="trials per slot (default: 6)")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    os.environ.pop("MLFLOW_TRACKING_URI", None)
    print("| trials | at once | median wait | 95th percentile | CPU: sweep | MLflow | all |")
    print("|---|---|---|---|---|---|---|", flush=True)
    kinds: Sequence[tuple[str, str, Callable[[Path, int, int], tuple[list[float], Usage]]]] = [
        ("simulated", options.jobs, simulated),
        ("in kernels", options.kernels, in_kernels),
    ]
    for name, all_jobs, measure in kinds:
        for jobs in map(int, filter(None, all_jobs.split(","))):
            with tempfile.TemporaryDirectory() as folder:
                waits, usage = measure(Path(folder), jobs, options.each * jobs)
            own, writer, everyone = usage.per_trial_ms(skip=2 * jobs)
            waits_ms = [1e3 * wait for wait in waits]
            print(
                f"| {name} | {jobs} | {statistics.median(waits_ms):.0f} ms "
                f"| {statistics.quantiles(waits_ms, n=20)[-1]:.0f} ms "
                f"| {own:.0f} ms | {writer:.0f} ms | {everyone:.0f} ms |",
                flush=True,
            )


if __name__ == "__main__":
    main()
