"""Whole sweeps with a fixed order, whose trials take random times; one of them is killed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sweeper.testing import write_notebook

pytestmark = pytest.mark.slow  # MLflow is imported

_SWEEP = r"""
import json, random, sys, time
from pathlib import Path
from sweeper import Settings, Sweep
from sweeper.testing import InlineExecutor
from sweeper.trials import TrialOutcome, TrialState

folder, jobs = Path(sys.argv[1]), int(sys.argv[2])

def run_trial(spec, running):
    time.sleep(random.lognormvariate(-3.5, 1.0))
    x, y = spec.params["x"], spec.params["y"]
    sys.stdout.write("ended\n")  # in one piece, as other slots write as well
    sys.stdout.flush()
    score = -((x - 0.3) ** 2) - (y - 0.7) ** 2
    return TrialOutcome(state=TrialState.COMPLETED, scores={"val": score})

result = Sweep.from_settings(
    Settings.from_mapping({
        "study": {
            "name": "order", "seed": 3, "trials": 30, "order": "fixed",
            "sampler": {"name": "tpe", "n_startup_trials": 5},
        },
        "objective": {"val": "maximize"},
        "space": {"x": {"low": 0.0, "high": 1.0}, "y": {"low": 0.0, "high": 1.0}},
    }),
    notebook=folder / "nb.ipynb",
    output=f"{folder}/out/{{run_id}}.ipynb",
    executor=lambda _: InlineExecutor(run_trial, jobs=jobs),
).run()
table = [[r.run_id, r.params, r.scores, r.seed] for r in result.records]
print(json.dumps(table))
"""


def begin(folder: Path, *, jobs: int) -> subprocess.Popen[str]:
    if not folder.exists():
        folder.mkdir()
        write_notebook(folder / "nb.ipynb", "val = x + y", parameters="x = y = 0.5")
    command = [sys.executable, "-c", _SWEEP, str(folder), str(jobs)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def table_of(sweep: subprocess.Popen[str]) -> Any:
    output, _ = sweep.communicate(timeout=900)
    assert sweep.returncode == 0
    return json.loads(output.splitlines()[-1])


def test_a_sweep_that_is_killed_and_goes_on_with_fewer_slots_repeats_one_that_is_not(
    tmp_path: Path,
) -> None:
    whole = begin(tmp_path / "whole", jobs=4)
    broken = begin(tmp_path / "broken", jobs=4)
    assert broken.stdout is not None
    for _ in range(15):
        assert broken.stdout.readline() == "ended\n"
    broken.kill()
    broken.communicate()
    table = table_of(whole)
    assert len(table) == 30
    assert table_of(begin(tmp_path / "broken", jobs=3)) == table
