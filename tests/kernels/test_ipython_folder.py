"""How IPython is configured in the kernels of a sweep."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from kernels_alone import kernel_pool, run_alone

from sweeper.testing import write_notebook

pytestmark = [
    pytest.mark.kernel,
    pytest.mark.skipif(sys.platform != "linux", reason="kernels are forked on Linux only"),
    pytest.mark.parametrize("is_forked", [False, True]),
]

NOTEBOOK = (
    "import sys\nby_itself = float('debugpy' in sys.modules)",
    "import debugpy\nby_hand = float(callable(debugpy.listen))",
)


def test_a_kernel_has_no_debugger_imported_and_its_notebook_can_import_one(
    is_forked: bool, tmp_path: Path
) -> None:
    source = write_notebook(tmp_path / "nb.ipynb", *NOTEBOOK)
    with kernel_pool(tmp_path, imports="import json" if is_forked else None) as pool:
        _, result = run_alone(source, pool, variables=["by_itself", "by_hand"])
    assert result.origin.is_forked is is_forked
    assert result.variables == {"by_itself": 0.0, "by_hand": 1.0}


def test_no_output_is_lost_while_its_reader_does_not_run(is_forked: bool, tmp_path: Path) -> None:
    # Several times what ZeroMQ and the operating system keep for a reader that is late.
    cell = (
        "import subprocess, time\n"
        f"subprocess.Popen('kill -STOP {os.getpid()}; sleep 2.5; kill -CONT {os.getpid()}', "
        "shell=True)\n"
        "time.sleep(0.2)\n"
        "for i in range(3_000): display(i)"
    )
    source = write_notebook(tmp_path / "nb.ipynb", "import json", cell)
    with kernel_pool(tmp_path, imports="import json" if is_forked else None) as pool:
        node, result = run_alone(source, pool)
    assert result.origin.is_forked is is_forked
    assert [o.data["text/plain"] for o in node.cells[-1].outputs] == [str(i) for i in range(3_000)]
