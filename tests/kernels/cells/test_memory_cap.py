"""How much of a GPU's memory torch may take in a kernel. No test here needs a GPU."""

from __future__ import annotations

from pathlib import Path

import pytest
from kernels_alone import kernel_pool, run_alone, wait_until_warm

from sweeper.testing import write_notebook

pytestmark = pytest.mark.kernel

#: What torch has read, when it reads it: not before it first uses CUDA.
READ = """
import os
import torch
read = torch._C._accelerator_getAllocatorSettings()
with_cuda = float(torch.version.cuda is not None)
quarter = float(read == "per_process_memory_fraction:0.2500")
stated = os.environ.get("PYTORCH_CUDA_ALLOC_CONF", "")
tenth = float(stated == "expandable_segments:True,per_process_memory_fraction:0.1000")
own = float(stated == "per_process_memory_fraction:0.5")
none = float(stated == "")
"""
VARIABLES = ["quarter", "tenth", "own", "none", "with_cuda"]


def test_a_started_and_a_forked_kernel_have_the_fraction_of_their_own_trial(
    tmp_path: Path,
) -> None:
    notebook = write_notebook(tmp_path / "nb.ipynb", READ)
    with kernel_pool(tmp_path, imports=None, kernels="fork") as pool:
        options = {"env": {"A": "b"}, "variables": VARIABLES}

        def values(fraction: float | None, **env: str) -> set[str]:
            options["env"] = {"A": "b", **env}
            _, result = run_alone(notebook, pool, gpu_fraction=fraction, **options)  # type: ignore[arg-type]
            assert result.error == ""
            return {name for name, value in result.variables.items() if value}

        started = values(0.25)
        if "with_cuda" not in started:
            pytest.skip("needs a torch that is built with CUDA")
        assert started == {"quarter", "with_cuda"}
        wait_until_warm(pool)  # the setting counts as none of the notebook's own
        assert values(0.25) == {"quarter", "with_cuda"}
        assert values(None) == {"none", "with_cuda"}
        name = "PYTORCH_CUDA_ALLOC_CONF"
        assert values(0.1, **{name: "expandable_segments:True"}) == {"tenth", "with_cuda"}
        general = {"PYTORCH_ALLOC_CONF": "expandable_segments:True"}  # the newer name counts
        assert values(0.1, **general, **{name: "backend:native"}) == {"tenth", "with_cuda"}
        assert values(0.1, **{name: "per_process_memory_fraction:0.5"}) == {"own", "with_cuda"}


OLDER = """
import os, sys, types
older = float("PYTORCH_CUDA_ALLOC_CONF" not in os.environ)
"""


def test_an_older_torch_which_would_refuse_the_setting_gets_none(tmp_path: Path) -> None:
    (tmp_path / "torch-2.9.1.dist-info").mkdir()
    (tmp_path / "torch-2.9.1.dist-info" / "METADATA").write_text("Name: torch\nVersion: 2.9.1\n")
    notebook = write_notebook(tmp_path / "nb.ipynb", OLDER)
    with kernel_pool(tmp_path, imports=None) as pool:
        env = {"A": "b"}
        _, result = run_alone(notebook, pool, gpu_fraction=0.5, env=env, variables=["older"])
    assert result.variables == {"older": 1.0}
