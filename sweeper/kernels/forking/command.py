"""Find out from a kernelspec's command which interpreter runs ipykernel, and with which options."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath

#: Matches the file name of a Python interpreter.
PYTHON = re.compile(r"python(\d+(\.\d+)?t?)?(\.exe)?")
_MODULES = ("ipykernel_launcher", "ipykernel")
#: Matches the option -m, alone or as the last of several letters, as in -Im.
_RUN_MODULE = re.compile("-[a-zA-Z]*m")


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelCommand:
    """The command with which a kernelspec starts its kernels.

    Attributes:
        interpreter: Path or name of the Python interpreter that runs the kernels, with its options,
            such as `-Xfrozen_modules=off`.
        arguments: Arguments of ipykernel, without the connection file.
    """

    interpreter: Sequence[str]
    arguments: Sequence[str]


@dataclass(frozen=True, slots=True)
class Obstacle:
    """A reason why kernels can never be forked.

    Attributes:
        reason: The reason in words, with the remedy if there is one.
    """

    reason: str


def read_command(
    argv: Sequence[str], *, kernelspec: str, language: str
) -> KernelCommand | Obstacle:
    """Read the command of a kernelspec. Return an `Obstacle` if its kernels cannot be forked.

    Args:
        argv: Command of the kernelspec: the program and its arguments.
        kernelspec: Name of the kernelspec, for messages.
        language: Language that the kernels run.
    """
    if language != "python":
        return Obstacle(
            f"only Python kernels can be forked; the kernelspec {kernelspec} runs {language}"
        )
    interpreter, *words = argv or [""]
    if PYTHON.fullmatch(PurePath(interpreter).name) is None:
        why = f"{interpreter or 'nothing'} is not a Python interpreter"
        return _obstacle(kernelspec, argv, why)
    place = next((place for place, word in enumerate(words) if word in _MODULES), 0)
    run_module = words[place - 1] if place else ""
    if _RUN_MODULE.fullmatch(run_module) is None:
        why = f"{interpreter} is called without `-m ipykernel_launcher`"
        return _obstacle(kernelspec, argv, why)
    options = words[: place - 1]
    if run_module != "-m":
        options.append(run_module.removesuffix("m"))
    arguments = [
        word for word in words[place + 1 :] if "connection_file" not in word and word != "-f"
    ]
    return KernelCommand(interpreter=[interpreter, *options], arguments=arguments)


def _obstacle(kernelspec: str, argv: Sequence[str], why: str) -> Obstacle:
    return Obstacle(
        f"the kernelspec {kernelspec} starts its kernels with `{shlex.join(argv)}`, but {why}; run "
        "`python -m ipykernel install --user --name NAME` in the kernel's environment, and choose "
        "that kernel with --kernel NAME"
    )
