"""A sweep whose study and runs are on servers, which are killed and started again meanwhile."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import urllib.request
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from commands import Command
from postgres_servers import PostgresServer, started_postgres
from studies import until

from sweeper.notebooks.metadata import read_metadata
from sweeper.testing import write_notebook
from sweeper.tracking import RunWriter, free_port, store_of
from sweeper.trials import StudyPaths, TrialRecord, TrialState

pytestmark = [pytest.mark.kernel, pytest.mark.slow]

TRIALS = 24
#: Trials from here on wait until the servers were killed, and those from there on until both are
#: back: some end while the servers are away, others begin afterwards.
KILLED, BACK = 8, 16
TRAIN = f"""\
import pathlib, time, sweeper
trial = sweeper.trial()
with open("executions.txt", "a") as executions:
    executions.write(f"{{trial.run_id}} {{trial.attempt}}\\n")
sweeper.report(0, val=x / 2)
for first, event in (({KILLED}, "killed"), ({BACK}, "back")):
    while trial.number >= first and not pathlib.Path(event).exists():
        time.sleep(0.1)
sweeper.report(1, val=x)
"""
PARAMETERS = f"""\
objective: {{val: maximize}}
space: {{x: {{low: 0.0, high: 1.0}}}}
study: {{name: served, trials: {TRIALS}, sampler: random}}
"""


class MlflowServer:
    """`mlflow server`, as the page about servers starts it."""

    def __init__(self, store: str, artifacts: str) -> None:
        self.port = free_port(25_000)
        self.url = f"http://127.0.0.1:{self.port}"
        self._command = [sys.executable, "-m", "mlflow", "server", "--backend-store-uri", store]
        self._command += ["--artifacts-destination", artifacts, "--workers=1"]
        self._command += [f"--port={self.port}"]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._process = subprocess.Popen(
            self._command,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            # Without jobs, which nobody asks for here, it has five processes less.
            env={**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"},
        )

    def kill(self) -> None:
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

    def answers(self) -> bool:
        try:
            urllib.request.urlopen(f"{self.url}/health", timeout=5).close()
        except OSError:
            return False
        return True


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    with started_postgres(port=free_port(24_000)) as server:
        yield server


@pytest.fixture(scope="module")
def server(postgres: PostgresServer) -> Iterator[MlflowServer]:
    """An MLflow server, on PostgreSQL and S3; the first test that needs it starts it."""
    server = MlflowServer(postgres.make_database("mlflow"), "s3://sweeps/mlflow")
    yield server
    server.kill()


@pytest.fixture
def mlflow(server: MlflowServer, s3: str) -> MlflowServer:
    if not server.answers():
        server.start()
        until(server.answers, "the MLflow server has not started")
    return server


class Gate(BaseHTTPRequestHandler):
    """Stands before a server, and loses its answer to the first creation of a run."""

    behind = 0
    lost: list[str]

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        server = http.client.HTTPConnection("127.0.0.1", self.behind, timeout=60)
        headers = {name: it for name, it in self.headers.items() if name != "Host"}
        server.request(self.command, self.path, body, headers)
        answer = server.getresponse()
        data = answer.read()
        server.close()
        if self.path.endswith("runs/create") and not self.lost:
            self.lost.append(self.path)
            self.close_connection = True
            return
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.headers.get_content_type())
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_POST = do_GET

    def log_message(self, *_: Any) -> None:
        pass


def runs_of(server: MlflowServer, study: str) -> list[Any]:
    from mlflow import MlflowClient

    client = MlflowClient(server.url)
    experiment = client.get_experiment_by_name(study)
    assert experiment is not None
    return list(client.search_runs([experiment.experiment_id]))


def test_a_run_whose_creation_got_no_answer_is_not_created_twice(
    mlflow: MlflowServer, tmp_path: Path
) -> None:
    lost: list[str] = []
    gate = ThreadingHTTPServer(
        ("127.0.0.1", 0), type("Gate", (Gate,), {"behind": mlflow.port, "lost": lost})
    )
    threading.Thread(target=gate.serve_forever, daemon=True).start()
    store = store_of(
        f"http://127.0.0.1:{gate.server_port}",
        study="lost",
        study_id="1",
        paths=StudyPaths.parse(f"{tmp_path}/{{run_id}}.ipynb", study="lost"),
    )
    writer = RunWriter.open(store)
    record = TrialRecord(
        number=0,
        state=TrialState.RUNNING,
        params={"x": 0.5},
        seed=1,
        attempt=1,
        notebook=tmp_path / "0000.ipynb",
    )
    from mlflow.exceptions import MlflowException

    with pytest.raises(MlflowException):
        writer.start(record, {"x": "0.5"})
    assert lost
    writer.start(record, {"x": "0.5"})
    gate.shutdown()
    (run,) = runs_of(mlflow, "lost")
    assert writer.runs == {"0000": run.info.run_id}
    assert run.data.params == {"x": "0.5"}


def test_all_trials_survive_the_restart_of_both_servers(
    postgres: PostgresServer, mlflow: MlflowServer, tmp_path: Path
) -> None:
    write_notebook(tmp_path / "nb.ipynb", TRAIN, parameters="x = 0.5")
    (tmp_path / "p.yml").write_text(PARAMETERS)
    files = ["-i", "nb.ipynb", "-o", "out/{run_id}.ipynb", "-p", "p.yml", "-j", "4", "--json"]
    servers = ["--storage", postgres.make_database("optuna"), "--tracking-uri", mlflow.url]
    sweeping = Command(*files, *servers, cwd=tmp_path)
    executions = tmp_path / "executions.txt"
    until(lambda: executions.exists() and len(executions.read_text().splitlines()) > KILLED)
    postgres.stop(clean=False)
    mlflow.kill()
    (tmp_path / "killed").touch()  # trials end while both are away
    postgres.start()
    mlflow.start()
    until(mlflow.answers, "the MLflow server has not started again")
    assert sweeping.poll() is None
    (tmp_path / "back").touch()
    stdout, stderr = sweeping.communicate(timeout=300)
    assert sweeping.wait() == 0, stderr

    result = json.loads(stdout)
    trials = result["trials"]
    run_ids = [f"{number:04}" for number in range(TRIALS)]
    assert result["counts"] == {"completed": TRIALS, "pruned": 0, "failed": 0, "stopped": 0}
    assert [trial["run_id"] for trial in trials] == run_ids
    assert {trial["attempt"] for trial in trials} == {1}
    # One trial is run again in two forked kernels, to prove that these change nothing.
    written = [read_metadata(tmp_path / trial["notebook"]) or {} for trial in trials]
    proven = {metadata["proven_by"] for metadata in written if "proven_by" in metadata}
    executed = Counter(executions.read_text().splitlines())
    executed.subtract(f"{run_id} 1" for run_id in proven for _ in range(2))
    assert executed == Counter(f"{run_id} 1" for run_id in run_ids)

    from mlflow import MlflowClient

    client = MlflowClient(mlflow.url)
    runs = {run.info.run_name: run for run in runs_of(mlflow, "served")}
    assert len(runs_of(mlflow, "served")) == TRIALS
    assert sorted(runs) == run_ids
    for trial in trials:
        run, x = runs[trial["run_id"]], trial["params"]["x"]
        assert run.info.run_id == trial["mlflow_run_id"]
        assert run.info.status == "FINISHED"
        assert float(run.data.params["x"]) == x
        assert run.data.metrics["val"] == trial["scores"]["val"] == x
        series = client.get_metric_history(run.info.run_id, "val")
        assert sorted((point.step, point.value) for point in series) == [(0, x / 2), (1, x)]
        logged = {file.path for file in client.list_artifacts(run.info.run_id)}
        assert {f"{trial['run_id']}.ipynb", f"{trial['run_id']}.html"} <= logged
