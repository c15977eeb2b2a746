"""Jupyter's own conformance tests, run against started and forked kernels."""

from __future__ import annotations

import sys
import tempfile
import unittest
from pathlib import Path
from typing import ClassVar

import pytest
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_core.utils import run_sync
from jupyter_kernel_test import KernelTests
from kernels_alone import kernel_pool

from sweeper.kernels import Kernel, KernelPool

pytestmark = pytest.mark.kernel


class Conformance(KernelTests):
    """A kernel out of a pool, in place of one that the tests would start themselves."""

    warm: ClassVar[bool]
    kernelspec: ClassVar[str]
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

    @classmethod
    def setUpClass(cls) -> None:
        folder = Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        imports = "import json, numpy" if cls.warm else None
        cls._pool = cls.enterClassContext(
            kernel_pool(folder, imports=imports, kernelspec=cls.kernelspec)
        )
        cls._kernel = cls._pool.take({})
        assert cls._kernel.origin.is_forked == cls.warm
        cls.km = cls._kernel.manager
        # The tests' client takes a kernel for dead that takes longer than a second to boot.
        client = cls.km.client()
        client.start_channels()
        run_sync(client.wait_for_ready)(timeout=60)
        client.stop_channels()
        cls.kc = BlockingKernelClient(connection_file=cls.km.connection_file)
        cls.kc.load_connection_file()
        cls.kc.start_channels()
        cls.kc.wait_for_ready(timeout=60)

    @classmethod
    def tearDownClass(cls) -> None:
        cls.kc.stop_channels()
        cls._pool.retire(cls._kernel, lambda: None)


class TestStartedKernels(Conformance):
    warm = False


@unittest.skipUnless(sys.platform == "linux", "kernels are forked on Linux only")
class TestForkedKernels(Conformance):
    warm = True


@pytest.fixture(scope="module", autouse=True)
def suites_of_the_kernelspec(kernelspec: str) -> None:
    """`setUpClass` has no access to fixtures."""
    for suite in (TestStartedKernels, TestForkedKernels):
        suite.kernelspec = kernelspec


# Neither base is a suite of its own: they have no kernel.
del KernelTests, Conformance
