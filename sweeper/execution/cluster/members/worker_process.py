"""The process of a `Member`: a Dask worker, which ends with its scheduler or its standard input."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from ....errors import first_line
from .. import relay
from ..dask_cluster import load_dask
from .member import JOINED, REFUSED

#: How long a scheduler may take to accept the worker.
_JOIN_S = 30


async def serve(order: Mapping[str, Any]) -> None:
    """Run a worker until its scheduler has gone or standard input is closed.

    Args:
        order: `address` of the scheduler, `ca`, `certificate` and `key`, `slots`, `name`, `folder`.

    Raises:
        Exception: the scheduler does not accept it.
    """
    distributed = load_dask()
    security = distributed.Security(
        require_encryption=True,
        tls_ca_file=order["ca"],
        tls_worker_cert=order["certificate"],
        tls_worker_key=order["key"],
    )
    worker = distributed.Worker(
        order["address"],
        nthreads=order["slots"],
        name=order["name"],
        security=security,
        local_directory=order["folder"],
        memory_limit=0,  # kernels are no part of the worker's own memory
        dashboard_address="127.0.0.1:0",  # any free port, for this machine alone
        death_timeout=_JOIN_S,
    )
    joining = asyncio.ensure_future(_joined(worker))
    leaving = asyncio.ensure_future(_end_of_input())
    await asyncio.wait([joining, leaving], return_when=asyncio.FIRST_COMPLETED)
    if not joining.done():  # no trial runs here yet
        return
    joining.result()
    _write(JOINED)
    ending = asyncio.ensure_future(worker.finished())
    await asyncio.wait([ending, leaving], return_when=asyncio.FIRST_COMPLETED)
    await worker.close(reason="its coordinator has ended")


async def _joined(worker: Any) -> None:
    await worker


async def _end_of_input() -> None:
    """Wait until standard input is closed: the coordinator has ended, or wants no more trials."""
    closed = asyncio.Event()
    loop = asyncio.get_running_loop()

    def read() -> None:
        sys.stdin.read()
        with suppress(RuntimeError):  # the loop has just ended by itself
            loop.call_soon_threadsafe(closed.set)

    threading.Thread(target=read, daemon=True).start()
    await closed.wait()


def _write(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    """Read the order from standard input and serve."""
    refusals = logging.StreamHandler(sys.stdout)
    refusals.setFormatter(logging.Formatter(f"{REFUSED}%(message)s"))
    logging.getLogger(relay.__name__).addHandler(refusals)
    order = json.loads(sys.stdin.readline())
    try:
        asyncio.run(serve(order))
    except Exception as error:  # noqa: BLE001  whatever Dask raises is why it has not joined
        _write(first_line(error))
    shutil.rmtree(order["folder"], ignore_errors=True)
    os._exit(0)  # a connection that Dask still tries to make need not be waited for


if __name__ == "__main__":
    main()
