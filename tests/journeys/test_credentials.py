"""An MLflow server with a password: the password works, and no file or message has it."""

from __future__ import annotations

import base64
import http.client
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from commands import Command

from sweeper.cli import main
from sweeper.testing import write_notebook

pytestmark = [pytest.mark.kernel, pytest.mark.usefixtures("here")]

ROOT = Path(__file__).parents[2]
PASSWORD = "hush/hush@12"
TRAIN = "import pathlib, time\nval = x\nwhile not pathlib.Path('go').exists(): time.sleep(0.05)"
START_S = 300.0


class Gate(BaseHTTPRequestHandler):
    """A proxy that passes on requests with the right user and password."""

    protocol_version = "HTTP/1.1"
    behind: int
    wanted = "Basic " + base64.b64encode(f"me:{PASSWORD}".encode()).decode()

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.headers.get("Authorization") != self.wanted:
            self.answer(401, "text/plain", b"who are you?")
            return
        headers = {k: v for k, v in self.headers.items() if k not in ("Host", "Authorization")}
        server = http.client.HTTPConnection("127.0.0.1", self.behind, timeout=60)
        server.request(self.command, self.path, body, headers)
        answer = server.getresponse()
        self.answer(answer.status, answer.headers.get_content_type(), answer.read())
        server.close()

    do_POST = do_PUT = do_PATCH = do_DELETE = do_GET

    def answer(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Host and port of an MLflow server behind a gate."""
    folder, port = tmp_path_factory.mktemp("server"), free_port()
    store = f"--backend-store-uri sqlite:///{folder}/s.db --artifacts-destination {folder}/files"
    serving = subprocess.Popen(
        [sys.executable, "-m", "mlflow", "server", *store.split(), "--workers=1", f"--port={port}"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        env={**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"},  # five processes less
    )
    gate = ThreadingHTTPServer(("127.0.0.1", 0), type("Gate", (Gate,), {"behind": port}))
    threading.Thread(target=gate.serve_forever, daemon=True).start()
    deadline = time.monotonic() + START_S
    while True:
        with socket.socket() as attempt:
            if attempt.connect_ex(("127.0.0.1", port)) == 0:
                break
        assert time.monotonic() < deadline
        assert serving.poll() is None
        time.sleep(0.1)
    yield f"127.0.0.1:{gate.server_port}"
    gate.shutdown()
    os.killpg(serving.pid, signal.SIGKILL)
    serving.wait()


def test_a_password_in_an_address_works_and_is_kept_nowhere(
    server: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, masked = f"http://me:{PASSWORD}@{server}", f"http://me:***@{server}"
    write_notebook(Path("n.ipynb"), TRAIN, parameters="x = 0.5")
    Path("n.yml").write_text(
        "objective: {val: maximize}\nspace: {x: [1.0, 2.0]}\nstudy: {trials: 2, sampler: random}\n"
    )
    arguments = ["-i", "n.ipynb", "-o", "out/{run_id}.ipynb", "-p", "n.yml"]
    sweeping = Command(*arguments, "--tracking-uri", whole, stderr=subprocess.STDOUT)
    assert sweeping.stdout is not None
    printed = ""
    while "started" not in printed:
        line = sweeping.stdout.readline()
        assert line, printed
        printed += line
    from mlflow import MlflowClient

    client = MlflowClient(f"http://me:{quote(PASSWORD, safe='')}@{server}")
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
    assert main([*arguments, "--tracking-uri", f"http://me:no@{server}"]) == 2
    refused = capsys.readouterr().err
    assert f"http://me:***@{server}: the server refuses us" in refused
    assert f"`mlflow server --allowed-hosts {server},…`" in refused
    Path("go").touch()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", whole)
    assert main([*arguments, "--tracking-uri", masked]) == 0
    ended = "".join(capsys.readouterr())
    assert f"MLflow: {masked}\n" in ended
    assert f"http://{server}/#/experiments/{experiment.experiment_id}/runs?viewState" in ended

    runs = client.search_runs([experiment.experiment_id])
    assert [run.info.status for run in runs] == ["FINISHED", "FINISHED"]
    assert "0000.ipynb" in [file.path for file in client.list_artifacts(runs[-1].info.run_id)]
    printed += missing + refused + ended + str(runs) + str(experiment)
    for secret in (PASSWORD, "hush"):
        assert secret not in printed
        for file in Path("out").rglob("*"):
            assert not file.is_file() or secret.encode() not in file.read_bytes()
