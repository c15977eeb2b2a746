"""An S3 server on this machine."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
from studies import is_listening, until

from sweeper.tracking import free_port


@dataclass(frozen=True, kw_only=True)
class S3Server:
    """moto's server, which speaks the protocol of S3.

    Attributes:
        bucket: URL of an existing bucket.
        env: Environment variables with the endpoint and the credentials.
    """

    program: subprocess.Popen[bytes]
    bucket: str
    env: Mapping[str, str]


@contextmanager
def started_s3() -> Iterator[S3Server]:
    """Start a server. It is killed at the end."""
    import s3fs

    port = free_port(0)  # any value
    program = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        until(lambda: is_listening(port), "moto's server has not started")
        endpoint = f"http://127.0.0.1:{port}"
        key, secret = "key-of-nobody", "hush-hush-hush"
        fs = s3fs.S3FileSystem(
            key=key,
            secret=secret,
            endpoint_url=endpoint,
            skip_instance_cache=True,
        )
        fs.mkdir("sweeps")
        env = {
            "AWS_ENDPOINT_URL": endpoint,
            "AWS_ACCESS_KEY_ID": key,
            "AWS_SECRET_ACCESS_KEY": secret,
            "AWS_DEFAULT_REGION": "us-east-1",
        }
        yield S3Server(program=program, bucket="s3://sweeps", env=env)
    finally:
        program.kill()
        program.wait()


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """Start a server for all tests."""
    with started_s3() as server:
        yield server


@pytest.fixture
def s3(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> str:
    """Set the endpoint and the credentials in the environment. Return the URL of a bucket."""
    for name, value in s3_server.env.items():
        monkeypatch.setenv(name, value)
    return s3_server.bucket
