"""The process of a `Member`: a Dask worker, which ends with its scheduler or its standard input."""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
import sys
import threading
from collections.abc import Mapping
from typing import Any

from ....errors import first_line
from ..dask_cluster import load_dask

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
    await worker
    _write("joined")
    loop = asyncio.get_running_loop()

    def close_with_input() -> None:
        sys.stdin.read()
        asyncio.run_coroutine_threadsafe(worker.close(reason="its coordinator has ended"), loop)

    threading.Thread(target=close_with_input, daemon=True).start()
    await worker.finished()


def _write(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    """Read the order from standard input and serve."""
    logging.disable(logging.CRITICAL)  # Dask logs each lost connection; the coordinator has words
    order = json.loads(sys.stdin.readline())
    try:
        asyncio.run(serve(order))
    except Exception as error:  # noqa: BLE001  whatever Dask raises is why it has not joined
        _write(first_line(error))
    shutil.rmtree(order["folder"], ignore_errors=True)


if __name__ == "__main__":
    main()
