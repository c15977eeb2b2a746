"""Which kernels are kept ready for a slot's next trial."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import psutil
import pytest
from kernels_alone import kernel_pool, wait_until_warm
from studies import until

pytestmark = [
    pytest.mark.kernel,
    pytest.mark.skipif(sys.platform != "linux", reason="kernels are forked on Linux only"),
]


def started_kernels() -> int:
    """How many kernels this process has started that run; those that are forked are not its own."""
    return sum("ipykernel_launcher" in it.cmdline() for it in psutil.Process().children())


def test_a_kernel_is_kept_ready_where_all_are_started(tmp_path: Path) -> None:
    with kernel_pool(tmp_path, imports=None) as pool:
        pool.prepare()
        until(lambda: started_kernels() == 1, "no kernel was started")
        kernel = pool.take({})
        assert started_kernels() == 1
        kernel.kill()


def test_none_is_started_while_the_libraries_of_forked_ones_are_imported(tmp_path: Path) -> None:
    with kernel_pool(tmp_path, imports=None, kernels="fork") as pool:
        pool.fork_server.record_imports(json.dumps({"modules": ["torch"], "environment": {}}))
        pool.prepare()
        wait_until_warm(pool)
        assert started_kernels() == 0
        kernel = pool.take({})
        assert kernel.origin.is_forked
        kernel.kill()
