"""A fleet in simulated time, in short."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from commands import call

BENCHMARK = str(Path(__file__).parents[2] / "benchmarks" / "fleet.py")


@pytest.mark.slow  # MLflow is imported
def test_the_benchmark_of_a_fleet_in_short_ends_all_trials_and_keeps_the_slots_busy() -> None:
    ended = call("--slots=16", "--trials=32", "--rows=1", script=BENCHMARK)
    assert ended.returncode == 0, ended.stderr
    figures = json.loads(ended.stdout.splitlines()[-1])
    counts = figures["counts"]
    assert counts["completed"] + counts["pruned"] == 32
    assert 0.9 < figures["busy"] <= 1
