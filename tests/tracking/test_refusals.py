"""Servers of MLflow's that refuse a sweep: the message has the remedy."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from sweeper.errors import TrackingError
from sweeper.tracking import store_of
from sweeper.tracking.opening import usable
from sweeper.trials import StudyPaths


class Refusing(BaseHTTPRequestHandler):
    """Answers as `mlflow server --allowed-hosts` does where it is asked by another name."""

    def do_GET(self) -> None:
        self.send_response(403)
        self.end_headers()
        self.wfile.write(b"Invalid Host header - possible DNS rebinding attack detected")

    do_POST = do_GET

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.slow  # MLflow
def test_a_server_that_does_not_know_its_host_needs_an_option_and_no_password(
    tmp_path: Path,
) -> None:
    server = HTTPServer(("127.0.0.1", 0), Refusing)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    place = f"127.0.0.1:{server.server_port}"
    store = store_of(
        f"http://{place}",
        study="s",
        study_id="1",
        paths=StudyPaths.parse(f"{tmp_path}/{{run_id}}.ipynb", study="s"),
    )
    try:
        with pytest.raises(TrackingError) as refused, usable(store.address):
            from mlflow import MlflowClient

            MlflowClient(store.address.full).get_experiment_by_name("s")
    finally:
        server.shutdown()
        server.server_close()
    assert f"refuses requests for {place}" in str(refused.value)
    assert f"`mlflow server --allowed-hosts {place},…`" in str(refused.value)
    assert "password" not in str(refused.value)
