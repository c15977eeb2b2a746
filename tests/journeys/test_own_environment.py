"""Test notebooks that run in a virtual environment of their project, not in this package's."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from commands import call
from environments import environment

from sweeper.testing import write_notebook

pytestmark = [pytest.mark.kernel, pytest.mark.slow]
CELL = """
import os, sys
acc = 1 - abs(x - 0.7)
path = os.environ["PATH"].split(os.pathsep)
print(os.path.basename(sys.prefix), sys.prefix == os.environ["VIRTUAL_ENV"])
print([place == f"{sys.prefix}/bin" for place in path[:2]])
"""
PARAMETERS = """
objective: {acc: maximize}
space: {x: [0.1, 0.7, 0.9]}
study: {sampler: grid, trials: 2}
kernels: fork
"""


def test_a_project_runs_with_the_environment_in_its_folder_and_resumes_after_it_was_moved(
    tmp_path: Path,
) -> None:
    first, second = tmp_path / "my project", tmp_path / "moved"
    environment(first / ".venv")
    (first / "notebooks").mkdir()
    write_notebook(first / "notebooks" / "nb.ipynb", CELL, parameters="x = 0.5")
    (first / "nb.yml").write_text(PARAMETERS)
    env = {name: text for name, text in os.environ.items() if name != "VIRTUAL_ENV"}
    words = ("-i", "notebooks/nb.ipynb", "-p", "nb.yml", "-o", "out/{run_id}.ipynb")
    done = call(*words, cwd=first, env=env)
    assert done.returncode == 0, done.stderr
    assert f"{first}/.venv/bin/python (the environment of the notebook's folder)" in done.stderr
    kernels = []
    for run_id in ("0000", "0001"):
        notebook = json.loads((first / "out" / f"{run_id}.ipynb").read_text())
        kernels.append(notebook["metadata"]["sweeper"]["kernel"])
        said = "".join(notebook["cells"][-1]["outputs"][0]["text"])
        assert said == ".venv True\n[True, False]\n", kernels
    assert kernels == ["cold", "warm"]

    first.rename(second)
    resumed = call(*words, "--trials", "3", cwd=second, env=env)
    assert resumed.returncode == 0, resumed.stderr
    assert "0002 completed" in resumed.stderr
    replayed = call("replay", "out/0000.ipynb", cwd=second, env=env)
    assert replayed.returncode == 0, replayed.stderr
    assert "is used instead" not in replayed.stderr
