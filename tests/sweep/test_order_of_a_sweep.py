"""Whole sweeps with a fixed order, whose trials take random times. One of them is killed."""

from __future__ import annotations

import json
from pathlib import Path

import ordered_sweep
import pytest
from commands import Command

pytestmark = pytest.mark.slow  # MLflow is imported


def begin(folder: Path, *, jobs: int) -> Command:
    return Command(str(folder), str(jobs), script=ordered_sweep.__file__)


def test_a_killed_sweep_resumed_with_fewer_slots_proposes_the_same_trials(
    tmp_path: Path,
) -> None:
    broken, whole = tmp_path / "broken", tmp_path / "whole"
    broken.mkdir()
    whole.mkdir()
    killed = begin(broken, jobs=4)
    assert killed.stdout is not None
    for _ in range(ordered_sweep.TRIALS // 2):
        assert killed.stdout.readline() == "ended\n"
    killed.kill()
    killed.communicate()

    continued = begin(broken, jobs=3)
    table = ordered_sweep.sweep(whole, jobs=4)
    output, _ = continued.communicate(timeout=900)
    assert continued.returncode == 0
    assert len(table) == ordered_sweep.TRIALS
    assert json.loads(output.splitlines()[-1]) == json.loads(json.dumps(table))
