"""Dask clusters on this machine, with workers in processes of their own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def started(*, workers: int, threads: int) -> Iterator[str]:
    """Start a cluster; yields the address of its scheduler."""
    import dask

    dask.config.set({"logging": {"distributed": "critical"}})
    from distributed import LocalCluster

    with LocalCluster(
        n_workers=workers,
        threads_per_worker=threads,
        dashboard_address=None,
        worker_dashboard_address=None,
        memory_limit=0,
    ) as cluster:
        yield str(cluster.scheduler_address)


def worker_pids(address: str) -> dict[str, int]:
    """The processes of the workers by their addresses."""
    from distributed import Client

    with Client(address, set_as_default=False) as client:
        pids: dict[str, int] = client.run(os.getpid)
        return pids
