"""Find the Python interpreter that runs a notebook, if no kernelspec names it."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from jupyter_client.kernelspec import KernelSpec

from ...errors import KernelError

#: Paths where an environment's folder may have its interpreter.
_INTERPRETERS = ("bin/python", "bin/python3", "Scripts/python.exe", "python.exe")
#: Folders of a project in which tools keep an environment: `.venv` is used by uv, poetry and venv,
#: and the other folder by pixi.
_FOLDERS = (".venv", ".pixi/envs/default")
#: Longest wait for an interpreter's answer, in seconds (chosen, not measured).
_ANSWER_S = 60.0
_PROBE = """
import json, sys
from importlib.util import find_spec
has = {name: find_spec(name) is not None for name in ("ipykernel", "pip")}
print(json.dumps({**has, "version": list(sys.version_info[:3])}))
"""


def is_interpreter(kernel: str) -> bool:
    """Return whether a kernel is named by the path of its interpreter."""
    return Path(kernel).is_absolute()


def kernelspec_of(interpreter: str) -> KernelSpec:
    """Return a kernelspec that runs kernels with an interpreter, in its activated environment."""
    return KernelSpec(
        argv=[interpreter, "-m", "ipykernel_launcher", "-f", "{connection_file}"],
        display_name=interpreter,
        language="python",
        env=_activation(Path(interpreter)),
    )


def find_interpreter(path: str) -> str | None:
    """Return the absolute path of an interpreter.

    Args:
        path: Folder of an environment, path of an interpreter, or a command such as `python3.13`.

    Returns:
        None if there is no such folder, executable file or command, or if the folder has no
        interpreter.
    """
    given = Path(path).expanduser()
    if os.path.isdir(given):  # `given.is_dir()` may raise PermissionError.
        return _interpreter_in(given)
    if os.path.isfile(given) and os.access(given, os.X_OK):
        return os.path.abspath(given)
    found = shutil.which(path) if path.startswith("python") else None
    return None if found is None else os.path.abspath(found)


def interpreter_of_project(folder: Path, env: Mapping[str, str]) -> tuple[str, str] | None:
    """Return the interpreter of the environment in which a notebook's author works.

    This is the active environment. If none is active, it is the environment in the notebook's
    folder or in the nearest folder above. Conda's environment `base` does not count as active,
    because many shells activate it by themselves. An active environment does not count either if
    its folder was removed after the shell had activated it.

    Args:
        folder: Folder of the notebook.
        env: Environment variables.

    Returns:
        The interpreter, and a text that describes its environment. None if there is no such
        environment, or if it is the environment of this process.
    """
    conda = env.get("CONDA_PREFIX") if env.get("CONDA_DEFAULT_ENV") != "base" else None
    environments: list[tuple[Path, str]] = []
    for active in (env.get("VIRTUAL_ENV"), conda):
        if active:
            environments.append((Path(active), "the active environment"))
    folder = Path(os.path.abspath(folder))
    for above in (folder, *folder.parents):
        for name in _FOLDERS:
            environments.append((above / name, "the environment of the notebook's folder"))
    for environment, which in environments:
        interpreter = _interpreter_in(environment)
        if interpreter is not None:
            is_own = environment.resolve() == Path(sys.prefix).resolve()
            return None if is_own else (interpreter, which)
    return None


def check_interpreter(interpreter: str, *, asked_by: str) -> None:
    """Raise an error if an interpreter cannot run kernels.

    Args:
        interpreter: Path of the interpreter.
        asked_by: Option, file or environment that names the interpreter. Messages begin with it.

    Raises:
        KernelError: The interpreter does not run. Or it lacks ipykernel, and the message says how
            to install ipykernel.
    """
    refusal = f"{asked_by}: {interpreter} does not run as Python"
    try:
        said = subprocess.run(
            [interpreter, "-c", _PROBE],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_ANSWER_S,
        )
    except OSError as error:
        raise KernelError(f"{refusal}: {error}") from error
    except subprocess.TimeoutExpired as error:
        raise KernelError(f"{refusal}: it did not answer within {_ANSWER_S:g} s") from error
    try:
        has = json.loads(said.stdout.splitlines()[-1])
    except (ValueError, IndexError) as error:
        complaint = said.stderr.strip().splitlines() or [f"exit code {said.returncode}"]
        raise KernelError(f"{refusal}: {complaint[-1]}") from error
    if has["ipykernel"]:
        return
    python = shlex.quote(interpreter)
    pip = f"{python} -m pip install"
    if not has["pip"]:
        uv = f"uv pip install --python {python}"
        pip = uv if shutil.which("uv") else f"{python} -m ensurepip && {pip}"
    raise KernelError(
        f"{asked_by}: {interpreter} lacks ipykernel, which runs notebooks; install it there: "
        f"{pip} ipykernel"
    )


def _interpreter_in(folder: Path) -> str | None:
    """Return the interpreter of an environment, or None if the folder contains none."""
    for name in _INTERPRETERS:
        if os.access(folder / name, os.X_OK):
            return os.path.abspath(folder / name)
    return None


def _activation(interpreter: Path) -> dict[str, str]:
    """Return the variables that activating the interpreter's environment sets.

    IPython would add the packages of another environment if `VIRTUAL_ENV` named it.
    """
    scripts, folder = interpreter.parent, interpreter.parent.parent
    active = {"VIRTUAL_ENV": str(folder), "PATH": f"{scripts}{os.pathsep}${{PATH}}"}
    if (folder / "conda-meta").is_dir():
        active["CONDA_PREFIX"] = str(folder)
    return active
