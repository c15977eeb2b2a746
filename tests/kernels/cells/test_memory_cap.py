"""torch's share of a GPU's memory is limited in a kernel. No test here needs a GPU."""

from __future__ import annotations

from pathlib import Path

import pytest
from kernels_alone import kernel_pool, run_alone

from sweeper.testing import write_notebook

pytestmark = pytest.mark.kernel

#: A cell that reads the environment variable with torch's limit, which torch reads at its first use
#: of CUDA.
READ = """
import os
stated = os.environ.get("PYTORCH_CUDA_ALLOC_CONF", "")
capped = float(stated == "per_process_memory_fraction:0.2500")
"""


@pytest.mark.parametrize("is_forked", [False, True])
def test_torch_gets_a_memory_limit_unless_the_user_has_configured_torch_or_torch_is_too_old(
    tmp_path: Path, *, is_forked: bool
) -> None:
    notebook = write_notebook(tmp_path / "nb.ipynb", READ)
    with kernel_pool(tmp_path, imports="import torch" if is_forked else None) as pool:

        def is_capped(fraction: float | None, **env: str) -> bool:
            variables = {"A": "b", **env}
            _, result = run_alone(
                notebook, pool, gpu_fraction=fraction, env=variables, variables=["capped"]
            )
            return bool(result.answer.floats["capped"])

        assert is_capped(0.25)
        assert not is_capped(None)
        assert not is_capped(0.25, PYTORCH_ALLOC_CONF="expandable_segments:True")
        (tmp_path / "torch-2.9.1.dist-info").mkdir()
        metadata = tmp_path / "torch-2.9.1.dist-info" / "METADATA"
        metadata.write_text("Name: torch\nVersion: 2.9.1\n")
        assert not is_capped(0.25)
