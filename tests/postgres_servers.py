"""A PostgreSQL server of a test module's own, where PostgreSQL is installed."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sweeper.testing import PostgresServer


@contextmanager
def started_postgres(
    *, port: int | None = None, address: str = "127.0.0.1"
) -> Iterator[PostgresServer]:
    """Start a server, or skip the tests; the arguments are those of `PostgresServer`."""
    if not PostgresServer.is_installed():
        pytest.skip("PostgreSQL is not installed")
    pytest.importorskip("psycopg")
    # Not below pytest's own folder, which another user may not enter.
    with tempfile.TemporaryDirectory(prefix="pg") as folder:
        Path(folder).chmod(0o755)
        server = PostgresServer(Path(folder) / "server", port=port, address=address)
        server.start()
        try:
            yield server
        finally:
            server.stop(clean=False)
