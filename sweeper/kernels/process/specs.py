"""Which kernels are installed."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import PurePath
from string import Template

from jupyter_client.kernelspec import KernelSpec, KernelSpecManager, NoSuchKernel

from ...errors import KernelError
from ...notebooks.reading import language_name
from ..forking.command import PYTHON, KernelCommand


def check_kernel(name: str, *, asked_by: str) -> None:
    """Refuse a kernel that is not installed.

    Raises:
        KernelError: the text names the installed ones and how to choose.
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
    """The language that a kernel runs, as `language_name` has it."""
    return language_name(_spec(name).language)


def command_of(name: str) -> KernelCommand:
    """How a kernelspec starts its kernels; `python` means the interpreter of this process."""
    argv = list(_spec(name).argv)
    major, minor = sys.version_info[:2]
    if argv and argv[0] in ("python", f"python{major}", f"python{major}.{minor}"):
        argv[0] = sys.executable
    return KernelCommand.read(argv, kernelspec=name, language=language_of(name))


def interpreter_of(name: str) -> list[str]:
    """The Python that runs a kernel, and its options; empty where the kernelspec does not say."""
    command = command_of(name)
    return [] if command.obstacle else [command.interpreter, *command.options]


def environment_of(name: str, env: Mapping[str, str]) -> dict[str, str]:
    """The environment of a kernel: what its kernelspec adds to another one.

    Args:
        env: that of the process that starts it; the kernelspec may refer to it, as in `${HOME}`.
    """
    added = {k: Template(v).safe_substitute(env) for k, v in _spec(name).env.items()}
    return {**env, **added}


def runs_in_python(name: str) -> bool:
    """Whether the kernel itself is a Python program, whatever language it runs.

    Such kernels have ipykernel's sockets, of which all kinds work. Others, such as those of R and
    Rust, often name a Unix socket otherwise than their clients do.
    """
    argv = _spec(name).argv
    return bool(argv) and PYTHON.fullmatch(PurePath(argv[0]).name) is not None


def is_ipykernel(name: str) -> bool:
    """Whether a kernel is an ipykernel, and takes the arguments and requests of one."""
    return language_of(name) == "python" and any(
        "ipykernel" in argument for argument in _spec(name).argv
    )


def _spec(name: str) -> KernelSpec:
    return KernelSpecManager().get_kernel_spec(name)
