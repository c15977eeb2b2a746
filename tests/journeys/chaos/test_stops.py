"""Sweeps that get SIGTERM at random moments of their lives, and are continued.

    uv run tests/journeys/chaos/test_stops.py --moments 40

is the long form; the short one is part of the tests. The moments lie between a call's start and its
usual end: kernels boot, forking is proven, trials are frozen, the page is
written, MLflow receives the end, the summary is printed.
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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parents[2]))  # for the long form, which pytest does not start

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
#: How long such a sweep takes undisturbed (measured).
WHOLE_S = 11.0
#: How much longer than the grace time the end of a process may take on a busy machine.
SLACK_S = 2.0
PARAMETERS = f"""
study: {{sampler: {{name: grid}}, pruner: auto, trials: {TRIALS}}}
objective: {{acc: maximize}}
scores: {{acc: {{pattern: 'acc=([0-9.]+)'}}}}
space: {{x: [0.1, 0.2, 0.3, 0.4, 0.6, 0.7, 0.8, 0.9]}}
limits: {{grace: {GRACE_S}s}}
"""
#: What SIGTERM leads to: a clean stop; the system's default, before and after all that matters; or
#: nothing, where the result was there already.
EXIT_CODES = (143, -signal.SIGTERM, 0)


@dataclass(frozen=True)
class Call:
    """The one command, in a folder with its project."""

    folder: Path
    process: Command

    @classmethod
    def begin(cls, folder: Path) -> Call:
        """Start it."""
        write_notebook(folder / "nb.ipynb", TRAIN, parameters="x = 0.5")
        (folder / "nb.yml").write_text(PARAMETERS)
        options = ("-i", "nb.ipynb", "-p", "nb.yml", "-o", "out/{run_id}.ipynb", "-j", "2")
        with open(folder / "stderr.txt", "w") as stderr:
            return cls(folder, Command(*options, "--json", cwd=folder, stderr=stderr))

    def result(self) -> dict[str, Any]:
        """Wait until it completes."""
        stdout, _ = self.process.communicate(timeout=120)
        assert self.process.returncode == 0, (self.folder / "stderr.txt").read_text()
        found: dict[str, Any] = json.loads(stdout.splitlines()[-1])
        return found

    def left(self) -> list[Any]:
        """Every process that is left of it."""
        marked = marked_processes(mark_of((self.folder / "out" / "nb").resolve()))
        return [*marked, *kernels_in(self.folder), *processes_in(self.folder)]


def ended_trials(folder: Path) -> dict[str, dict[str, Any]]:
    """What the executed notebooks of trials that have ended say, but for stopped ones."""
    found = {}
    for path in folder.glob("out/*.ipynb"):
        metadata = json.loads(path.read_text("utf-8"))["metadata"]["sweeper"]
        if metadata["state"] in ("completed", "pruned", "failed"):
            found[metadata["run_id"]] = metadata
    return found


def stop_at(moment_s: float, folder: Path) -> str:
    """Stop a sweep so many seconds after its start, continue it, and check both.

    Returns:
        what came of the stop, for people.
    """
    call = Call.begin(folder)
    time.sleep(moment_s)
    stopped_s = time.monotonic()
    call.process.send_signal(signal.SIGTERM)
    call.process.communicate(timeout=120)
    took_s = time.monotonic() - stopped_s
    complaints = (folder / "stderr.txt").read_text()
    assert took_s < GRACE_S + SLACK_S, (moment_s, took_s, complaints)
    assert call.process.returncode in EXIT_CODES, (moment_s, complaints)
    assert "Traceback" not in complaints, (moment_s, complaints)
    assert call.left() == [], (moment_s, complaints)
    before = ended_trials(folder)
    result = Call.begin(folder).result()
    after = ended_trials(folder)
    assert sorted(after) == [f"{number:04d}" for number in range(TRIALS)]
    assert {run_id: after[run_id] for run_id in before} == before, moment_s
    assert result["best"]["params"] == {"x": 0.7}
    # A run without the study's id is of an earlier attempt that had come further.
    all_runs = mlflow_runs(result["tracking_uri"], "nb")
    runs = [run for run in all_runs if run.data.tags["sweeper.study_id"]]
    names = sorted(run.info.run_name for run in runs)
    assert names == sorted(after), (moment_s, names, (folder / "stderr.txt").read_text())
    assert {run.info.status for run in runs} == {"FINISHED"}
    code = call.process.returncode
    return f"at {moment_s:.2f} s: exit code {code} after {took_s:.2f} s, {len(before)} had ended"


def stop_often(moments: int, seed: int) -> None:
    """Stop as many sweeps, spread over the time that one takes undisturbed."""
    chance = random.Random(seed)
    print(f"seed {seed}", flush=True)
    for place in range(moments):
        moment_s = (place + chance.random()) * WHOLE_S / moments
        with tempfile.TemporaryDirectory(prefix="stops") as folder:
            print(stop_at(moment_s, Path(folder)), flush=True)


@pytest.mark.slow
@pytest.mark.kernel
@pytest.mark.usefixtures("started_kernels")
def test_a_sweep_that_is_stopped_at_any_moment_ends_in_time_and_goes_on() -> None:
    stop_often(moments=1, seed=int.from_bytes(os.urandom(4), "big"))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--moments", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    stop_often(chosen.moments, chosen.seed)
