"""How IPython is configured in the kernels of a sweep."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from kernels_alone import kernel_pool, run_alone

from sweeper.kernels import Way
from sweeper.testing import write_notebook

pytestmark = pytest.mark.kernel

NOTEBOOK = (
    "import sys\nby_itself = float('debugpy' in sys.modules)",
    "import debugpy\nby_hand = float(callable(debugpy.listen))",
)


@pytest.mark.parametrize("way", [Way.STARTED, Way.FORKED])
def test_a_kernel_has_no_debugger_imported_and_its_notebook_can_import_one(
    way: Way, tmp_path: Path
) -> None:
    if way is Way.FORKED and sys.platform != "linux":
        pytest.skip("kernels are forked on Linux only")
    source = write_notebook(tmp_path / "nb.ipynb", *NOTEBOOK)
    with kernel_pool(tmp_path, imports="import json" if way is Way.FORKED else None) as pool:
        _, result = run_alone(source, pool, variables=["by_itself", "by_hand"])
    assert result.origin.way is way
    assert result.variables == {"by_itself": 0.0, "by_hand": 1.0}
