"""Trials that stand still while others have their slots, in whole sweeps."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import nbformat
import pytest
from commands import Command, call, project
from studies import kernels_in, mlflow_runs, until

pytestmark = [pytest.mark.kernel, pytest.mark.usefixtures("here")]

#: It only prints, and the better ones of its trials show early that they are.
TRAIN = """
import math, time
for epoch in range(12):
    time.sleep(float(open("step_s").read()))
    acc = (1 - abs(x - 0.7)) * (1 - math.exp(-(epoch + 1) / 4))
    print(f"{epoch}: acc={acc:.6f}", flush=True)
"""
SETTINGS = """
study: {trials: 12, sampler: {name: grid}, pruner: auto}
objective: {acc: maximize}
scores: {acc: {pattern: 'acc=([0-9.]+)'}}
space: {x: [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.05, 0.15]}
"""


def counts(name: str) -> dict[str, int]:
    found: dict[str, int] = json.loads(call("status", name, "--json").stdout)["counts"]
    return found


def statuses(result: dict[str, Any]) -> list[str]:
    return [run.info.status for run in mlflow_runs(result["tracking_uri"], result["study"])]


def test_the_best_is_found_and_hopeless_trials_end_where_they_were_frozen() -> None:
    Path("step_s").write_text("0.05")
    # While forks are proven, slots wait, and trials go on that would be frozen.
    settings = SETTINGS + "kernels: fork\n"
    result = json.loads(call(*project(TRAIN, settings=settings), "-j", "2", "--json").stdout)
    assert result["best"]["params"] == {"x": 0.7}
    assert set(result["counts"]) == {"completed", "pruned", "failed", "stopped"}
    assert result["counts"]["pruned"] >= 6
    assert result["counts"]["completed"] + result["counts"]["pruned"] == 12
    pruned = [trial for trial in result["trials"] if trial["state"] == "pruned"]
    assert all(trial["message"].startswith("pruned at step ") for trial in pruned)
    assert any("where it was frozen" in trial["message"] for trial in pruned)
    assert all("frozen_at" not in _metadata(trial) for trial in result["trials"])
    assert statuses(result) == ["FINISHED"] * 12


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_frozen_trials_of_a_sweep_that_ends_come_first_in_the_next(number: int) -> None:
    name = f"ends-{number}"
    settings = SETTINGS.replace("trials", f"name: {name}, trials")
    *arguments, _, file = project(TRAIN, settings=settings)
    arguments = ["-i", "nb.ipynb", "-o", "out/{study}.{run_id}.ipynb", "-p", file]
    Path("step_s").write_text("1.0")
    sweeping = Command(*arguments, "-j", "2")
    until(lambda: _frozen(name, sweeping) >= 2)
    assert counts(name)["frozen"] >= 2
    assert "frozen, and may go on: 0" in call("status", name).stdout
    sweeping.send_signal(number)
    sweeping.communicate(timeout=60)
    until(lambda: not kernels_in(Path.cwd()), "a kernel that stood still outlives its sweep")
    before = json.loads(call("status", name, "--json").stdout)
    assert before["counts"]["stopped"] >= 4
    assert "frozen" not in before["counts"]
    Path("step_s").write_text("0.05")
    again = json.loads(call(*arguments, "-j", "2", "--json").stdout)
    assert again["best"]["params"] == {"x": 0.7}
    begun = {trial["run_id"] for trial in before["trials"] if trial["state"] == "stopped"}
    assert {trial["run_id"] for trial in again["trials"] if trial["attempt"] == 2} == begun
    assert statuses(again) == ["FINISHED"] * 12


def _frozen(name: str, sweeping: Command) -> int:
    assert sweeping.poll() is None, sweeping.communicate()[1]
    return sum('"state": "frozen"' in it.read_text() for it in Path("out").glob(f"{name}.*"))


def _metadata(trial: dict[str, Any]) -> dict[str, Any]:
    node = nbformat.read(trial["notebook"], as_version=4)
    nbformat.validate(node)
    found: dict[str, Any] = node.metadata["sweeper"]
    return found
