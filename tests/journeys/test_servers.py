"""Test sweeps whose study and runs are on servers that need passwords, lose answers or crash."""

from __future__ import annotations

import base64
import http.client
import json
import os
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from commands import Command, project
from http_servers import Handler, started
from mlflow_servers import MlflowServer
from postgres_servers import PostgresServer, started_postgres
from studies import mlflow_client, mlflow_runs, trial_record, until

from sweeper.cli import main
from sweeper.settings.addresses import Address
from sweeper.tracking import RunWriter, Store, free_port
from sweeper.tracking.files import make_store
from sweeper.trials import StudyPaths, TrialState

pytestmark = [pytest.mark.kernel, pytest.mark.slow, pytest.mark.usefixtures("here")]

PASSWORD = "hush/hush@12"
WAIT = "import pathlib, time\nval = x\nwhile not pathlib.Path('go').exists(): time.sleep(0.05)"

TRIALS = 14
#: Trials from 5 on wait until the servers are killed, and those from 9 on until both run again. So
#: some trials end while the servers are unavailable, and others begin afterwards.
KILLED, BACK = 5, 9
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
PARAMETERS = f"study: {{name: served, trials: {TRIALS}, sampler: random}}\nkernels: cold"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MlflowServer]:
    folder = tmp_path_factory.mktemp("server")
    make_store(folder / "mlflow.db")
    server = MlflowServer(f"sqlite:///{folder}/mlflow.db", artifacts=f"{folder}/files")
    server.start()
    yield server
    server.kill()


class Gate(Handler):
    """A proxy before a server. It refuses requests without authorization, and loses one answer.

    Attributes:
        behind: Port of the server.
        wanted: The only authorization that is accepted. None for any.
        losing: Part of a path. The first request with it reaches the server, but its answer is
            lost. None if no answer is lost.
        lost: List that gets the path of this request.
    """

    protocol_version = "HTTP/1.1"
    behind: int
    wanted: str | None = None
    losing: str | None = None
    lost: list[str]

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.wanted not in (None, self.headers.get("Authorization")):
            self.answer(401, "text/plain", b"who are you?")
            return
        headers = {k: v for k, v in self.headers.items() if k not in ("Host", "Authorization")}
        server = http.client.HTTPConnection("127.0.0.1", self.behind, timeout=60)
        server.request(self.command, self.path, body, headers)
        answer = server.getresponse()
        data = answer.read()
        server.close()
        if self.losing is not None and self.losing in self.path and not self.lost:
            self.lost.append(self.path)
            self.close_connection = True
            return
        self.answer(answer.status, answer.headers.get_content_type(), data)

    do_POST = do_PUT = do_PATCH = do_DELETE = do_GET

    def answer(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def gate_before(server: MlflowServer, **options: Any) -> Iterator[str]:
    """Start a gate with these options. Yield its host and port."""
    handler = type("Gate", (Gate,), {"behind": server.port, **options})
    with started(handler) as port:
        yield f"127.0.0.1:{port}"


def test_an_mlflow_run_is_not_created_twice_if_the_servers_answer_was_lost(
    server: MlflowServer, tmp_path: Path
) -> None:
    from mlflow.exceptions import MlflowException

    lost: list[str] = []
    record = trial_record(state=TrialState.RUNNING, notebook=tmp_path / "0000.ipynb")
    paths = StudyPaths.parse(f"{tmp_path}/{{run_id}}.ipynb", study="lost")
    with gate_before(server, losing="runs/create", lost=lost) as address:
        url = Address.of(f"http://{address}")
        writer = RunWriter.open(Store(address=url, study="lost", study_id="1", paths=paths))
        with pytest.raises(MlflowException):
            writer.start(record, {"x": "0.5"})
        assert lost
        writer.start(record, {"x": "0.5"})
    (run,) = mlflow_runs(server.url, "lost")
    assert writer.runs == {"0000": run.info.run_id}
    assert run.data.params == {"x": "0.5"}


@pytest.fixture
def guarded(server: MlflowServer) -> Iterator[str]:
    """Start a gate that requires a password. Yield its host and port."""
    wanted = "Basic " + base64.b64encode(f"me:{PASSWORD}".encode()).decode()
    with gate_before(server, wanted=wanted) as address:
        yield address


def test_a_password_in_an_address_is_used_but_not_stored(
    guarded: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, masked = f"http://me:{PASSWORD}@{guarded}", f"http://me:***@{guarded}"
    arguments = project(WAIT, settings="study: {name: n, trials: 2, sampler: random}")
    sweeping = Command(*arguments, "--tracking-uri", whole, stderr=subprocess.STDOUT)
    assert sweeping.stdout is not None
    printed = ""
    while "started" not in printed:
        line = sweeping.stdout.readline()
        assert line, printed
        printed += line
    client = mlflow_client(f"http://me:{quote(PASSWORD, safe='')}@{guarded}")
    experiment = client.get_experiment_by_name("n")
    assert experiment is not None
    while not client.search_runs([experiment.experiment_id]):
        time.sleep(0.1)
    sweeping.kill()
    sweeping.communicate()

    assert main(["status", "n", "--tracking-uri", whole, "--json"]) == 0
    printed += "".join(capsys.readouterr())
    assert f'"tracking_uri": "{masked}"' in printed
    assert main([*arguments, "--tracking-uri", masked]) == 2
    missing = capsys.readouterr().err
    assert masked in missing
    assert "its password is not stored: give it in --tracking-uri, in MLFLOW_TRACKING" in missing
    assert main([*arguments, "--tracking-uri", f"http://me:no@{guarded}"]) == 2
    refused = capsys.readouterr().err
    assert f"http://me:***@{guarded}: the server refuses this user" in refused
    assert f"`mlflow server --allowed-hosts {guarded},…`" in refused
    Path("go").touch()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", whole)
    assert main([*arguments, "--tracking-uri", masked]) == 0
    ended = "".join(capsys.readouterr())
    assert f"MLflow: {masked}\n" in ended
    assert f"http://{guarded}/#/experiments/{experiment.experiment_id}/runs?viewState" in ended

    runs = client.search_runs([experiment.experiment_id])
    assert [run.info.status for run in runs] == ["FINISHED", "FINISHED"]
    assert "0000.ipynb" in [file.path for file in client.list_artifacts(runs[-1].info.run_id)]
    printed += missing + refused + ended + str(runs) + str(experiment)
    for secret in (PASSWORD, "hush"):
        assert secret not in printed
        for file in Path("out").rglob("*"):
            assert not file.is_file() or secret.encode() not in file.read_bytes()


@pytest.fixture
def postgres() -> Iterator[PostgresServer]:
    # Search for a free port from a number that depends on this process. Otherwise tests in other
    # processes may choose the same port before the server listens.
    with started_postgres(port=free_port(26_000 + os.getpid() % 5_000)) as server:
        yield server


def test_all_trials_survive_a_crash_and_restart_of_the_postgres_and_mlflow_servers(
    postgres: PostgresServer, server: MlflowServer, tmp_path: Path
) -> None:
    files = [*project(TRAIN, settings=PARAMETERS, folder=tmp_path), "-j", "4", "--json"]
    servers = ["--storage", postgres.make_database("optuna"), "--tracking-uri", server.url]
    sweeping = Command(*files, *servers, cwd=tmp_path)
    executions = tmp_path / "executions.txt"
    until(lambda: executions.exists() and len(executions.read_text().splitlines()) > KILLED)
    postgres.stop(clean=False)
    server.kill()
    (tmp_path / "killed").touch()  # lets some trials end while both servers are unavailable
    postgres.start()
    server.start()
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
    executed = Counter(executions.read_text().splitlines())
    assert executed == Counter(f"{run_id} 1" for run_id in run_ids)

    client, found = mlflow_client(server.url), mlflow_runs(server.url, "served")
    runs = {run.info.run_name: run for run in found}
    assert sorted(run.info.run_name for run in found) == run_ids
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
