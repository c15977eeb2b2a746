"""Dask clusters on this machine, with workers in separate processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from studies import is_listening, until

from sweeper.tracking import free_port


@contextmanager
def started(*, workers: int, threads: int) -> Iterator[str]:
    """Start a cluster. Yield the address of its scheduler."""
    import dask

    dask.config.set({"logging": {"distributed": "critical"}})
    # Dask gives up a worker that is not running this long after it died. No test takes as long.
    dask.config.set({"distributed.deploy.lost-worker-timeout": "1 hour"})
    from distributed import LocalCluster

    with LocalCluster(  # type: ignore[no-untyped-call]
        n_workers=workers,
        threads_per_worker=threads,
        dashboard_address="127.0.0.1:0",  # any free port
        memory_limit=0,
    ) as cluster:
        yield str(cluster.scheduler_address)


def started_program(
    stack: ExitStack, *words: str, env: Mapping[str, str] | None = None, hidden: Path | None = None
) -> subprocess.Popen[bytes]:
    """Start a program of Dask that listens on loopback. It is killed when `stack` closes.

    Args:
        hidden: Folder that the program cannot see.
    """
    command = [sys.executable, "-m", f"distributed.cli.dask_{words[0]}", *words[1:]]
    command += ["--no-dashboard", "--host", "127.0.0.1"]
    if hidden is not None:
        script = f'mount -t tmpfs none "{hidden}" && exec "$@"'
        command = ["unshare", "--mount", "sh", "-c", script, "sh", *command]
    silent = subprocess.DEVNULL
    process = subprocess.Popen(command, env=env, stdout=silent, stderr=silent)
    stack.callback(process.wait)
    stack.callback(process.kill)
    return process


class OwnCluster:
    """A scheduler and two workers on loopback, started as users start them.

    Args:
        folder: Folder for the files of the workers.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._port = folder, free_port(24_200)
        self.url = f"tcp://127.0.0.1:{self._port}"
        self._programs = ExitStack()

    def start(self) -> None:
        """Start the cluster, always at the same address. Kill workers of an earlier start first."""
        self._programs.close()
        self._scheduler = self._started("scheduler", "--port", str(self._port))
        self._workers = [self._started_worker() for _ in range(2)]
        until(lambda: is_listening(self._port), "no scheduler")

    def lose(self) -> None:
        """Kill the scheduler. Its workers then end by themselves."""
        self._scheduler.kill()
        self._scheduler.wait()

    def lose_worker(self) -> None:
        """Kill a worker, and start another one."""
        lost = self._workers.pop(0)
        lost.kill()
        lost.wait()
        self._workers.append(self._started_worker())

    def _started_worker(self) -> subprocess.Popen[bytes]:
        options = ["--nthreads", "2", "--no-nanny", "--local-directory", str(self._folder)]
        return self._started("worker", self.url, *options)

    def _started(self, *words: str) -> subprocess.Popen[bytes]:
        return started_program(self._programs, *words)

    def close(self) -> None:
        """End all programs."""
        self._programs.close()


def certificates(folder: Path) -> dict[str, str]:
    """Write certificates for a scheduler, its workers and clients.

    Returns:
        The environment variables with which Dask uses them.
    """
    from distributed import Security

    made = Security.temporary()  # type: ignore[no-untyped-call]
    named = {"ca_file": made.tls_ca_file}
    for role in ("scheduler", "worker", "client"):
        named[f"{role}__cert"] = getattr(made, f"tls_{role}_cert")
        named[f"{role}__key"] = getattr(made, f"tls_{role}_key")
    variables = {"DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION": "true"}
    for name, text in named.items():
        file = folder / f"{name}.pem"
        file.write_text(text)
        variables[f"DASK_DISTRIBUTED__COMM__TLS__{name.upper()}"] = str(file)
    return variables


def left_there(address: str) -> list[str]:
    """Return the folders that sweeps have left on the workers."""
    from distributed import Client

    with Client(address, set_as_default=False) as client:  # type: ignore[no-untyped-call]
        return _left(client)


def until_nothing_is_left(address: str) -> None:
    """Wait until the workers have no folder of a sweep."""
    from distributed import Client

    # One client for all calls, because each start of a client takes a tenth of a second.
    with Client(address, set_as_default=False) as client:  # type: ignore[no-untyped-call]
        until(lambda: not _left(client), "a folder is left")


def _left(client: Any) -> list[str]:
    return [name for names in client.run(_folders).values() for name in names]


def _folders(dask_worker: Any) -> list[str]:
    return [name for name in os.listdir(dask_worker.local_directory) if "notebook-hpo" in name]


def worker_pids(address: str) -> dict[str, int]:
    """Return the process ids of the workers, by their addresses."""
    from distributed import Client

    with Client(address, set_as_default=False) as client:  # type: ignore[no-untyped-call]
        pids: dict[str, int] = client.run(os.getpid)
        return pids
