"""Ask a kernel questions in addition to its cells, and read the answers.

The code of the module `in_kernel` runs inside the kernel and answers. Expressions are evaluated
with the notebook's variables. The code that answers uses Python's original builtins, even if the
notebook has replaced some of them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ..forking.zygote import finders, in_kernel

_PACKAGE_FOLDER = str(Path(__file__).parents[2])
_FINDERS = Path(finders.__file__).read_text(encoding="utf-8")
_IN_KERNEL = Path(in_kernel.__file__).read_text(encoding="utf-8")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialArguments:
    """What a kernel gets before the first cell of a trial.

    Attributes:
        environment: Environment variables of the trial.
        gpu_fraction: Fraction of a GPU's memory that torch may use. None for no limit.
        random_seed: Seed with which the random generators begin.
    """

    environment: Mapping[str, str]
    gpu_fraction: float | None
    random_seed: int


def prepare_started(trial: TrialArguments, frozen: Mapping[str, str]) -> str:
    """Return code that prepares a kernel that was started, not forked, for its trial.

    The kernel runs the returned code before the first cell. This code runs the source of the module
    `in_kernel` and calls a function of it, without adding a variable to the notebook.

    Args:
        trial: Environment variables, GPU memory limit and seed of the trial.
        frozen: Sources of the notebook's local modules as they were when the sweep began, by
            absolute path without symbolic links.
    """
    arguments = {
        "finders": _FINDERS,
        "folder": _PACKAGE_FOLDER,
        "frozen": dict(frozen),
        **asdict(trial),
    }
    module = {"__name__": "sweeper_in_kernel"}
    run_source = f"__import__('builtins').exec({_IN_KERNEL!r}, module)"
    call = f"module['prepare_started'](**{arguments!r})"
    return f"(lambda module: ({run_source}, {call}))({module!r})\n"


def prepare_forked(trial: TrialArguments) -> str:
    """Return code that prepares a forked kernel for its trial.

    A forked kernel already has the module `in_kernel`, because the process that it was forked from
    has imported the module.

    Args:
        trial: Environment variables, GPU memory limit and seed of the trial.
    """
    modules = "__import__('sys').modules"
    return f"{modules}['_sweeper_zygote.in_kernel'].prepare_forked(**{asdict(trial)!r})\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What to read in a kernel after its last cell.

    Attributes:
        floats: Variables and expressions to read as numbers.
        values: Variables to read as plain values; see `Answer.values`.
        reads_imports: Whether to list the modules that the kernel has imported.
    """

    floats: Sequence[str] = ()
    values: Sequence[str] = ()
    reads_imports: bool = False

    def as_expressions(self) -> dict[str, str]:
        """Return the question as the `user_expressions` of a Jupyter request."""
        return {in_kernel.QUESTION: json.dumps(asdict(self))}


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The kernel's answer to a question. Values that could not be read are missing.

    Attributes:
        floats: Numbers by expression.
        unread: Errors of the expressions that gave no number, by expression.
        values: Plain values by name: scalars of JSON, also NaN and infinities, and a short `repr`
            of other values.
        imports: Modules that the kernel has imported, and the environment variables that libraries
            read at import. None if the question did not ask for them, or if they cannot be read.
        gpu_bytes: Peak of the GPU memory that torch has reserved, without CUDA's own memory. None
            if torch has used no GPU.
        notices: Paths of files that the notebook has overwritten, and names of torch operations
            whose results may differ when repeated, by the kind of notice (`trials.Notice`).
        numbers: Numbers that the cells have computed, in the form of `in_kernel.WatchedNumbers`.
            Empty unless the environment variable `WATCH_VARIABLE` made the kernel record them.
        changes: Variables that each statement has changed, in the form of
            `in_kernel.WatchedChanges`. Empty unless `WATCH_VARIABLE` made the kernel record them.
    """

    floats: Mapping[str, float] = field(default_factory=dict)
    unread: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, bool | int | float | str | None] = field(default_factory=dict)
    imports: Mapping[str, Any] | None = None
    gpu_bytes: int | None = None
    notices: Mapping[str, Sequence[str]] = field(default_factory=dict)
    numbers: Mapping[str, Any] = field(default_factory=dict)
    changes: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, expressions: Mapping[str, Any]) -> Answer:
        """Read the answer from the user expressions of a kernel's reply.

        The answer is empty if the kernel is not IPython.
        """
        text = expressions.get(in_kernel.QUESTION, {}).get("answer")
        if text is None:
            return cls()
        read = json.loads(text)
        floats = {name: float.fromhex(number) for name, number in read.pop("floats").items()}
        return cls(floats=floats, **read)
