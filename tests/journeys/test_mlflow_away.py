"""A sweep whose MLflow store cannot be made for a while."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from commands import Command
from studies import until

from sweeper.testing import write_notebook

pytestmark = pytest.mark.kernel

CELL = "import pathlib, time\nwhile not pathlib.Path('go').exists(): time.sleep(0.01)\nval = x"
PARAMETERS = """\
objective: {val: maximize}
space: {x: {low: 0.0, high: 1.0}}
study: {trials: 3, sampler: random}
"""


def test_a_store_is_made_as_soon_as_it_can_be_and_no_trial_waits_for_it(tmp_path: Path) -> None:
    write_notebook(tmp_path / "nb.ipynb", CELL, parameters="x = 0.5")
    (tmp_path / "p.yml").write_text(PARAMETERS)
    obstacle = tmp_path / "out" / "mlflow.db.lock"
    obstacle.mkdir(parents=True)
    options = ["-i", "nb.ipynb", "-o", "out/{run_id}.ipynb", "-p", "p.yml", "--json"]
    sweeping = Command(*options, cwd=tmp_path)
    assert sweeping.stderr is not None
    told = "trials go on, and another process tries again"
    assert any(told in line for line in iter(sweeping.stderr.readline, ""))
    obstacle.rmdir()
    until((tmp_path / "out" / "mlflow.db").exists)
    (tmp_path / "go").touch()
    stdout, stderr = sweeping.communicate(timeout=120)
    assert sweeping.wait() == 0, stderr
    trials = json.loads(stdout)["trials"]
    assert [(it["state"], it["attempt"]) for it in trials] == [("completed", 1)] * 3
    assert len({trial["mlflow_run_id"] for trial in trials} - {None}) == 3
