"""Test whole sweeps while the MLflow store cannot be made, or its writer is killed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
from commands import Command, project
from studies import mlflow_client, until

pytestmark = pytest.mark.kernel

ROOT = Path(__file__).parents[2]


WAIT = "import pathlib, time\nwhile not pathlib.Path('go').exists(): time.sleep(0.01)\nval = x"
STUDY = "study: {trials: 3, sampler: random}"


def is_writer(process: psutil.Process) -> bool:
    try:
        return "tracking.writer" in " ".join(process.cmdline())
    except psutil.Error:  # the process has just ended
        return False


@pytest.mark.slow  # because the command imports MLflow itself
def test_killing_the_process_that_writes_to_mlflow_loses_no_run_and_other_signals_do_not_end_it(
    tmp_path: Path,
) -> None:
    files = project(
        "import sweeper\nsweeper.report(0, val=x)", WAIT, settings=STUDY, folder=tmp_path
    )
    command = [sys.executable, str(ROOT / "notebook_hpo.py"), *files, "--json"]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=tmp_path, **pipes) as sweeping:
        until(lambda: list((tmp_path / "out").glob("*.ipynb")))
        until((tmp_path / "out" / "mlflow.db").exists)
        (writer,) = filter(is_writer, psutil.Process(sweeping.pid).children())
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            writer.send_signal(number)  # a preempted machine sends these signals to all processes
        assert writer.is_running()
        writer.suspend()
        (tmp_path / "go").touch()
        last = tmp_path / "out" / "0002.ipynb"
        until(lambda: '"completed"' in last.read_text() if last.exists() else False)
        writer.kill()  # the calls for all trials are lost with the process
        stdout, stderr = sweeping.communicate(timeout=120)
    assert sweeping.returncode == 0, stderr
    result = json.loads(stdout)
    assert len({trial["mlflow_run_id"] for trial in result["trials"]} - {None}) == 3
    client = mlflow_client(f"sqlite:///{tmp_path}/out/mlflow.db")
    for trial in result["trials"]:
        run = client.get_run(trial["mlflow_run_id"])
        assert (run.info.status, run.data.metrics) == ("FINISHED", trial["scores"])
        (point,) = client.get_metric_history(run.info.run_id, "val")
        assert (point.step, point.value) == (0, trial["params"]["x"])
        assert {file.path for file in client.list_artifacts(run.info.run_id)} == {
            f"{run.info.run_name}.{suffix}" for suffix in ("ipynb", "html")
        }
    died = "the process that writes to MLflow has died (SIGKILL); trials continue"
    assert died in stderr, stderr
    assert not [p for p in psutil.process_iter() if is_writer(p) and p.ppid() == sweeping.pid]


def test_mlflows_store_is_created_as_soon_as_that_is_possible_and_no_trial_waits_for_it(
    tmp_path: Path,
) -> None:
    obstacle = tmp_path / "out" / "mlflow.db.lock"
    obstacle.mkdir(parents=True)
    sweeping = Command(*project(WAIT, settings=STUDY, folder=tmp_path), "--json", cwd=tmp_path)
    assert sweeping.stderr is not None
    told = "trials continue, and another process tries again"
    assert any(told in line for line in iter(sweeping.stderr.readline, ""))
    obstacle.rmdir()
    until((tmp_path / "out" / "mlflow.db").exists)
    (tmp_path / "go").touch()
    stdout, stderr = sweeping.communicate(timeout=120)
    assert sweeping.wait() == 0, stderr
    trials = json.loads(stdout)["trials"]
    assert [(it["state"], it["attempt"]) for it in trials] == [("completed", 1)] * 3
    assert len({trial["mlflow_run_id"] for trial in trials} - {None}) == 3
