"""Whole sweeps beside the real process that writes to MLflow, which no test has prepared."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
from mlflow import MlflowClient
from studies import until

from sweeper.testing import write_notebook

pytestmark = [pytest.mark.kernel, pytest.mark.slow]  # MLflow is imported for each

ROOT = Path(__file__).parents[2]
PARAMETERS = """\
objective: {val: maximize}
space: {x: {low: 0.0, high: 1.0}}
study: {trials: 3, sampler: random}
"""


def is_writer(process: psutil.Process) -> bool:
    try:
        return "tracking.writer" in " ".join(process.cmdline())
    except psutil.Error:  # it has just ended
        return False


def test_a_writer_that_is_killed_costs_nothing_and_a_signal_to_all_leaves_it(
    tmp_path: Path,
) -> None:
    cells = [
        "import sweeper, time, pathlib\nsweeper.report(0, val=x)",
        "while not pathlib.Path('go').exists(): time.sleep(0.01)\nval = x",
    ]
    write_notebook(tmp_path / "nb.ipynb", *cells, parameters="x = 0.5")
    (tmp_path / "p.yml").write_text(PARAMETERS)
    command = [sys.executable, str(ROOT / "notebook_hpo.py"), "-i", "nb.ipynb"]
    command += ["-o", "out/{run_id}.ipynb", "-p", "p.yml", "--json"]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=tmp_path, **pipes) as sweeping:
        until(lambda: list((tmp_path / "out").glob("*.ipynb")))
        until((tmp_path / "out" / "mlflow.db").exists)
        (writer,) = filter(is_writer, psutil.Process(sweeping.pid).children())
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            writer.send_signal(number)  # as a machine that is taken away sends it to everyone
        assert writer.is_running()
        writer.suspend()
        (tmp_path / "go").touch()
        last = tmp_path / "out" / "0002.ipynb"
        until(lambda: '"completed"' in last.read_text() if last.exists() else False)
        writer.kill()  # with all trials that it has been told of
        stdout, stderr = sweeping.communicate(timeout=120)
    assert sweeping.returncode == 0, stderr
    result = json.loads(stdout)
    assert len({trial["mlflow_run_id"] for trial in result["trials"]} - {None}) == 3
    client = MlflowClient(f"sqlite:///{tmp_path}/out/mlflow.db")
    for trial in result["trials"]:
        run = client.get_run(trial["mlflow_run_id"])
        assert (run.info.status, run.data.metrics) == ("FINISHED", trial["scores"])
        assert {file.path for file in client.list_artifacts(run.info.run_id)} == {
            f"{run.info.run_name}.{suffix}" for suffix in ("ipynb", "html")
        }
    died = "the process that writes to MLflow has died (SIGKILL); trials go on"
    assert died in stderr, stderr
    assert not [p for p in psutil.process_iter() if is_writer(p) and p.ppid() == sweeping.pid]
