"""Kernels of `python -m ipykernel_launcher` can be forked, with any options. Others are started."""

from __future__ import annotations

import json
import os
import sys
import venv
from collections.abc import Sequence
from importlib.metadata import Distribution, distribution
from pathlib import Path
from typing import Any

import pytest
from kernels_alone import install_kernel
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from studies import forked, run_until, sweep_of

from sweeper.kernels.forking.command import KernelCommand, Obstacle, read_command
from sweeper.testing import write_notebook

FILE = ["-f", "{connection_file}"]
PYTHON = "/opt/env/bin/python"


def read(*argv: str, language: str = "python") -> KernelCommand | Obstacle:
    return read_command(argv, kernelspec="mine", language=language)


@pytest.mark.parametrize(
    ("argv", "options", "arguments"),
    [
        ([PYTHON, "-m", "ipykernel_launcher", *FILE], [], []),
        # The command that `python -m ipykernel install` writes.
        ([PYTHON, "-Xfrozen_modules=off", "-m", "ipykernel_launcher", *FILE],
         ["-Xfrozen_modules=off"], []),
        (["python3.13t", "-m", "ipykernel", *FILE], [], []),
        ([PYTHON, "-X", "dev", "-W", "error", "-m", "ipykernel_launcher", *FILE],
         ["-X", "dev", "-W", "error"], []),
        ([PYTHON, "-Wdefault", "-E", "-s", "-u", "-m", "ipykernel_launcher", *FILE],
         ["-Wdefault", "-E", "-s", "-u"], []),
        ([PYTHON, "-Esu", "-Im", "ipykernel_launcher", *FILE], ["-Esu", "-I"], []),
        ([PYTHON, "--check-hash-based-pycs", "never", "-m", "ipykernel_launcher", *FILE],
         ["--check-hash-based-pycs", "never"], []),
        # Options of ipykernel before and after the connection file, and in one word with it.
        ([PYTHON, "-m", "ipykernel_launcher", "--matplotlib=inline", *FILE, "--pylab", "none"],
         [], ["--matplotlib=inline", "--pylab", "none"]),
        ([PYTHON, "-m", "ipykernel_launcher", "-f={connection_file}", "--debug"], [], ["--debug"]),
        ([PYTHON, "-m", "ipykernel_launcher", "--IPKernelApp.connection_file={connection_file}"],
         [], []),
    ],
)  # fmt: skip
def test_kernels_of_ipykernel_can_be_forked_with_any_options(
    argv: Sequence[str], options: Sequence[str], arguments: Sequence[str]
) -> None:
    expected = KernelCommand(interpreter=[argv[0], *options], arguments=arguments)
    assert read(*argv) == expected


@pytest.mark.parametrize(
    ("argv", "language", "fragment"),
    [
        (["R", "--slave", "-e", "IRkernel::main()"], "r", "only Python kernels can be forked"),
        (["julia", "kernel.jl", "{connection_file}"], "julia", "the kernelspec mine runs julia"),
        (["/home/me/kernel.sh", *FILE], "python", "/home/me/kernel.sh is not a Python interpreter"),
        (["conda", "run", "-n", "x", "python", "-m", "ipykernel_launcher", *FILE], "python",
         "conda is not a Python interpreter"),
        # As written by nb_conda_kernels: a script that activates an environment in a shell.
        (["/opt/bin/python", "-m", "nb_conda_kernels.runner", "/opt", "/opt/envs/x", "python"],
         "python", "/opt/bin/python is called without `-m ipykernel_launcher`"),
        ([PYTHON, "kernel.py", *FILE], "python", "is called without `-m ipykernel_launcher`"),
        ([PYTHON, "-c", "import ipykernel; ipykernel.start()", *FILE], "python", "called without"),
        ([PYTHON], "python", "called without"),
        ([], "python", "nothing is not a Python interpreter"),
    ],
)  # fmt: skip
def test_a_kernelspec_whose_kernels_cannot_be_forked_gives_a_reason_and_for_python_a_remedy(
    argv: Sequence[str], language: str, fragment: str
) -> None:
    obstacle = read(*argv, language=language)
    assert isinstance(obstacle, Obstacle)
    assert fragment in obstacle.reason
    assert language != "python" or "python -m ipykernel install" in obstacle.reason
    assert "\n" not in obstacle.reason


# --- in real environments -------------------------------------------------------------------------

CELLS = (
    "import sys, time, numpy\ntime.sleep(0.7)",
    "import sweeper\nfor step in range(3):\n    sweeper.report(step, val=float(x) + step)",
    "import importlib.util\nprint(sorted(sys._xoptions), sys.flags.no_user_site, SPEC)\n"
    "print([name for name in ('optuna', 'mlflow', 'papermill') if importlib.util.find_spec(name)])",
)


def sweep(folder: Path) -> Any:
    """Sweep with the kernel `other` until a forked kernel has run a trial. Return the result.

    Fail the test if a trial fails.
    """
    cells = [cell.replace("SPEC", "__import__('os').environ.get('FROM_SPEC')") for cell in CELLS]
    notebook = write_notebook(folder / "nb.ipynb", *cells, parameters="x = 0.5")
    options = {"kernel": "other"}
    result = run_until(
        forked(1),
        lambda observer: sweep_of(
            notebook, "other", study={"trials": 40}, options={**options, "observer": observer}
        ),
    )
    assert result.counts["failed"] == 0, result.records[0].message
    assert result.kernels[-1].is_forked
    return result


@pytest.mark.kernel
@pytest.mark.skipif(sys.platform != "linux", reason="kernels are forked on Linux only")
def test_a_kernel_can_import_sweeper_even_if_its_environment_lacks_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = environment_with(tmp_path / "other env", "ipykernel", "numpy")
    argv = [str(other), "-Xfrozen_modules=off", "-s", "-m", "ipykernel_launcher", *FILE]
    install_kernel(tmp_path, monkeypatch, "other", argv, env={"FROM_SPEC": "${HOME}/data"})
    for record in sweep(tmp_path).records:
        node = json.loads(record.notebook.read_text())
        assert node["metadata"]["sweeper"]["series"]["val"]["steps"] == [0, 1, 2]
        (text,) = node["cells"][-1]["outputs"]
        stated = f"['frozen_modules'] 1 {os.environ['HOME']}/data"
        assert "".join(text["text"]).splitlines() == [stated, "[]"]


def environment_with(folder: Path, *packages: str) -> Path:
    """Return the interpreter of a new environment with these packages and those that they need."""
    venv.create(folder, with_pip=False, symlinks=True)
    (site,) = folder.glob("lib/python*/site-packages")
    for package in needed(packages):
        for name in {file.parts[0] for file in package.files or ()} - {"..", "__pycache__"}:
            (site / name).symlink_to(str(package.locate_file(name)))
    return folder / "bin" / "python"


def needed(packages: Sequence[str]) -> list[Distribution]:
    """Return these packages and all packages that they require."""
    found: dict[str, Distribution] = {}
    waiting = list(packages)
    while waiting:
        name = canonicalize_name(waiting.pop())
        if name not in found:
            found[name] = distribution(name)
            required = map(Requirement, found[name].requires or ())
            waiting += [r.name for r in required if r.marker is None or r.marker.evaluate()]
    return list(found.values())
