"""Sweeps whose MLflow store cannot be made for a while."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from commands import Command

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


def completed(sweeping: Command) -> list[Any]:
    """The trials of a sweep that comes to its end, all with their runs in MLflow."""
    stdout, stderr = sweeping.communicate(timeout=120)
    assert sweeping.wait() == 0, stderr
    trials: list[Any] = json.loads(stdout)["trials"]
    assert len({trial["mlflow_run_id"] for trial in trials} - {None}) == 3
    return trials


def test_a_store_that_cannot_be_made_costs_no_trial_and_the_next_sweep_writes_them(
    start: Callable[[], Command], tmp_path: Path
) -> None:
    go, first = tmp_path / "go", tmp_path / "out" / "0000.ipynb"
    sweeping = start()
    assert comes(sweeping, "Is a directory")
    go.touch()
    assert comes(sweeping, "0000 completed")
    sweeping.terminate()
    assert comes(sweeping, "what MLflow lacks is written by the next sweep")
    assert sweeping.wait(60) == 143
    assert first.exists()

    go.unlink()
    sweeping = start()  # a study that exists does not go on without its MLflow
    _, stderr = sweeping.communicate(timeout=60)
    assert sweeping.wait() == 2
    assert "Is a directory" in stderr.splitlines()[-1]
    assert first.exists()

    obstacle(tmp_path).rmdir()
    go.touch()
    assert completed(start())[0]["attempt"] == 1


def test_a_store_is_made_as_soon_as_it_can_be(start: Callable[[], Command], tmp_path: Path) -> None:
    sweeping = start()
    assert comes(sweeping, "trials go on, and it is tried again")
    obstacle(tmp_path).rmdir()
    assert comes(sweeping, "the MLflow store can be used again")
    (tmp_path / "go").touch()
    completed(sweeping)
