"""Choose the kernel of a notebook, and read its kernelspec."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath
from string import Template

from jupyter_client.kernelspec import KernelSpec, KernelSpecManager, NoSuchKernel

from ...errors import KernelError
from ...notebooks.reading import language_name
from ..forking.command import PYTHON, KernelCommand, Obstacle, read_command
from .interpreters import (
    check_interpreter,
    find_interpreter,
    interpreter_of_project,
    is_interpreter,
    kernelspec_of,
)

#: Names of kernelspecs that mean "the Python of this environment".
_ANY_PYTHON = ("python3", "python")
#: How the user of a sweep chooses another kernel, as the end of a message.
_CHOOSE = (
    ". Choose an installed one with --kernel, or a Python environment by its folder: --kernel .venv"
)


class Kernelspecs(KernelSpecManager):
    """The installed kernelspecs by name, and a kernelspec for each path of an interpreter."""

    def get_kernel_spec(self, kernel_name: str) -> KernelSpec:
        """Return the kernelspec for a name, or for the absolute path of an interpreter.

        Raises:
            NoSuchKernel: No kernelspec of this name is installed.
        """
        if is_interpreter(kernel_name):
            return kernelspec_of(kernel_name)
        return super().get_kernel_spec(kernel_name)


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelChoice:
    """The kernel that runs a notebook.

    Attributes:
        name: Name of a kernelspec, or absolute path of an interpreter.
        reason: Why an interpreter was chosen that neither the user nor the notebook has named. None
            if one of them has named the kernel.
    """

    name: str
    reason: str | None = None


def choose_kernel(
    asked: str | None, *, named: str, is_python: bool, folder: Path, notebook: str
) -> KernelChoice:
    """Return the kernel that runs a notebook.

    If the user asks for a kernel, it is this kernel. Otherwise, a Python notebook whose kernelspec
    is `python3`, `python` or not installed runs in the environment of its author, if there is one;
    see `interpreter_of_project`. All other notebooks run in the kernel that they name.

    Args:
        asked: What the user asks for: the name of a kernelspec, the folder of an environment, the
            path of an interpreter, or a command such as `python3.13`. None if the user asks for no
            kernel.
        named: Name of the kernelspec that the notebook names.
        is_python: Whether the notebook is written in Python.
        folder: Folder of the notebook.
        notebook: Name of the notebook in messages.

    Raises:
        KernelError: There is no such kernel, or its interpreter does not run or lacks ipykernel.
    """
    if asked is not None:
        asked_by = f"--kernel {asked}"
        interpreter = None if _is_installed(asked) else find_interpreter(asked)
        if interpreter is None and os.path.exists(asked):
            raise KernelError(
                f"{asked_by}: this path is neither an executable file nor a folder with a Python "
                f"interpreter, and no kernel has this name; installed: {_listed()}"
            )
        check_kernel(interpreter or asked, asked_by=asked_by)
        return KernelChoice(name=interpreter or asked)
    if is_python and (named in _ANY_PYTHON or not _is_installed(named)):
        found = interpreter_of_project(folder, os.environ)
        if found is not None:
            interpreter, which = found
            check_kernel(interpreter, asked_by=which)
            return KernelChoice(name=interpreter, reason=which)
    check_kernel(named, asked_by=notebook)
    return KernelChoice(name=named)


def check_kernel(name: str, *, asked_by: str, remedy: str = _CHOOSE) -> None:
    """Raise an error if a kernel is not installed.

    Args:
        name: Name of the kernel, or path of its interpreter.
        asked_by: Option, file or environment that names the kernel. Messages begin with it.
        remedy: End of the message about a kernel that is not installed: how to choose another one.

    Raises:
        KernelError: The kernel is not installed, or the interpreter lacks ipykernel. The message
            lists the installed kernels, and says how to choose or install one.
    """
    if is_interpreter(name):
        check_interpreter(name, asked_by=asked_by)
        return
    try:
        _spec(name)
    except NoSuchKernel as error:
        raise KernelError(
            f"{asked_by}: the kernel {name!r} is not installed; installed: {_listed()}{remedy}"
        ) from error


def installed_kernels() -> list[str]:
    """Return the names of the installed kernelspecs."""
    return sorted(KernelSpecManager().find_kernel_specs())


def _listed() -> str:
    """Return the names of the installed kernelspecs for a message."""
    return ", ".join(installed_kernels()) or "none (pip install ipykernel adds one)"


def language_of(name: str) -> str:
    """Return the language that a kernel runs, in the form of `language_name`."""
    return language_name(_spec(name).language)


def command_of(name: str) -> KernelCommand | Obstacle:
    """Return the command with which a kernelspec starts its kernels, or why they cannot be forked.

    In a kernelspec's command, `python` means the interpreter of this process.
    """
    argv = list(_spec(name).argv)
    major, minor = sys.version_info[:2]
    if argv and argv[0] in ("python", f"python{major}", f"python{major}.{minor}"):
        argv[0] = sys.executable
    return read_command(argv, kernelspec=name, language=language_of(name))


def interpreter_of(name: str) -> list[str]:
    """Return the command of the Python interpreter that runs a kernel, with its options.

    The command is empty if the kernelspec does not show it.
    """
    command = command_of(name)
    return [] if isinstance(command, Obstacle) else [*command.interpreter]


def environment_of(name: str, env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a kernel: `env`, and the variables that the kernelspec adds.

    Args:
        name: Name of the kernel.
        env: Environment of the process that starts the kernel. The kernelspec may refer to it, as
            in `${HOME}`.
    """
    added: dict[str, str] = {}
    for variable, text in _spec(name).env.items():
        added[variable] = Template(text).safe_substitute(env)
    return {**env, **added}


def runs_in_python(name: str) -> bool:
    """Return whether the kernel itself is a Python program, whatever language it runs.

    Such kernels use ipykernel's sockets, which work with every transport. Other kernels, such as
    those of R and Rust, often name a Unix socket differently from their clients.
    """
    argv = _spec(name).argv
    return bool(argv) and PYTHON.fullmatch(PurePath(argv[0]).name) is not None


def is_ipykernel(name: str) -> bool:
    """Return whether a kernel is ipykernel, so that it accepts ipykernel's arguments."""
    if language_of(name) != "python":
        return False
    return any("ipykernel" in argument for argument in _spec(name).argv)


def _spec(name: str) -> KernelSpec:
    return Kernelspecs().get_kernel_spec(name)


def _is_installed(name: str) -> bool:
    try:
        KernelSpecManager().get_kernel_spec(name)
    except NoSuchKernel:
        return False
    return True
