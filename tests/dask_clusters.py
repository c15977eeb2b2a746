"""Dask clusters on this machine, with workers in processes of their own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def started(*, workers: int, threads: int) -> Iterator[str]:
    """Start a cluster; yields the address of its scheduler."""
    import dask

    dask.config.set({"logging": {"distributed": "critical"}})
    from distributed import LocalCluster

    with LocalCluster(  # type: ignore[no-untyped-call]
        n_workers=workers,
        threads_per_worker=threads,
        dashboard_address="127.0.0.1:0",  # any free port
        memory_limit=0,
    ) as cluster:
        yield str(cluster.scheduler_address)


def left_there(address: str) -> list[str]:
    """The folders of sweeps that workers have."""
    from distributed import Client

    with Client(address, set_as_default=False) as client:  # type: ignore[no-untyped-call]
        found = client.run(_folders)
        return [name for names in found.values() for name in names]


def _folders(dask_worker: Any) -> list[str]:
    return [name for name in os.listdir(dask_worker.local_directory) if "notebook-hpo" in name]


def worker_pids(address: str) -> dict[str, int]:
    """The processes of the workers by their addresses."""
    from distributed import Client

    with Client(address, set_as_default=False) as client:  # type: ignore[no-untyped-call]
        pids: dict[str, int] = client.run(os.getpid)
        return pids
