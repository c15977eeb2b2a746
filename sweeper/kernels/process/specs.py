"""Which kernels are installed."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import PurePath
from string import Template

from jupyter_client.kernelspec import KernelSpec, KernelSpecManager, NoSuchKernel

from ...errors import KernelError
from ...notebooks.reading import language_name
from ..forking.command import PYTHON, KernelCommand, Obstacle, read_command


def check_kernel(name: str, *, asked_by: str) -> None:
    """Refuse a kernel that is not installed.

    Raises:
        KernelError: The text names the installed kernels and tells how to choose one.
    """
    try:
        _spec(name)
    except NoSuchKernel as error:
        installed = sorted(KernelSpecManager().find_kernel_specs())
        listed = ", ".join(installed) or "none; pip install ipykernel"
        raise KernelError(
            f"{asked_by}: the kernel {name!r} is not installed; installed: {listed}. Choose one "
            "of them with --kernel, or, for Python, give this environment the name with: "
            f"python -m ipykernel install --sys-prefix --name {name}"
        ) from error


def language_of(name: str) -> str:
    """Return the language that a kernel runs, in the form of `language_name`."""
    return language_name(_spec(name).language)


def command_of(name: str) -> KernelCommand | Obstacle:
    """Return how a kernelspec starts its kernels, or why they cannot be forked.

    `python` means the interpreter of this process.
    """
    argv = list(_spec(name).argv)
    major, minor = sys.version_info[:2]
    if argv and argv[0] in ("python", f"python{major}", f"python{major}.{minor}"):
        argv[0] = sys.executable
    return read_command(argv, kernelspec=name, language=language_of(name))


def interpreter_of(name: str) -> list[str]:
    """Return the Python that runs a kernel, with its options.

    The list is empty where the kernelspec does not tell.
    """
    command = command_of(name)
    if isinstance(command, Obstacle):
        return []
    return [command.interpreter, *command.options]


def environment_of(name: str, env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a kernel: `env`, and what the kernelspec adds to it.

    Args:
        env: The environment of the process that starts the kernel. The kernelspec may refer to it,
            as in `${HOME}`.
    """
    added = {
        variable: Template(text).safe_substitute(env) for variable, text in _spec(name).env.items()
    }
    return {**env, **added}


def runs_in_python(name: str) -> bool:
    """Return whether the kernel itself is a Python program, whatever language it runs.

    Such kernels have ipykernel's sockets, of which all kinds work. Other kernels, such as those of
    R and Rust, often give a Unix socket another name than their clients do.
    """
    argv = _spec(name).argv
    return bool(argv) and PYTHON.fullmatch(PurePath(argv[0]).name) is not None


def is_ipykernel(name: str) -> bool:
    """Return whether a kernel is an ipykernel, and accepts its arguments and requests."""
    if language_of(name) != "python":
        return False
    return any("ipykernel" in argument for argument in _spec(name).argv)


def _spec(name: str) -> KernelSpec:
    return KernelSpecManager().get_kernel_spec(name)
