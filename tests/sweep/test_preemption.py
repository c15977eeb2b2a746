"""Notices of preemption, from metadata services that answer like those of the clouds."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from commands import Command, call
from studies import until

from sweeper.errors import SettingsError
from sweeper.sweep.preemption import Cloud, PreemptionWatcher, check_service
from sweeper.testing import write_notebook

ROOT = Path(__file__).parents[2]


class Service(BaseHTTPRequestHandler):
    """Both clouds' services; as strict about headers as they are."""

    preempted = False
    #: How often a token was asked for, and which one holds.
    tokens = 0
    #: How many answers are nonsense, one after the other: a line that is no status, half an answer,
    #: bytes that are no text.
    nonsense: Sequence[bytes] = ()

    def do_GET(self) -> None:
        if type(self).nonsense:
            first, *type(self).nonsense = type(self).nonsense
            self.wfile.write(first)
            self.close_connection = True
        elif self.path == "/computeMetadata/v1/instance/preempted":
            known = self.headers.get("Metadata-Flavor") == "Google"
            self._answer(200 if known else 403, "TRUE" if type(self).preempted else "FALSE")
        elif self.path == "/latest/meta-data/spot/instance-action":
            if self.headers.get("X-aws-ec2-metadata-token") != f"token {type(self).tokens}":
                self._answer(401, "")
            elif type(self).preempted:
                self._answer(200, '{"action": "terminate", "time": "2026-11-21T12:00:00Z"}')
            else:
                self._answer(404, "")

    def do_PUT(self) -> None:
        known = self.headers.get("X-aws-ec2-metadata-token-ttl-seconds")
        type(self).tokens += 1
        is_right = known and self.path == "/latest/api/token"
        self._answer(200 if is_right else 400, f"token {type(self).tokens}")

    def _answer(self, status: int, text: str) -> None:
        self.send_response(status)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Service]]:
    own = type("Own", (Service,), {})
    server = ThreadingHTTPServer(("127.0.0.1", 0), own)
    threading.Thread(target=server.serve_forever, args=[0.01], daemon=True).start()
    at = f"127.0.0.1:{server.server_port}"
    monkeypatch.setenv("GCE_METADATA_HOST", at)
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", f"http://{at}/")
    yield own
    server.shutdown()


NONSENSE = (
    b"hello\r\n\r\n",
    b"",
    b"HTTP/1.0 200 OK\r\nContent-Length: 99\r\n\r\nTR",
    b"HTTP/1.0 200 OK\r\n\r\n\xff\xfe",
    b"HTTP/1.0 200 OK\r\n" + b"x: y\r\n" * 200,
)


@pytest.mark.parametrize("cloud", ["gcp", "aws"])
def test_a_notice_is_heard_once_although_earlier_answers_were_nonsense(
    cloud: Cloud, service: type[Service], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sweeper.sweep.preemption._ASK_S", 0.001)
    service.nonsense = list(NONSENSE)
    notices: list[Cloud] = []
    notice = PreemptionWatcher(cloud, lambda: notices.append(cloud))
    until(lambda: not service.nonsense)
    assert not notices
    service.preempted = True
    until(lambda: bool(notices))
    notice.close()
    assert notices == [cloud]


@pytest.mark.parametrize("cloud", ["gcp", "aws"])
def test_elsewhere_there_is_no_such_service(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GCE_METADATA_HOST", "127.0.0.1:1")
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://127.0.0.1:1")
    with pytest.raises(SettingsError, match=f"resources.preemption: {cloud}: .* does not answer"):
        check_service(cloud)


@pytest.mark.kernel
def test_a_sweep_on_a_machine_that_is_taken_away_ends_with_143_and_goes_on_later(
    service: type[Service], tmp_path: Path
) -> None:
    write_notebook(tmp_path / "nb.ipynb", "import time\nif x < 0.5: time.sleep(60)\nval = x")
    (tmp_path / "nb.yml").write_text(
        "objective: {val: maximize}\nspace: {x: [0.25, 0.75]}\nstudy: {trials: 2, sampler: grid}\n"
        "resources: {preemption: gcp}\n"
    )
    arguments = ["-i", "nb.ipynb", "-p", "nb.yml", "-o", "out/{run_id}.ipynb", "-j", "2"]
    sweep = Command(*arguments, cwd=tmp_path)
    assert sweep.stderr is not None
    printed = ""
    while "completed" not in printed:
        line = sweep.stderr.readline()
        assert line, printed
        printed += line
    service.preempted = True
    _, rest = sweep.communicate(timeout=60)
    assert sweep.returncode == 143
    assert "stopping (the machine's preemption notice)" in rest
    service.preempted = False
    (tmp_path / "nb.yml").write_text((tmp_path / "nb.yml").read_text() + "limits: {trial: 2s}\n")
    again = call(*arguments, cwd=tmp_path)
    assert "1 completed, 1 failed" in again.stdout
