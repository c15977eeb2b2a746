"""Fixtures with a real S3 server on this machine."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest
from studies import is_listening, until

from sweeper.tracking import free_port


@pytest.fixture(scope="session")
def s3_server() -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """moto's server, which speaks S3, and its port."""
    port = free_port(0)  # any
    server = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        until(lambda: is_listening(port), "moto's server has not started")
        yield server, port
    finally:
        server.kill()
        server.wait()


@pytest.fixture
def s3(s3_server: tuple[subprocess.Popen[bytes], int], monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of a bucket on the server; the environment has the endpoint and the credentials."""
    import s3fs

    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{s3_server[1]}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key-of-nobody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush-hush-hush")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    fs = s3fs.S3FileSystem(skip_instance_cache=True)
    if not fs.exists("sweeps"):
        fs.mkdir("sweeps")
    return "s3://sweeps"
