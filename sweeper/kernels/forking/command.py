"""Read the command of a kernelspec: which interpreter runs ipykernel, with which options."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath

#: The name of an interpreter's file.
PYTHON = re.compile(r"python(\d+(\.\d+)?t?)?(\.exe)?")
_MODULES = ("ipykernel_launcher", "ipykernel")


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelCommand:
    """How a kernelspec starts its kernels.

    Attributes:
        interpreter: the Python that runs them; empty where `obstacle` is not.
        options: of the interpreter, such as `-Xfrozen_modules=off`.
        arguments: of ipykernel, but for the connection file.
        obstacle: why such kernels cannot be forked, in words; empty if they can.
    """

    interpreter: str = ""
    options: Sequence[str] = ()
    arguments: Sequence[str] = ()
    obstacle: str = ""

    @classmethod
    def read(cls, argv: Sequence[str], *, kernelspec: str, language: str) -> KernelCommand:
        """Read the command of a kernelspec.

        Args:
            kernelspec: its name, for the obstacle.
            language: that its kernels run.
        """
        if language != "python":
            why = (
                f"only kernels that run Python can be forked; those of {kernelspec} run {language}"
            )
            return cls(obstacle=why)
        interpreter, *words = argv or [""]
        if PYTHON.fullmatch(PurePath(interpreter).name) is None:
            return _not_forked(kernelspec, argv, "is no Python interpreter", interpreter)
        place = next((place for place, word in enumerate(words) if word in _MODULES), 0)
        # The option -m, alone or as the last of several letters: -Im
        if place == 0 or re.fullmatch("-[a-zA-Z]*m", words[place - 1]) is None:
            return _not_forked(
                kernelspec, argv, "does not run `-m ipykernel_launcher`", interpreter
            )
        letters = words[place - 1][:-1]
        return cls(
            interpreter=interpreter,
            options=[*words[: place - 1], *([letters] if letters != "-" else [])],
            arguments=[
                it for it in words[place + 1 :] if "connection_file" not in it and it != "-f"
            ],
        )


def _not_forked(kernelspec: str, argv: Sequence[str], why: str, interpreter: str) -> KernelCommand:
    return KernelCommand(
        obstacle=(
            f"the kernelspec {kernelspec} starts its kernels by `{shlex.join(argv)}`, and "
            f"{interpreter or 'nothing'} {why}; `python -m ipykernel install --user --name NAME` "
            "in the kernel's environment makes one whose kernels can be forked: --kernel NAME"
        )
    )
