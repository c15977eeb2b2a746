"""Test whole sweeps in which trials are frozen (paused by SIGSTOP) while others use their slots."""

from __future__ import annotations

import json
import signal
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import nbformat
import psutil
import pytest
from commands import Command, call, project
from ruamel.yaml import YAML
from studies import kernels_in, mlflow_runs, sweep_of, until

from sweeper.notebooks.metadata import BLANK, read_metadata
from sweeper.study.study import Study
from sweeper.testing import write_notebook
from sweeper.trials import TrialRecord, TrialState

pytestmark = [pytest.mark.kernel, pytest.mark.usefixtures("here")]

#: A training that only prints its scores. Better trials have better scores from the first steps on.
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


def test_a_sweep_that_freezes_trials_finds_the_best_one_and_prunes_hopeless_ones() -> None:
    Path("step_s").write_text("0.2")
    # `kernels: fork` skips the comparison of forked with fresh kernels. While it runs, slots
    # wait, and trials continue that would otherwise be frozen.
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
def test_trials_that_were_frozen_at_the_end_run_first_in_the_next_sweep(number: int) -> None:
    name = f"ends-{number}"
    settings = SETTINGS.replace("trials", f"name: {name}, trials")
    *arguments, _, file = project(TRAIN, settings=settings)
    arguments = ["-i", "nb.ipynb", "-o", "out/{study}.{run_id}.ipynb", "-p", file]
    Path("step_s").write_text("1.0")
    sweeping = Command(*arguments, "-j", "2")
    until(lambda: _frozen(name, sweeping) >= 2)
    assert counts(name)["frozen"] >= 2
    assert "frozen, and may continue: 0" in call("status", name).stdout
    sweeping.send_signal(number)
    sweeping.communicate(timeout=60)
    until(lambda: not kernels_in(Path.cwd()), "a paused kernel outlives its sweep")
    before = json.loads(call("status", name, "--json").stdout)
    assert before["counts"]["stopped"] >= 4
    assert "frozen" not in before["counts"]
    Path("step_s").write_text("0.05")
    again = json.loads(call(*arguments, "-j", "2", "--json").stdout)
    assert again["best"]["params"] == {"x": 0.7}
    begun = {trial["run_id"] for trial in before["trials"] if trial["state"] == "stopped"}
    assert {trial["run_id"] for trial in again["trials"] if trial["attempt"] == 2} == begun
    assert statuses(again) == ["FINISHED"] * 12


@pytest.mark.parametrize("victim", ["kernel", "zygote"])
def test_frozen_trials_whose_kernels_die_are_run_again_in_a_free_slot(
    victim: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes, shown_s, died = Counter[int](), list[float](), set[str]()
    awake: list[set[str]] = []
    note_state = Study.note_state

    def count(study: Study, number: int, state: TrialState) -> TrialRecord:
        writes[number] += 1
        return note_state(study, number, state)

    monkeypatch.setattr(Study, "note_state", count)
    Path("step_s").write_text("0.2")
    settings: dict[str, Any] = YAML(typ="safe").load(SETTINGS)
    notebook = write_notebook(Path.cwd() / "nb.ipynb", TRAIN, parameters="x = 0.5")
    kernels = "cold" if victim == "kernel" else "fork"
    output = f"{victim}/{{run_id}}.ipynb"
    sweep = sweep_of(notebook, f"{victim}-dies", output=output, jobs=2, kernels=kernels, **settings)
    is_over = threading.Event()

    def strike() -> None:
        while not is_over.wait(0.02):
            metadata = [read_metadata(path) or BLANK for path in Path(victim).glob("*.ipynb")]
            frozen = [it for it in metadata if it.state is TrialState.FROZEN]
            frozen = [it for it in frozen if _status(it.pid) == psutil.STATUS_STOPPED]
            snapshot = sweep.snapshot()
            running = () if snapshot is None else snapshot.running
            shown_s.extend(trial.elapsed_s for trial in running)
            if died:
                run_ids = {trial.run_id for trial in running}
                woken = {it.run_id for it in metadata if _is_awake(it.pid)}
                awake.append(run_ids & woken)
            elif len(frozen) >= 2:
                kernel = psutil.Process(frozen[0].pid)
                died.update(it.run_id for it in (frozen if victim == "zygote" else frozen[:1]))
                process = kernel if victim == "kernel" else kernel.parent()
                assert process is not None
                process.kill()

    with ThreadPoolExecutor(1) as threads:
        striking = threads.submit(strike)
        try:
            result = sweep.run()
        finally:
            is_over.set()
        striking.result()
    assert died, "no trial was frozen"
    pruned = {it.run_id for it in result.records if "where it was frozen" in it.message}
    assert {record.state for record in result.records} <= {TrialState.COMPLETED, TrialState.PRUNED}
    assert result.best[0].params == {"x": 0.7}
    assert {record.run_id for record in result.records if record.attempt == 2} >= died
    assert min(record.duration_s for record in result.records) > 0
    assert all(record.ended_at_s > record.started_at_s for record in result.records)
    assert min(shown_s) >= 0
    assert max(writes.values()) < 20
    assert max(len(run_ids - pruned) for run_ids in awake) <= 2


def _frozen(name: str, sweeping: Command) -> int:
    assert sweeping.poll() is None, sweeping.communicate()[1]
    return sum('"state": "frozen"' in it.read_text() for it in Path("out").glob(f"{name}.*"))


def _metadata(trial: dict[str, Any]) -> dict[str, Any]:
    node = nbformat.read(trial["notebook"], as_version=4)
    nbformat.validate(node)
    found: dict[str, Any] = node.metadata["sweeper"]
    return found


def _is_awake(pid: int | None) -> bool:
    return _status(pid) not in (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE)


def _status(pid: int | None) -> str:
    with suppress(psutil.NoSuchProcess):
        return str(psutil.Process(pid).status()) if pid is not None else psutil.STATUS_ZOMBIE
    return psutil.STATUS_ZOMBIE
