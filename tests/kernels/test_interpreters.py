"""Test kernels that are named by the folder of an environment or by an interpreter."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest
from environments import environment

from sweeper.errors import KernelError
from sweeper.kernels import choose_kernel


def chosen(
    folder: Path, asked: str | None = None, *, named: str = "python3", is_python: bool = True
) -> str:
    """Return the kernel that is chosen for a notebook in a folder: a name, or an interpreter."""
    return choose_kernel(
        asked, named=named, is_python=is_python, folder=folder, notebook="nb.ipynb"
    ).name


@pytest.fixture(autouse=True)
def nothing_is_active(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV"):
        monkeypatch.delenv(name, raising=False)


def test_an_environment_is_chosen_by_its_folder_its_interpreter_or_a_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interpreter = environment(tmp_path / "my env")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{Path(interpreter).parent}:{os.environ['PATH']}")
    for asked in ("my env", "my env/", interpreter, "my env/bin/python", "python"):
        assert chosen(tmp_path, asked) == interpreter, asked
    assert chosen(tmp_path, "python3") == "python3", "an installed kernelspec has priority"


def test_a_folder_without_an_interpreter_and_an_unknown_name_are_refused_as_kernels(
    tmp_path: Path,
) -> None:
    with pytest.raises(
        KernelError, match=r"nor a folder with a Python interpreter, .*; installed: .*python3"
    ):
        chosen(tmp_path, str(tmp_path))
    with pytest.raises(KernelError, match=r"'nowhere' is not installed; installed: .*python3"):
        chosen(tmp_path, "nowhere")
    with pytest.raises(KernelError):
        chosen(tmp_path, f"/{'x' * 300}")


def test_an_interpreter_that_does_not_run_is_refused_with_the_last_line_that_it_printed(
    tmp_path: Path,
) -> None:
    shim = tmp_path / "env" / "bin" / "python"
    shim.parent.mkdir(parents=True)
    shim.write_text(
        "#!/bin/sh\necho starting >&2\necho version 3.12 is not installed >&2\nexit 127\n"
    )
    shim.chmod(0o755)
    with pytest.raises(KernelError) as refused:
        chosen(tmp_path, str(shim))
    assert str(refused.value).endswith("does not run as Python: version 3.12 is not installed")


@pytest.mark.parametrize("has_uv", [True, False])
def test_an_environment_without_ipykernel_is_refused_with_the_command_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_uv: bool
) -> None:
    interpreter = environment(tmp_path / "env", with_ipykernel=False)
    monkeypatch.setattr(shutil, "which", lambda name: "/bin/uv" if has_uv else None)
    command = (
        f"uv pip install --python {interpreter} ipykernel"
        if has_uv
        else f"{interpreter} -m ensurepip && {interpreter} -m pip install ipykernel"
    )
    with pytest.raises(KernelError) as refused:
        chosen(tmp_path, interpreter)
    assert str(refused.value).endswith(command)


def test_the_active_environment_runs_the_notebook_if_this_package_is_installed_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    active = environment(tmp_path / "active")
    project = environment(tmp_path / "project" / ".venv")
    folder = tmp_path / "project" / "notebooks"
    assert chosen(tmp_path) == "python3"
    assert chosen(folder) == project
    monkeypatch.setenv("CONDA_PREFIX", str(tmp_path / "active"))
    assert chosen(folder) == active
    monkeypatch.setenv("CONDA_DEFAULT_ENV", "base")
    assert chosen(folder) == project, "conda activates its `base` in every shell"
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path / "active"))
    assert chosen(folder) == active
    assert chosen(folder, named="not-installed") == active
    monkeypatch.setenv("VIRTUAL_ENV", sys.prefix)
    assert chosen(folder) == "python3", "this package is installed in the active environment"


def test_an_active_environment_that_was_removed_is_not_chosen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project, conda = environment(tmp_path / ".venv"), environment(tmp_path / "conda")
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path / "removed"))
    assert chosen(tmp_path) == project
    monkeypatch.setenv("CONDA_PREFIX", str(tmp_path / "conda"))
    assert chosen(tmp_path) == conda


def test_an_r_notebook_does_not_run_in_the_python_environment_of_its_folder(tmp_path: Path) -> None:
    environment(tmp_path / ".venv")
    with pytest.raises(KernelError, match="'ir' is not installed"):
        chosen(tmp_path, named="ir", is_python=False)
