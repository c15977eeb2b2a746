"""Test whether an MLflow server is reached, also if the environment names a proxy."""

from __future__ import annotations

import os
import ssl
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from http_servers import Handler, started

from sweeper.errors import TrackingError
from sweeper.settings.addresses import Address
from sweeper.tracking import Store, Tracker, check_reachable, free_port, tracker
from sweeper.trials import StudyPaths

ELSEWHERE = "http://mlflow.example:5000"


@contextmanager
def answering(code: int, tls: ssl.SSLContext | None = None) -> Iterator[int]:
    """Start a server that answers every request with a status code. Yield its port."""

    class Answering(Handler):
        def do_GET(self) -> None:
            self.send_response(code)
            self.end_headers()

    with started(Answering, tls) as port:
        yield port


@contextmanager
def hanging() -> Iterator[int]:
    """Start a server that answers only the health check. Yield its port."""
    is_over = threading.Event()

    class Hanging(Handler):
        def do_GET(self) -> None:
            if self.path != "/health":
                is_over.wait(120)
            self.send_response(200)
            self.end_headers()

        do_POST = do_GET

    with started(Hanging) as port:
        yield port
        is_over.set()


def store_at(url: str, folder: Path) -> Store:
    paths = StudyPaths.parse(f"{folder}/{{run_id}}.ipynb", study="digits")
    return Store(address=Address.of(url), study="digits", study_id="one", paths=paths)


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Remove all proxies from the environment during the test."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.setenv(name, "")
        monkeypatch.setenv(name.upper(), "")
    return monkeypatch


@pytest.mark.parametrize("variable", ["HTTP_PROXY", "ALL_PROXY"])
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_local_server_is_reached_without_the_proxy_and_no_proxy_keeps_earlier_hosts(
    host: str, variable: str, environment: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    environment.delenv(variable.lower())
    environment.setenv(variable, f"http://127.0.0.1:{free_port(26_000)}")
    environment.setenv("NO_PROXY", "git.example")
    with answering(200) as port:
        check_reachable(store_at(f"http://{host}:{port}", tmp_path))
        assert urllib.request.proxy_bypass(f"{host}:{port}")
        assert urllib.request.proxy_bypass("git.example")
        stated = os.environ["NO_PROXY"]
        check_reachable(store_at(f"http://{host}:{port}", tmp_path))
        assert os.environ["NO_PROXY"] == stated
        assert not urllib.request.proxy_bypass("other.example")


@pytest.mark.parametrize("code", [403, 503, None])
def test_the_message_about_a_server_behind_a_failing_proxy_names_the_proxy_and_no_proxy(
    code: int | None, environment: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    environment.setenv("NO_PROXY", "git.example")
    environment.setenv("no_proxy", "git.example")
    with answering(code or 200) as port:
        at = f"127.0.0.1:{port if code else free_port(26_000)}"
        environment.setenv("http_proxy", f"http://me:hidden@{at}")
        with pytest.raises(TrackingError) as refused:
            check_reachable(store_at(ELSEWHERE, tmp_path))
        assert at in str(refused.value)
        assert "hidden" not in str(refused.value)
        way = "git.example,mlflow.example"
        assert f"no_proxy={way}" in str(refused.value)
        environment.setenv("no_proxy", way)
        with pytest.raises(TrackingError) as unknown:
            check_reachable(store_at(ELSEWHERE, tmp_path))
        assert at not in str(unknown.value)


def test_an_https_server_with_a_tls_error_counts_as_reached_but_not_one_that_speaks_only_http(
    tmp_path: Path,
) -> None:
    with answering(200) as port, pytest.raises(TrackingError, match="does not answer"):
        # This server speaks only HTTP.
        check_reachable(store_at(f"https://127.0.0.1:{port}", tmp_path))
    without_certificate = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with answering(200, without_certificate) as port:
        check_reachable(store_at(f"https://127.0.0.1:{port}", tmp_path))


def test_a_server_that_answers_through_a_proxy_counts_as_reached(
    environment: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with answering(200) as port:
        environment.setenv("http_proxy", f"http://127.0.0.1:{port}")
        check_reachable(store_at(ELSEWHERE, tmp_path))


@pytest.mark.slow  # because MLflow is imported
def test_a_sweep_says_within_seconds_that_it_waits_for_a_server_until_a_stop_or_a_limit(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    monkeypatch.setattr(tracker, "_SAY_S", 0.2)
    with hanging() as port:
        store = store_at(f"http://127.0.0.1:{port}", tmp_path)
        check_reachable(store)
        stopped = Tracker(store)
        stopped.wait_until_open(lambda: bool(caplog.messages))
        stopped.close(lambda: 0.0)
        assert str(port) in caplog.messages[0]
        monkeypatch.setattr(tracker, "PATIENCE_S", 0.5)
        given_up = Tracker(store)
        with pytest.raises(TrackingError, match=str(port)):
            given_up.wait_until_open()
        given_up.close(lambda: 0.0)
