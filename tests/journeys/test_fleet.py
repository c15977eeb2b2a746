"""What a study with many trials costs, in short."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import call

BENCHMARK = str(Path(__file__).parents[2] / "benchmarks" / "fleet.py")


@pytest.mark.slow  # Optuna's own imports
def test_the_benchmark_of_a_fleet_in_short_ends_all_trials() -> None:
    ended = call("--slots=4", "--trials=20", script=BENCHMARK)
    assert ended.returncode == 0, ended.stderr
    rows = [line for line in ended.stdout.splitlines() if " to " in line]
    assert rows[-1].startswith("| 18 to 20 |")
