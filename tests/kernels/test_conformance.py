"""Jupyter's own conformance tests, run against started and forked kernels."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
import unittest
from pathlib import Path
from typing import ClassVar

import pytest
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_kernel_test import KernelTests

from sweeper.execution.gpus import GpuAllocator
from sweeper.kernels import ForkPolicy, Guard, Kernel, KernelPool, Proof, Way

pytestmark = pytest.mark.kernel


class Conformance(KernelTests):
    """A kernel out of a pool, in place of one that the tests would start themselves."""

    warm: ClassVar[bool]
    language_name = "python"
    file_extension = ".py"
    code_hello_world = "print('hello, world')"
    code_stderr = "import sys; print('test', file=sys.stderr)"
    code_generate_error = "raise ValueError('no')"
    code_execute_result: ClassVar[list[dict[str, str]]] = [{"code": "6*7", "result": "42"}]
    code_display_data: ClassVar[list[dict[str, str]]] = [
        {
            "code": "from IPython.display import HTML, display\ndisplay(HTML('<b>test</b>'))",
            "mime": "text/html",
        },
    ]
    code_clear_output = "from IPython.display import clear_output\nclear_output()"
    code_page_something = "zip?"
    code_inspect_sample = "zip"
    completion_samples: ClassVar[list[dict[str, object]]] = [
        {"text": "zi", "matches": {"zip"}},
    ]
    complete_code_samples: ClassVar[list[str]] = ["1", "print('hello')", "def f(x):\n  return x\n"]
    incomplete_code_samples: ClassVar[list[str]] = ["print('''hello", "def f(x):\n  x*2"]
    invalid_code_samples: ClassVar[list[str]] = ["import = 7q"]

    _kernel: ClassVar[Kernel]
    _pool: ClassVar[KernelPool]
    _guard: ClassVar[Guard]

    @classmethod
    def setUpClass(cls) -> None:
        folder = Path(tempfile.mkdtemp(prefix="sweep-", dir="/tmp"))
        cls._guard = Guard(token=folder.name, folder=folder)
        cls._pool = KernelPool(
            "python3",
            env={**os.environ, **GpuAllocator([], threads=1).env},
            cwd=folder,
            runtime_folder=folder,
            token=folder.name,
            warm=cls.warm,
            policy=ForkPolicy({Way.FORKED: Proof.EQUAL}),
        )
        if cls.warm:
            cls._pool.record_imports(json.dumps({"modules": ["json", "numpy"], "environment": {}}))
            deadline = time.monotonic() + 60
            while not cls._pool.offer.can_fork:
                assert time.monotonic() < deadline
                time.sleep(0.05)
        cls._kernel = cls._pool.take({})
        assert cls._kernel.is_warm == cls.warm
        cls.km = cls._kernel.manager
        cls.kc = BlockingKernelClient(connection_file=cls.km.connection_file)
        cls.kc.load_connection_file()
        cls.kc.start_channels()
        cls.kc.wait_for_ready(timeout=60)

    @classmethod
    def tearDownClass(cls) -> None:
        cls.kc.stop_channels()
        cls._pool.retire(cls._kernel, lambda: None)
        cls._pool.close()
        cls._guard.close()


class TestStartedKernels(Conformance):
    warm = False


@unittest.skipUnless(sys.platform == "linux", "kernels are forked on Linux only")
class TestForkedKernels(Conformance):
    warm = True


# Neither base is a suite of its own: they have no kernel.
del KernelTests, Conformance
