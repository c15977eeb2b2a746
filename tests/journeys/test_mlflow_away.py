"""Sweeps whose MLflow store cannot be made for a while."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

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


@pytest.fixture
def start(tmp_path: Path) -> Callable[[], Command]:
    """Starts a sweep whose trials wait for a file; a folder is where MLflow's lock belongs."""
    write_notebook(tmp_path / "nb.ipynb", CELL, parameters="x = 0.5")
    (tmp_path / "p.yml").write_text(PARAMETERS)
    obstacle(tmp_path).mkdir(parents=True)
    options = ["-i", "nb.ipynb", "-o", "out/{run_id}.ipynb", "-p", "p.yml", "--json"]
    return lambda: Command(*options, cwd=tmp_path)


def obstacle(folder: Path) -> Path:
    return folder / "out" / "mlflow.db.lock"


def comes(sweeping: Command, text: str) -> bool:
    """Whether a line with this text is among those that the sweep prints next."""
    assert sweeping.stderr is not None
    return any(text in line for line in iter(sweeping.stderr.readline, ""))


def ended(sweeping: Command) -> tuple[int, str]:
    """How many trials of a sweep that comes to its end MLflow has, and what it printed."""
    stdout, stderr = sweeping.communicate(timeout=120)
    assert sweeping.wait() == 0, stderr
    trials: list[Any] = json.loads(stdout)["trials"]
    assert [(it["state"], it["attempt"]) for it in trials] == [("completed", 1)] * 3
    return len({trial["mlflow_run_id"] for trial in trials} - {None}), stderr


def test_a_store_that_cannot_be_made_costs_no_trial_and_the_next_sweep_writes_them(
    start: Callable[[], Command], tmp_path: Path
) -> None:
    (tmp_path / "go").touch()
    n_logged, stderr = ended(start())
    assert n_logged == 0
    assert stderr.count("Is a directory") == 1, stderr
    assert "3 trials did not reach MLflow; the same command sends them again" in stderr
    obstacle(tmp_path).rmdir()
    n_logged, stderr = ended(start())
    assert n_logged == 3
    assert "did not reach MLflow" not in stderr


def test_a_store_is_made_as_soon_as_it_can_be(start: Callable[[], Command], tmp_path: Path) -> None:
    sweeping = start()
    assert comes(sweeping, "trials go on, and another process tries again")
    obstacle(tmp_path).rmdir()
    until((tmp_path / "out" / "mlflow.db").exists)
    (tmp_path / "go").touch()
    assert ended(sweeping)[0] == 3
