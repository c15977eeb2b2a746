"""PostgreSQL servers for the tests of one module, if PostgreSQL is installed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from studies import until


class PostgresServer:
    """A separate PostgreSQL server, which may lose data in a crash.

    Args:
        folder: New folder with a short path, for its data and its socket.
        port: Port of this machine on which it also listens. None for the socket alone.
    """

    def __init__(self, folder: Path, *, port: int | None = None) -> None:
        self._folder, self._port = folder, port
        self._process: subprocess.Popen[bytes] | None = None
        # PostgreSQL refuses to run as root.
        self._user = "postgres" if os.geteuid() == 0 else None
        folder.mkdir(parents=True)
        if self._user is not None:
            shutil.chown(folder, self._user)
        self._run("initdb", "-D", str(folder / "data"), "-A", "trust", "-U", "postgres", "-N")

    @classmethod
    def is_installed(cls) -> bool:
        """Return whether PostgreSQL is installed on this machine."""
        return _postgres("initdb") is not None

    @property
    def url(self) -> str:
        """URL of its default database, for SQLAlchemy."""
        return self.database("postgres")

    def database(self, name: str) -> str:
        """Return the URL of a database, for SQLAlchemy."""
        if self._port is not None:
            return f"postgresql+psycopg://postgres@127.0.0.1:{self._port}/{name}"
        return f"postgresql+psycopg://postgres@/{name}?host={self._folder}"

    def make_database(self, name: str) -> str:
        """Make an empty database in the running server. Return its URL."""
        self._run("createdb", "-h", str(self._folder), *self._on_port, "-U", "postgres", name)
        return self.database(name)

    def start(self) -> None:
        """Start the server and wait until it answers."""
        command = [_postgres("postgres") or "", "-D", str(self._folder / "data"), *self._on_port]
        addresses = "" if self._port is None else "127.0.0.1"
        self._process = subprocess.Popen(
            [*command, "-k", str(self._folder), "-c", f"listen_addresses={addresses}", "-F"],
            user=self._user,
            cwd=self._folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        asking = [_postgres("pg_isready") or "", "-q", "-h", str(self._folder), *self._on_port]
        until(lambda: subprocess.run(asking).returncode == 0, "PostgreSQL does not start")

    def stop(self, *, clean: bool = True) -> None:
        """Stop the server. Without `clean`, this is like a crash."""
        if self._process is not None:
            self._process.send_signal(signal.SIGINT if clean else signal.SIGQUIT)
            self._process.wait(timeout=60)
            self._process = None

    @property
    def _on_port(self) -> list[str]:
        return [] if self._port is None else ["-p", str(self._port)]

    def _run(self, *command: str) -> None:
        path = _postgres(command[0])
        assert path is not None
        subprocess.run(
            [path, *command[1:]], user=self._user, cwd=self._folder, check=True, capture_output=True
        )


@contextmanager
def started_postgres(*, port: int | None = None) -> Iterator[PostgresServer]:
    """Start a server, or skip the tests. `PostgresServer` describes the argument."""
    if not PostgresServer.is_installed():
        pytest.skip("PostgreSQL is not installed")
    pytest.importorskip("psycopg")
    # The server runs as another user, who may not enter pytest's folder, so its data is elsewhere.
    with tempfile.TemporaryDirectory(prefix="pg") as folder:
        Path(folder).chmod(0o755)
        server = PostgresServer(Path(folder) / "server", port=port)
        server.start()
        try:
            yield server
        finally:
            server.stop(clean=False)


def _postgres(program: str) -> str | None:
    """Return the path of a program of PostgreSQL, which Debian does not put on the PATH."""
    beside = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{program}"))
    return shutil.which(program) or (str(beside[-1]) if beside else None)


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    """Start a server for the module's tests."""
    with started_postgres() as server:
        yield server
