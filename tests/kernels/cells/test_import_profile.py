"""What a kernel answers that it has imported, and from where."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

from sweeper.kernels.cells.expressions import IMPORT_PROFILE


def imported(folder: Path, module: str) -> bool:
    """Whether a kernel that has imported a module from a folder lists it."""
    folder.mkdir(parents=True)
    (folder / f"{module}.py").write_text("")
    code = (
        f"import sys; sys.path.append({str(folder)!r}); import {module}; "
        f"print(repr({IMPORT_PROFILE}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    answer = json.loads(ast.literal_eval(done.stdout))
    modules = answer["modules"]
    assert "json" in modules
    return module in modules


def test_a_library_of_the_environment_below_is_listed(tmp_path: Path) -> None:
    # `uv run --with` and `venv --system-site-packages` put one environment on top of another.
    assert imported(tmp_path / "base" / "lib" / "python3" / "site-packages", "below")
    assert imported(tmp_path / "usr" / "lib" / "python3" / "dist-packages", "debians")


def test_a_module_of_the_project_is_not_listed(tmp_path: Path) -> None:
    assert not imported(tmp_path / "project", "helpers")
    assert not imported(tmp_path / "my-site-packages-demo", "helpers")
