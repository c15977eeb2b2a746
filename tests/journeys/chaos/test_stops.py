"""Test that sweeps which get SIGTERM at random moments end in time and can be resumed.

    uv run tests/journeys/chaos/test_stops.py --moments 40

is the long form; a short one is part of the tests. First, the duration of each stage of one sweep
is measured. Each moment is then a time after the beginning of a stage, so that it also hits a sweep
on a machine that is busier than before. If the sweep has already ended at a moment, another moment
is drawn.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import psutil
import pytest

# For the call without pytest, which would add this folder by itself.
sys.path.append(str(Path(__file__).parents[2] / "helpers"))

from commands import Command
from studies import kernels_in, mlflow_runs, processes_in

from sweeper.guard import mark_of, marked_processes
from sweeper.testing import write_notebook

TRAIN = """
import math, time
for epoch in range(8):
    time.sleep(0.2)
    acc = (1 - abs(x - 0.7)) * (1 - math.exp(-(epoch + 1) / 4))
    print(f"{epoch}: acc={acc:.6f}", flush=True)
"""
TRIALS, GRACE_S = 8, 6.0
#: Seconds that the end of a sweep may take in addition to its grace time, on a busy machine.
SLACK_S = 2.0
PARAMETERS = f"""
study: {{sampler: {{name: grid}}, pruner: auto, trials: {TRIALS}}}
objective: {{acc: maximize}}
scores: {{acc: {{pattern: 'acc=([0-9.]+)'}}}}
space: {{x: [0.1, 0.2, 0.3, 0.4, 0.6, 0.7, 0.8, 0.9]}}
limits: {{grace: {GRACE_S}s}}
sync: {{url: 'file://COPY', every: 1s}}
"""
#: Exit codes after SIGTERM: a clean stop; the system's default action, before the sweep begins or
#: after it has ended; or success, if the sweep had already completed.
EXIT_CODES = (143, -signal.SIGTERM, 0)


class Stage(StrEnum):
    """The stages of a sweep that can be seen from outside. Each lasts until the next one begins."""

    BEGINS = "it begins"
    BOOTS = "kernels boot"
    PROVES = "the first trial has ended, forked kernels are checked"
    FREEZES = "trials are frozen"
    ENDS = "all trials have ended: remote copy, page, MLflow, summary"


@dataclass(frozen=True)
class Call:
    """A process that sweeps a study, and the folder with its notebook and outputs."""

    folder: Path
    process: Command

    @classmethod
    def begin(cls, folder: Path) -> Call:
        """Write the notebook and its parameters file, and start the sweep."""
        folder.mkdir(exist_ok=True)
        write_notebook(folder / "nb.ipynb", TRAIN, parameters="x = 0.5")
        # The remote copy is outside of the sweep's folder, in which `left` looks for processes.
        copy = folder.with_name(f"{folder.name}-copy")
        (folder / "nb.yml").write_text(PARAMETERS.replace("COPY", str(copy)))
        options = ("-i", "nb.ipynb", "-p", "nb.yml", "-o", "out/{run_id}.ipynb", "-j", "2")
        with open(folder / "stderr.txt", "w") as stderr:
            return cls(folder, Command(*options, "--json", cwd=folder, stderr=stderr))

    def result(self) -> dict[str, Any]:
        """Wait until the command completes. Return its result."""
        stdout, _ = self.process.communicate(timeout=120)
        assert self.process.returncode == 0, (self.folder / "stderr.txt").read_text()
        found: dict[str, Any] = json.loads(stdout.splitlines()[-1])
        return found

    def await_stage(self, stage: Stage) -> bool:
        """Wait until this stage or a later one has begun.

        Returns:
            False if the sweep has ended before.
        """
        while self.process.poll() is None:
            if self._has_begun(stage):
                return True
            time.sleep(0.05)
        return False

    def _has_begun(self, stage: Stage) -> bool:
        n_ended = len(ended_trials(self.folder))
        match stage:
            case Stage.BEGINS:
                return True
            case Stage.BOOTS:
                return any(self.folder.glob("out/*.ipynb"))
            case Stage.PROVES:
                return n_ended > 0
            case Stage.FREEZES:
                kernels = kernels_in(self.folder)
                return n_ended == TRIALS or any(map(stands_still, kernels))
            case Stage.ENDS:
                return n_ended == TRIALS

    def left(self) -> list[Any]:
        """Return all processes that the sweep has left behind."""
        marked = marked_processes(mark_of((self.folder / "out" / "nb").resolve()))
        return [*marked, *kernels_in(self.folder), *processes_in(self.folder)]


def stands_still(process: psutil.Process) -> bool:
    """Return whether a process is suspended."""
    with suppress(psutil.Error):
        return process.status() == psutil.STATUS_STOPPED
    return False


def ended_trials(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the metadata of the trials that have ended, except stopped ones."""
    found = {}
    for path in folder.glob("out/*.ipynb"):
        metadata = json.loads(path.read_text("utf-8"))["metadata"]["sweeper"]
        if metadata["state"] in ("completed", "pruned", "failed"):
            found[metadata["run_id"]] = metadata
    return found


def measured_life() -> dict[Stage, float]:
    """Return the duration of each stage of an undisturbed sweep in seconds."""
    with tempfile.TemporaryDirectory(prefix="stops") as parent:
        call = Call.begin(Path(parent, "sweep"))
        begun_s = {}
        for stage in Stage:
            call.await_stage(stage)
            begun_s[stage] = time.monotonic()
        call.result()
        ends_s = [*begun_s.values(), time.monotonic()][1:]
    return {stage: end_s - begun_s[stage] for stage, end_s in zip(Stage, ends_s, strict=True)}


def stop_at(stage: Stage, later_s: float, folder: Path) -> str | None:
    """Stop a sweep some time after a stage has begun, resume it, and check both sweeps.

    Args:
        stage: The stage.
        later_s: Seconds between the beginning of the stage and the stop.
        folder: Folder of the sweep.

    Returns:
        A description of the stop for people. None if the sweep had ended before.
    """
    moment = f"{stage}, {later_s:.2f} s later"
    call = Call.begin(folder)
    if call.await_stage(stage):
        time.sleep(later_s)
    if call.process.poll() is not None:
        return None
    stopped_s = time.monotonic()
    call.process.send_signal(signal.SIGTERM)
    call.process.communicate(timeout=120)
    took_s = time.monotonic() - stopped_s
    complaints = (folder / "stderr.txt").read_text()
    assert took_s < GRACE_S + SLACK_S, (moment, took_s, complaints)
    assert call.process.returncode in EXIT_CODES, (moment, complaints)
    assert "Traceback" not in complaints, (moment, complaints)
    assert call.left() == [], (moment, complaints)
    before = ended_trials(folder)
    result = Call.begin(folder).result()
    after = ended_trials(folder)
    assert sorted(after) == [f"{number:04d}" for number in range(TRIALS)]
    assert {run_id: after[run_id] for run_id in before} == before, moment
    assert result["best"]["params"] == {"x": 0.7}
    # A run whose tag for the study's id is empty belongs to an earlier attempt. It is kept because
    # that attempt had logged more points.
    all_runs = mlflow_runs(result["tracking_uri"], "nb")
    runs = [run for run in all_runs if run.data.tags["sweeper.study_id"]]
    names = sorted(run.info.run_name for run in runs)
    assert names == sorted(after), (moment, names, (folder / "stderr.txt").read_text())
    assert {run.info.status for run in runs} == {"FINISHED"}
    code = call.process.returncode
    return f"{moment}: exit code {code} after {took_s:.2f} s, {len(before)} had ended"


def stop_often(moments: int, seed: int, life: Mapping[Stage, float]) -> None:
    """Stop sweeps at moments that are spread over their stages.

    Args:
        moments: Number of stops. A stop counts only if the sweep was still running.
        seed: Seed of the random moments.
        life: Duration of each stage in seconds.
    """
    chance = random.Random(seed)
    print(f"seed {seed}", flush=True)
    print(", ".join(f"{length_s:.1f} s {stage}" for stage, length_s in life.items()), flush=True)
    stages = list(life)
    while moments > 0:
        stage = stages[moments % len(stages)]
        later_s = chance.random() * life[stage]
        with tempfile.TemporaryDirectory(prefix="stops") as parent:
            description = stop_at(stage, later_s, Path(parent, "sweep"))
        print(description or f"{stage}: had ended", flush=True)
        moments -= description is not None


@pytest.mark.slow
@pytest.mark.kernel
@pytest.mark.usefixtures("started_kernels")
def test_a_sweep_that_is_stopped_at_any_moment_ends_in_time_and_can_be_resumed() -> None:
    seed = int.from_bytes(os.urandom(4), "big")
    stop_often(moments=1, seed=seed, life=dict.fromkeys(Stage, 1.0))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--moments", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    stop_often(chosen.moments, chosen.seed, measured_life())
