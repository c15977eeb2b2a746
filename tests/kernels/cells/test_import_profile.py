"""What a kernel answers that it has imported, and from where."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

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


@pytest.mark.parametrize(
    ("folder", "is_listed"),
    [
        # `uv run --with` and `venv --system-site-packages` put an environment on top of another.
        ("base/lib/python3/site-packages", True),
        ("usr/lib/python3/dist-packages", True),
        ("project", False),
        ("my-site-packages-demo", False),
    ],
)
def test_libraries_of_any_environment_are_listed_and_modules_of_the_project_are_not(
    tmp_path: Path, folder: str, *, is_listed: bool
) -> None:
    assert imported(tmp_path / folder, "helpers") is is_listed
