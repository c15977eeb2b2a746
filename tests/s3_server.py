"""Fixtures with a real S3 server on this machine."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing

import pytest

START_S = 60.0


@pytest.fixture(scope="session")
def s3_server() -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """moto's server, which speaks S3, and its port."""
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    server = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        end_s = time.monotonic() + START_S
        while _refuses(port):
            assert time.monotonic() < end_s, "moto's server has not started"
            time.sleep(0.05)
        yield server, port
    finally:
        server.kill()
        server.wait()


def _refuses(port: int) -> bool:
    with closing(socket.socket()) as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


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
