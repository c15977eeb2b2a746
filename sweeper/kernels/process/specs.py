"""Read the installed kernelspecs."""

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

    Args:
        name: Name of the kernel.
        asked_by: What names the kernel, for the message.

    Raises:
        KernelError: The kernel is not installed. The message lists the installed kernels and says
            how to choose one.
    """
    try:
        _spec(name)
    except NoSuchKernel as error:
        installed = sorted(KernelSpecManager().find_kernel_specs())
        listed = ", ".join(installed) or "none; pip install ipykernel"
        raise KernelError(
            f"{asked_by}: the kernel {name!r} is not installed; installed: {listed}. Choose one "
            "of them with --kernel, or, for Python, register this environment under that name: "
            f"python -m ipykernel install --sys-prefix --name {name}"
        ) from error


def language_of(name: str) -> str:
    """Return the language that a kernel runs, in the form of `language_name`."""
    return language_name(_spec(name).language)


def command_of(name: str) -> KernelCommand | Obstacle:
    """Return the command with which a kernelspec starts its kernels, or why they cannot be forked.

    `python` means the interpreter of this process.
    """
    argv = list(_spec(name).argv)
    major, minor = sys.version_info[:2]
    if argv and argv[0] in ("python", f"python{major}", f"python{major}.{minor}"):
        argv[0] = sys.executable
    return read_command(argv, kernelspec=name, language=language_of(name))


def interpreter_of(name: str) -> list[str]:
    """Return the command of the Python that runs a kernel, with its options.

    Empty if the kernelspec does not say it.
    """
    command = command_of(name)
    if isinstance(command, Obstacle):
        return []
    return [command.interpreter, *command.options]


def environment_of(name: str, env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a kernel: `env`, and the variables that the kernelspec adds.

    Args:
        name: Name of the kernel.
        env: Environment of the process that starts the kernel. The kernelspec may refer to it, as
            in `${HOME}`.
    """
    added = {
        variable: Template(text).safe_substitute(env) for variable, text in _spec(name).env.items()
    }
    return {**env, **added}


def runs_in_python(name: str) -> bool:
    """Return whether the kernel itself is a Python program, whatever language it runs.

    Such kernels use ipykernel's sockets, which work with every transport. Other kernels, such as
    those of R and Rust, often name a Unix socket differently from their clients.
    """
    argv = _spec(name).argv
    return bool(argv) and PYTHON.fullmatch(PurePath(argv[0]).name) is not None


def is_ipykernel(name: str) -> bool:
    """Return whether a kernel is ipykernel, and so accepts its arguments and requests."""
    if language_of(name) != "python":
        return False
    return any("ipykernel" in argument for argument in _spec(name).argv)


def _spec(name: str) -> KernelSpec:
    return KernelSpecManager().get_kernel_spec(name)
