"""A sweep from the command line that is killed while it confirms its best trial, and resumed."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import nbformat
import pytest
from commands import Command, call
from mlflow import MlflowClient
from studies import until

from sweeper.testing import write_notebook

pytestmark = [pytest.mark.kernel, pytest.mark.usefixtures("here")]

FILES = ["-i", "noisy.ipynb", "-o", "out/noisy.{run_id}.ipynb", "-p", "noisy.yml", "-j", "2"]
CONFIRM = ["--confirm", "2", "--seeds", "2"]
#: The first run on the second seed waits as long as the file `hold` is there.
CELL = """
import random, time, sweeper
from pathlib import Path
if int(run_id) >= 5:
    while Path("hold").exists():
        time.sleep(0.02)
for step in range(3):
    sweeper.report(step, val=x + random.Random(seed).gauss(0, 0.01))
"""


def trials_of(answer: dict[str, Any]) -> dict[str, Any]:
    return {trial["run_id"]: trial for trial in answer["trials"]}


def test_a_kill_while_the_best_are_confirmed_costs_nothing_and_repeats_nothing() -> None:
    write_notebook(Path("noisy.ipynb"), CELL, parameters='x = 0.5\nseed = 0\nrun_id = "0000"')
    Path("noisy.yml").write_text(
        "objective: {val: maximize}\nspace: {x: [0.1, 0.5, 0.9]}\n"
        "study: {trials: 3, sampler: grid, pruner: {name: threshold, upper: 100.0}}\n"
    )
    hold = Path("hold")
    hold.touch()
    sweeping = Command(*FILES, *CONFIRM)
    waiting = [Path(f"out/noisy.{run_id}.ipynb") for run_id in ("0005", "0006")]
    until(lambda: all(f.exists() and '"status": "running"' in f.read_text() for f in waiting))
    sweeping.send_signal(signal.SIGKILL)
    _, printed = sweeping.communicate(timeout=60)
    assert "0003 (confirms 000" in printed
    hold.unlink()

    killed = json.loads(call("status", "out/noisy", "--json").stdout)
    assert killed["counts"] == {"completed": 3, "pruned": 0, "failed": 0, "stopped": 0}
    assert (killed["confirmation"]["wanted"], killed["confirmation"]["missing"]) == (4, 2)
    assert killed["best"]["won_by"] == "search_score"
    seen = call("status", "out/noisy").stdout
    assert "2 of 4 runs on fresh seeds are missing" in seen

    resumed = call(*FILES, *CONFIRM, "--json")
    assert resumed.returncode == 0, resumed.stderr
    answer = json.loads(resumed.stdout.splitlines()[-1])
    before, after = trials_of(killed), trials_of(answer)
    assert list(after) == [f"{number:04d}" for number in range(7)]
    for run_id, trial in after.items():
        was_killed = run_id in ("0005", "0006")
        assert trial["state"] == "completed"
        assert trial["attempt"] == (2 if was_killed else 1)
        assert (trial["seed"], trial["confirms"]) == tuple(
            before[run_id][key] for key in ("seed", "confirms")
        )
    assert [after[f"{n:04d}"]["confirms"] for n in (3, 5)] == [answer["best"]["run_id"]] * 2
    assert answer["best"]["params"] == {"x": 0.9}
    assert answer["best"]["won_by"] == "confirmed_mean"
    assert answer["best"]["confirmed"]["seeds"] == 2
    metadata = nbformat.read("out/noisy.0006.ipynb", as_version=4).metadata["sweeper"]
    assert metadata["confirms"] == after["0006"]["confirms"]

    runs = MlflowClient(answer["tracking_uri"]).search_runs([answer["experiment_id"]])
    assert {run.info.status for run in runs} == {"FINISHED"}
    assert len(runs) == 7
    assert (
        json.loads(call(*FILES, *CONFIRM, "--json").stdout.splitlines()[-1])["trials"]
        == (answer["trials"])
    ), "nothing is left to do"


def test_a_notebook_without_a_seed_is_found_out() -> None:
    write_notebook(Path("deaf.ipynb"), "val = x", parameters="x = 0.5")
    Path("deaf.yml").write_text(
        "objective: {val: maximize}\nspace: {x: [0.1, 0.5]}\n"
        "study: {trials: 2, sampler: grid}\nconfirm: {best: 1, seeds: 2}\n"
    )
    done = call("-i", "deaf.ipynb", "-o", "out/deaf.{run_id}.ipynb", "-p", "deaf.yml", "--json")
    assert "every seed gives the same score: the notebook does not use its seed" in done.stderr
    answer = json.loads(done.stdout.splitlines()[-1])
    assert answer["confirmation"]["seed_has_no_effect"]
    assert answer["best"]["confirmed"]["interval"] is None


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--confirm", "0"], "--confirm 0: expected a whole number of 1 or more"),
        (["--confirm", "3", "--seeds", "1"], "--seeds 1: expected a whole number of 2 or more"),
        (["--seeds", "3"], "--seeds 3: on how many seeds"),
        (["--confirm", "2", "--set", "seed=3"], "take it out of fixed"),
    ],
)
def test_wrong_flags_are_refused_in_one_line(flags: list[str], message: str) -> None:
    write_notebook(Path("flags.ipynb"), "val = x", parameters="x = 0.5\nseed = 0")
    Path("flags.yml").write_text("objective: {val: maximize}\nspace: {x: [0.1, 0.5]}\n")
    done = call("-i", "flags.ipynb", "-o", "out/f.{run_id}.ipynb", "-p", "flags.yml", *flags)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
